"""The life of each kind of control: given, changed, kept over a kill, repaired, taken back; by a process.

Frequencies, caches and interrupts are those of a `tests.controls.trees.Tree`; threads, disks and the CPU burst of
cgroup v1 are those of a real cgroup. All that there is to see is compared, file by file.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from criproxy.controls.block_io import V1_FILES
from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.cpu_burst import BURST, QUOTA
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.model.controls import (
    NOTHING_DESIRED,
    BlockIo,
    ContainerControls,
    CpuTuning,
    Desired,
    IrqClaim,
    Irqs,
    Rdt,
    RdtAllocation,
    RdtClass,
    Scheduling,
    Throttle,
)
from tests.controls.cgroups import UNIFIED, Cgroup
from tests.controls.disks import Disk
from tests.controls.resctrl.model import MOUNT, ResctrlModel
from tests.controls.test_service import Service
from tests.controls.trees import CPUS, Tree
from tests.daemons import until

MIB = 1 << 20
NEVER_THE_SAME = "info/last_cmd_status"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

Changes = Mapping[str, str | None]
"""What there is to see → its content where it is not as in the beginning; None: it is not there."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """One kind on one machine."""

    root: Path
    desired: tuple[Desired, Desired]
    """A class, and what a reload makes of it."""
    expected: tuple[Changes, Changes]
    contents: Callable[[], Mapping[str, str]]
    """Returns all that there is to see."""
    disturb: Callable[[], object]
    """Changes something of the second."""

    def changed(self, before: Mapping[str, str]) -> Changes:
        """Return what is not as *before*."""
        now = self.contents()
        return {name: now.get(name) for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


# ---------------------------------------------------------------- on a machine whose kernel is a model


def tuned(**tuning: Any) -> Desired:  # noqa: ANN401 (fields of CpuTuning)
    """The class gold, on the last of four CPUs."""
    return Desired(cpus={"gold": "3"}, tunings={"gold": CpuTuning(**tuning)})


def cached(name: str, mb: str) -> Desired:
    """One RDT class, and a container that has it."""
    allocations = (RdtAllocation(resource="L3", share="50%"), RdtAllocation(resource="MB", share=mb))
    return Desired(
        rdt=Rdt(classes=(RdtClass(name=name, allocations=allocations),)),
        containers={"c": ContainerControls(cgroup="kubepods/c", rdt_class=name)},
    )


def group(name: str, mb: str) -> Changes:
    """What there is of that."""
    schemata = f"L3:0=3ff;1=3ff\n    MB:0={mb};1={mb}"
    tasks = {f"{MOUNT}/{name}/tasks": "10 11", f"{MOUNT}/tasks": "1"}
    return {f"{MOUNT}/{name}/schemata": schemata, **tasks}


def to(cpus: str, claimed: str = "") -> Changes:
    """Where the four interrupts go, of which one is claimed, and those to come."""
    mask = {"0-2": "7", "0-1": "3"}[cpus]
    irqs = {f"proc/irq/{number}/smp_affinity_list": cpus for number in range(24, 28)}
    own = {"proc/irq/24/smp_affinity_list": claimed} if claimed else {}
    return {"proc/irq/default_smp_affinity": mask} | irqs | own


FREQUENCY, UNCORE = f"{CPUS}/cpufreq/policy3/scaling_", f"{CPUS}/intel_uncore_frequency/package_01_die_00/"
PREFERENCE, STATE = f"{CPUS}/cpufreq/policy3/energy_performance_preference", f"{CPUS}/cpu3/cpuidle/state"
CLAIM = IrqClaim(names=("nic0-q24",), cpus="3")
ON_FILES = {
    "frequencies": (
        (tuned(min_frequency="base", max_frequency="3000000"), tuned(max_frequency="min")),
        ({f"{FREQUENCY}min_freq": "2100000", f"{FREQUENCY}max_freq": "3000000"}, {f"{FREQUENCY}max_freq": "800000"}),
        (f"{FREQUENCY}max_freq", "3500000"),
    ),
    "governor": (
        (tuned(governor="performance"), tuned(energy_preference="power")),
        ({f"{FREQUENCY}governor": "performance", PREFERENCE: "performance"}, {PREFERENCE: "power"}),
        (PREFERENCE, "balance_power"),
    ),
    "uncore": (
        (tuned(uncore_min_khz=1000000), tuned(uncore_max_khz=2000000)),
        ({f"{UNCORE}min_freq_khz": "1000000"}, {f"{UNCORE}max_freq_khz": "2000000"}),
        (f"{UNCORE}max_freq_khz", "2400000"),
    ),
    "idle-states": (
        (tuned(disabled_c_states=("C6",)), tuned(max_latency_us=9)),
        ({f"{STATE}2/disable": "1"}, {f"{STATE}1/disable": "1", f"{STATE}2/disable": "1"}),
        (f"{STATE}1/disable", "0"),
    ),
    "irq": (
        (Desired(irqs=Irqs(cpus="0-2")), Desired(irqs=Irqs(cpus="0-1", claims=(CLAIM,)))),
        (to("0-2"), to("0-1", claimed="3")),
        ("proc/irq/24/smp_affinity_list", "0-3"),
    ),
    "rdt": (
        (cached("gold", "30%"), cached("silver", "40%")),
        (group("criproxy.gold", "30"), group("criproxy.silver", "40")),
        (f"{MOUNT}/criproxy.silver/schemata", "    L3:0=fffff;1=fffff\n    MB:0=100;1=100"),
    ),
}


def on_files(kind: str, folder: Path) -> Life:
    """A machine with four CPUs, four interrupts, resctrl, and a container of two threads."""
    tree = Tree(folder / "host")
    tree.cpus(4, packages=2)
    tree.irqs(4, 4)
    tree.uncore("package_00_die_00")
    tree.uncore("package_01_die_00")
    model = ResctrlModel(tree.root, tells=False)
    for number in (1, 10, 11):
        model.thread(number, "kubepods/c" if number > 1 else "init")
    desired, expected, (path, text) = ON_FILES[kind]

    def contents() -> Mapping[str, str]:
        found = {name.removeprefix(f"{tree.root}/"): text.strip() for name, text in tree.contents().items()}
        return {
            name: " ".join(sorted(text.split())) if name.endswith("tasks") else text
            for name, text in found.items()
            if not name.endswith(NEVER_THE_SAME)
        }

    def disturb() -> None:
        (tree.root / "new").write_text(f"{text}\n")
        (tree.root / "new").replace(tree.root / path)  # the program never reads a half

    return Life(root=tree.root, desired=desired, expected=expected, contents=contents, disturb=disturb)


# ---------------------------------------------------------------- in a real cgroup


@contextmanager
def in_a_cgroup(kind: str, folder: Path) -> Iterator[Life]:
    """A program with two threads and a disk, of which all there is to see are its scheduling, limit and burst."""
    with ExitStack() as stack:
        cgroup, disk = stack.enter_context(Cgroup()), stack.enter_context(Disk(folder, "disk"))
        start = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
        script = f"import threading; {start}; print(); input()"
        program = cgroup.run("python3", "-c", script)
        assert program.stdout
        program.stdout.readline()
        limits = cgroup.file("io.max" if UNIFIED else V1_FILES["rbps"])
        if not UNIFIED:
            cgroup.file(QUOTA).write_text("50000")
            cgroup.file(BURST).write_text("5000")

        def contents() -> Mapping[str, str]:
            threads = {str(number): f"{read(number)}" for number in ContainerThreads(Path("/")).numbers(cgroup.path)}
            burst = {} if UNIFIED else {"burst": cgroup.file(BURST).read_text().strip()}
            return {**threads, **burst, "limits": limits.read_text().strip()}

        def limit(read_bps: int) -> str:
            words = f"rbps={read_bps} wbps=max riops=max wiops=max" if UNIFIED else str(read_bps)
            return f"{disk.number} {words}"

        def has(kind: Any) -> Desired:  # noqa: ANN401 (fields of ContainerControls)
            return Desired(containers={"c": ContainerControls(cgroup=cgroup.path, **kind)})

        def throttled(read_bps: int) -> dict[str, BlockIo]:
            return {"block_io": BlockIo(throttles=(Throttle(devices=(disk.path,), read_bps=read_bps),))}

        threads = [name for name in contents() if name.isdigit()]
        assert len(threads) == 2
        pid, batch = program.pid, Attributes(Policy(3), nice=5)
        kinds: dict[str, tuple[tuple[Any, Any], tuple[Changes, Changes], Callable[[], object]]] = {
            "scheduling": (
                ({"scheduling": Scheduling(policy="batch", nice=5)}, {"scheduling": Scheduling(policy="idle")}),
                (dict.fromkeys(threads, f"{batch}"), dict.fromkeys(threads, f"{Attributes(Policy(5))}")),
                lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
            ),
            "blockIO": (
                (throttled(MIB), throttled(2 * MIB)),
                ({"limits": limit(MIB)}, {"limits": limit(2 * MIB)}),
                lambda: limits.write_text(f"{disk.number} rbps=7" if UNIFIED else f"{disk.number} 7"),
            ),
            "burst": (
                ({"burst_us": 20_000}, {"burst_us": 40_000}),
                ({"burst": "20000"}, {"burst": "40000"}),
                lambda: cgroup.file(BURST).write_text("0"),
            ),
        }
        desired, expected, disturb = kinds[kind]
        first, second = map(has, desired)
        yield Life(root=Path("/"), desired=(first, second), expected=expected, contents=contents, disturb=disturb)


IN_A_CGROUP = ("scheduling", "blockIO", "burst")


@pytest.fixture
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    """One of each kind."""
    if request.param in ON_FILES:
        yield on_files(request.param, tmp_path)
        return
    if request.param == "burst" and UNIFIED:
        pytest.skip("with cgroup v2, the runtime writes it")
    with in_a_cgroup(request.param, tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    "life", [*ON_FILES, *(pytest.param(kind, marks=needs_root) for kind in IN_A_CGROUP)], indirect=True
)
async def test_a_kind_is_given_changed_kept_repaired_and_taken_back(life: Life, tmp_path: Path) -> None:
    """And after another kill, ``--put-back`` alone takes it back: nothing is left of it either time."""
    before = life.contents()
    (first, second), (has_first, has_second) = life.desired, life.expected

    async with Service(tmp_path, life.root, "tests.controls.modelled") as service:
        assert not (await service.apply(first)).get("troubles")
        assert life.changed(before) == has_first
        assert not (await service.apply(second)).get("troubles")
        await until(lambda: life.changed(before) == has_second)  # a group of resctrl goes at the next look

        await killed(service)
        await service.spawn()
        await service.message("READY=1")
        assert life.changed(before) == has_second, "before a map comes, all stays"
        assert not (answer := await service.apply(second)).get("troubles")
        assert not answer.get("drift")
        assert life.changed(before) == has_second

        life.disturb()
        await until(lambda: life.changed(before) == has_second)
        await until(lambda: has_drift(service))

        assert not (await service.apply(NOTHING_DESIRED)).get("troubles")
        await until(lambda: not life.changed(before))

        await service.apply(first)
        assert life.changed(before) == has_first
        await killed(service)
        assert await service.put_back() == (0, "")
        assert life.changed(before) == {}


async def killed(service: Service) -> None:
    """Kill the program."""
    service.signal(signal.SIGKILL)
    await service.exit_status()
    service.forget()


async def has_drift(service: Service) -> bool:
    """Whether the program has noticed that somebody else changed something."""
    return bool((await service.client.ask("status", {}))["drift"])
