"""Files of a machine: which get which values, in an order that the kernel takes, and what they had before."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.controls import core
from criproxy.controls.core import Controls
from criproxy.controls.journal import BEFORE, Journal
from criproxy.controls.machine import files as files_module
from criproxy.controls.machine.facts import irq_names
from criproxy.controls.machine.files import in_order
from criproxy.controls.machine.kernel import cpus_mask
from criproxy.host.files import parse_mask
from criproxy.model.controls import NOTHING_DESIRED, CpuTuning, Desired, IrqClaim, Irqs
from tests.controls.trees import CPUS, KernelModel, Tree
from tests.daemons import until
from tests.disks import fill, free, small_disk

POLICY = f"{CPUS}/cpufreq/policy"
DRIVER = "intel_uncore_frequency"
UNCORE, OF_24 = f"{CPUS}/{DRIVER}", "{root}/proc/irq/24/smp_affinity_list"
LAST = "4-7"
GOLD = Desired(cpus={"gold": LAST}, tunings={"gold": CpuTuning(min_frequency="base", max_frequency="turbo")})


class Node:
    """A machine, and the program without its socket."""

    def __init__(self, folder: Path, tree: Tree | None = None) -> None:
        self.tree = tree or Tree(folder / "host")
        if not tree:
            self.tree.irqs(8, 8)
            self.tree.cpus(8)
        self.kernel = KernelModel("0-7")
        self.state = folder / "state"
        self.before = self.tree.contents()
        self._generation = 0
        self.start()

    def start(self) -> None:
        """Begin anew, as after a crash."""
        self.controls = Controls(self.tree.root, Journal.open(self.state, self.tree.root), (), self.kernel)

    async def apply(self, desired: Desired, *, look: bool = False) -> list[str]:
        """Do one pass; return the troubles."""
        self._generation += 1
        self.controls.desire(desired, self._generation)
        await self.controls._apply_layout(look)
        return [trouble.text for trouble in self.controls.answer().troubles]

    def changed(self) -> dict[str, str]:
        """What is other than at the beginning, by the end of the path."""
        top = f"{self.tree.root}/"
        after = self.tree.contents()
        assert after.keys() == self.before.keys()
        return {path.removeprefix(top): after[path].strip() for path in after if after[path] != self.before[path]}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A machine with eight CPUs and as many interrupts."""
    return Node(tmp_path)


def tuned(**tuning: Any) -> Desired:  # noqa: ANN401 (fields of CpuTuning)
    """The class gold, on CPUs 4 to 7."""
    return Desired(cpus={"gold": LAST}, tunings={"gold": CpuTuning(**tuning)})


def on(file: str, value: str, numbers: str = "4567") -> dict[str, str]:
    """The same value in a file of several policies."""
    return {f"{POLICY}{number}/{file}": value for number in numbers}


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        pytest.param(tuned(max_frequency="base"), on("scaling_max_freq", "2100000"), id="base"),
        pytest.param(tuned(min_frequency="turbo"), on("scaling_min_freq", "3500000"), id="turbo"),
        pytest.param(tuned(max_frequency="min"), on("scaling_max_freq", "800000"), id="min"),
        pytest.param(
            tuned(min_frequency="1000000", max_frequency="2000000"),
            {**on("scaling_min_freq", "1000000"), **on("scaling_max_freq", "2000000")},
            id="kHz",
        ),
        pytest.param(
            tuned(governor="performance"),
            {**on("scaling_governor", "performance"), **on("energy_performance_preference", "performance")},
            id="governor",
        ),
        pytest.param(tuned(energy_preference="power"), on("energy_performance_preference", "power"), id="preference"),
        pytest.param(tuned(energy_preference="192"), on("energy_performance_preference", "balance_power"), id="number"),
        pytest.param(
            tuned(disabled_c_states=("c6",)),
            {f"{CPUS}/cpu{cpu}/cpuidle/state2/disable": "1" for cpu in range(4, 8)},
            id="idle-state-by-name",
        ),
        pytest.param(
            tuned(max_latency_us=9),
            {f"{CPUS}/cpu{cpu}/cpuidle/state{state}/disable": "1" for cpu in range(4, 8) for state in (1, 2)},
            id="idle-states-by-latency",
        ),
        pytest.param(
            Desired(irqs=Irqs(cpus="0-3")),
            {"proc/irq/default_smp_affinity": "f"} | {f"proc/irq/{n}/smp_affinity_list": "0-3" for n in range(24, 32)},
            id="interrupts",
        ),
        pytest.param(
            Desired(
                irqs=Irqs(
                    cpus="0-6",
                    claims=(IrqClaim(names=("nic0-q2[45]",), cpus="7"), IrqClaim(names=("30", "nic0-*5"), cpus="6-7")),
                    controllable=("nic0-q2*", "30"),
                )
            ),
            {
                "proc/irq/default_smp_affinity": "7f",
                **{f"proc/irq/{n}/smp_affinity_list": "7" for n in (24, 25)},
                **{f"proc/irq/{n}/smp_affinity_list": "0-6" for n in (26, 27, 28, 29)},
                "proc/irq/30/smp_affinity_list": "6-7",
            },
            id="claims-and-what-is-controllable",
        ),
    ],
)
async def test_files_get_their_values_and_get_back_what_they_had(
    node: Node, desired: Desired, expected: dict[str, str]
) -> None:
    """Every other file stays, and after the last map all are as before, byte by byte."""
    assert await node.apply(desired) == []
    assert node.changed() == expected

    assert await node.apply(NOTHING_DESIRED) == []
    assert node.changed() == {}
    assert node.controls.is_put_back


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        pytest.param(
            tuned(min_frequency="2500000", max_frequency="2200000"),
            "class gold, CPU 4: minFreq is above maxFreq, so neither is set",
            id="crossed",
        ),
        pytest.param(
            tuned(max_frequency="9000000"),
            "class gold, CPU 4: maxFreq 9000000 kHz is not possible there (800000 to 3500000 kHz); the nearest is set",
            id="beyond-the-hardware",
        ),
        pytest.param(tuned(max_frequency="fast"), "maxFreq 'fast' is not known there: name a frequency", id="word"),
        pytest.param(
            tuned(governor="ondemand"),
            "class gold, CPU 4: governor 'ondemand' is not possible there: it has performance, powersave",
            id="governor",
        ),
        pytest.param(
            tuned(energy_preference="256"),
            "class gold, CPU 4: energyPerformancePreference '256' is not possible there: it has default, performance, "
            "balance_performance, balance_power, power",
            id="preference",
        ),
        pytest.param(tuned(governor="performance", energy_preference="power"), "Device or resource busy", id="both"),
        pytest.param(
            tuned(disabled_c_states=("C9",)),
            "class gold, CPUs 4-7: there is no idle state 'C9'; it has POLL, C1E, C6",
            id="idle-state",
        ),
        pytest.param(tuned(uncore_max_khz=1), f"machine has no uncore frequencies (the driver {DRIVER})", id="uncore"),
        pytest.param(Desired(irqs=Irqs(cpus="9")), f"cannot write '9' to {OF_24}: Invalid argument", id="offline"),
        pytest.param(Desired(irqs=Irqs(cpus="")), "interrupts: '' is no set of CPUs, or empty", id="no-cpus"),
        pytest.param(replace(GOLD, cpus={"gold": "x"}), "class gold: 'x' is no set of CPUs", id="no-cpuset"),
        pytest.param(replace(GOLD, cpus={"gold": "99"}), f"cannot read {{root}}/{CPUS}/cpu99: ", id="no-such-cpu"),
    ],
)
async def test_what_cannot_be_done_is_said_and_the_rest_is_done(node: Node, desired: Desired, expected: str) -> None:
    """With the place and the reason, and nothing is left of it afterwards."""
    tunings = {**desired.tunings, "idle": CpuTuning(governor="performance")}
    troubles = await node.apply(replace(desired, cpus={**desired.cpus, "idle": "0"}, tunings=tunings))

    assert any(expected.replace("{root}", str(node.tree.root)) in text for text in troubles), troubles
    assert node.changed()[f"{POLICY}0/scaling_governor"] == "performance"
    await node.apply(NOTHING_DESIRED)
    assert node.changed() == {}


@given(
    current=st.tuples(st.integers(800, 3500), st.integers(800, 3500)).map(sorted),
    wanted=st.tuples(st.integers(800, 3500), st.integers(800, 3500)).map(sorted),
    names=st.sampled_from([("scaling_min_freq", "scaling_max_freq"), ("min_freq_khz", "max_freq_khz")]),
)
def test_no_limit_is_ever_beyond_the_other(current: list[int], wanted: list[int], names: tuple[str, str]) -> None:
    """Whatever the limits are and shall be, no step has the minimum above the maximum."""
    lower, upper = (f"/policy/{name}" for name in names)
    now, targets = dict(zip((lower, upper), current, strict=True)), dict(zip((lower, upper), wanted, strict=True))

    order = in_order({path: str(khz) for path, khz in targets.items()}, {path: str(khz) for path, khz in now.items()})

    assert sorted(order) == sorted(targets)
    for path in order:
        now[path] = targets[path]
        assert now[lower] <= now[upper]


async def test_limits_move_in_both_directions(node: Node) -> None:
    """The kernel refuses neither the way up nor the way down, nor the way back."""
    for low, high in (("800000", "900000"), ("3000000", "3400000"), ("2000000", "3000000"), ("900000", "1000000")):
        assert await node.apply(tuned(min_frequency=low, max_frequency=high)) == []
        assert node.tree.get(f"{POLICY}4/scaling_min_freq") == low
    assert await node.apply(NOTHING_DESIRED) == []
    assert node.changed() == {}


async def test_of_classes_that_share_a_policy_the_highest_is_set(tmp_path: Path) -> None:
    """And that they share it is said; also where the other CPU has no class."""
    tree = Tree(tmp_path / "pairs")
    tree.cpus(4, per_policy=2)
    node = Node(tmp_path, tree)
    desired = Desired(
        cpus={"slow": "0", "fast": "1", "alone": "2"},
        tunings={
            name: CpuTuning(max_frequency=khz)
            for name, khz in (("slow", "900000"), ("fast", "3000000"), ("alone", "1000000"))
        },
    )

    assert await node.apply(desired) == [
        "CPUs 0-1 share one frequency, and have the classes fast, slow: that of fast is set",
        "CPUs 2-3 share one frequency: that of class alone is also set for 3",
    ]
    assert node.changed() == {f"{POLICY}0/scaling_max_freq": "3000000", f"{POLICY}2/scaling_max_freq": "1000000"}


@pytest.mark.parametrize(
    ("dies", "expected"),
    [
        pytest.param(
            {"package_00_die_00": None, "package_01_die_00": None},
            {"package_00_die_00/max_freq_khz": "2000000", "package_01_die_00/max_freq_khz": "1500000"},
            id="by-die",
        ),
        pytest.param({"package_00_die_00": None, "uncore01": 1}, {"uncore01/max_freq_khz": "1500000"}, id="by-domain"),
    ],
)
async def test_the_highest_uncore_limit_of_a_die_wins(
    tmp_path: Path, dies: dict[str, int | None], expected: dict[str, str]
) -> None:
    """Of the classes that have CPUs on it."""
    tree = Tree(tmp_path / "packages")
    tree.cpus(8, packages=2)
    for name, package in dies.items():
        tree.uncore(name, package)
    node = Node(tmp_path, tree)
    desired = Desired(
        cpus={"low": "0,4", "high": "1"},
        tunings={"low": CpuTuning(uncore_max_khz=1500000), "high": CpuTuning(uncore_max_khz=2000000)},
    )

    assert await node.apply(desired) == []
    assert node.changed() == {f"{UNCORE}/{name}": khz for name, khz in expected.items()}
    assert await node.apply(NOTHING_DESIRED) == []
    assert node.changed() == {}


async def test_queues_keep_their_own_cpus_where_they_may(node: Node) -> None:
    """Only an interrupt whose CPUs are all taken goes to all others; each gets back its own."""
    for number in range(24, 32):
        node.tree.put(f"proc/irq/{number}/smp_affinity_list", number - 24)
    node.before = node.tree.contents()

    await node.apply(Desired(irqs=Irqs(cpus="0-5")))
    lists = {number: node.tree.get(f"proc/irq/{number}/smp_affinity_list") for number in range(24, 32)}
    assert lists == {24: "0", 25: "1", 26: "2", 27: "3", 28: "4", 29: "5", 30: "0-5", 31: "0-5"}
    await node.apply(Desired(irqs=Irqs(cpus="0-6")))
    assert node.tree.get("proc/irq/30/smp_affinity_list") == "6"
    await node.apply(NOTHING_DESIRED)
    assert node.changed() == {}


async def test_managed_interrupts_are_skipped_and_remembered(node: Node) -> None:
    """They are no trouble, and no pass writes to them again."""
    node.kernel.managed = {"24", "25"}

    assert await node.apply(Desired(irqs=Irqs(cpus="0-3"))) == []
    node.kernel.managed = set()
    await node.apply(Desired(irqs=Irqs(cpus="0-2")), look=True)
    assert node.tree.get("proc/irq/24/smp_affinity_list") == "0-7"
    assert (await node.controls.status({}))["files"] == {"applied": 7, "immovable": 2}


async def test_new_interrupts_are_found_and_gone_ones_forgotten(node: Node) -> None:
    """By the next look; a number that another device gets is not put back to what the former one had."""
    desired = Desired(irqs=Irqs(cpus="0-3"))
    await node.apply(desired)
    (node.tree.root / "proc/irq/24/smp_affinity_list").unlink()
    (node.tree.root / "proc/irq/24").rmdir()
    node.tree.put("proc/irq/99/smp_affinity_list", "0-7")

    assert await node.apply(desired, look=True) == []
    assert node.tree.get("proc/irq/99/smp_affinity_list") == "0-3"
    node.tree.put("proc/irq/24/smp_affinity_list", "5")
    await node.apply(NOTHING_DESIRED)
    assert node.tree.get("proc/irq/24/smp_affinity_list") == "5"
    assert node.tree.get("proc/irq/99/smp_affinity_list") == "0-7"


async def test_drift_is_shown_and_repaired(node: Node) -> None:
    """But where others choose among the same CPUs, as irqbalance does, it is none."""
    await node.apply(replace(GOLD, irqs=Irqs(cpus="0-3")))
    node.tree.put("proc/irq/24/smp_affinity_list", "5")
    node.tree.put("proc/irq/25/smp_affinity_list", "2")
    node.tree.put(f"{POLICY}5/scaling_min_freq", "800000")
    node.kernel.writes.clear()

    assert await node.apply(replace(GOLD, irqs=Irqs(cpus="0-3")), look=True) == []
    assert node.kernel.writes == [("smp_affinity_list", "0-3"), ("scaling_min_freq", "2100000")]
    status = await node.controls.status({})
    repaired = [(each["path"].rpartition("/")[2], each["found"]) for each in status["repaired"]]
    assert (status["drift"], repaired) == (2, [("smp_affinity_list", "5"), ("scaling_min_freq", "800000")])


async def test_drift_is_looked_at_on_a_timer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask."""
    monkeypatch.setattr(core, "LOOK_S", 0.001)
    await node.apply(GOLD)
    node.tree.put(f"{POLICY}4/scaling_min_freq", "900000")
    running = [asyncio.create_task(each()) for each in (node.controls.look, node.controls.layout_passes.run)]
    await until(lambda: node.tree.get(f"{POLICY}4/scaling_min_freq") == "2100000")
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def test_who_keeps_changing_a_file_is_opposed_less_and_less(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double, the file is named, and when it is left alone, all is well again."""
    now_s = 1000.0
    monkeypatch.setattr(files_module, "monotonic", lambda: now_s)
    await node.apply(GOLD)
    path, repaired = f"{POLICY}4/scaling_min_freq", []
    for minute in range(40):
        now_s += 60.0
        node.tree.put(path, "900000")
        await node.apply(GOLD, look=True)
        if node.tree.get(path) == "2100000":
            repaired.append(minute)

    assert repaired == [0, 1, 3, 7, 15, 31]
    (trouble,) = [each.text for each in node.controls.answer().troubles]
    keeps = f"another program keeps writing '900000' to {node.tree.root}/{path}"
    assert trouble.startswith(f"{keeps}: it was repaired 6 times")
    now_s += 3600.0
    await node.apply(GOLD, look=True)
    now_s += 7201.0
    assert await node.apply(GOLD, look=True) == []


async def test_what_the_kernel_makes_of_a_number_is_no_drift(node: Node) -> None:
    """A preference is read as a word; it is not written again and again."""
    await node.apply(tuned(energy_preference="192"))
    node.kernel.writes.clear()

    assert await node.apply(tuned(energy_preference="192"), look=True) == []
    assert (node.kernel.writes, node.controls.answer().drift) == ([], 0)


async def test_a_file_that_fails_is_tried_again(node: Node) -> None:
    """At each look, until the kernel takes it."""
    path = f"{node.tree.root}/{POLICY}4/scaling_max_freq"
    node.kernel.failing[path] = errno.EBUSY
    for look in (False, True):
        troubles = await node.apply(tuned(max_frequency="3000000"), look=look)
        assert troubles == [f"cannot write '3000000' to {path}: Device or resource busy"]
    node.kernel.failing.clear()

    assert await node.apply(tuned(max_frequency="3000000"), look=True) == []
    assert node.changed() == on("scaling_max_freq", "3000000")


async def test_a_new_map_after_a_crash_puts_back_what_the_old_one_changed(node: Node) -> None:
    """What the last run stored counts, until a map comes nothing changes, and what is desired stays."""
    await node.apply(replace(GOLD, irqs=Irqs(cpus="0-3")))
    changed = node.changed()
    node.start()
    await node.controls._apply_layout(look=True)
    assert node.changed() == changed

    await node.apply(GOLD)
    assert node.changed() == on("scaling_min_freq", "2100000")
    await node.apply(NOTHING_DESIRED)
    assert node.changed() == {}


async def test_after_a_boot_nothing_is_put_back(node: Node) -> None:
    """The kernel has forgotten all, and numbers of interrupts are of other devices."""
    await node.apply(Desired(irqs=Irqs(cpus="0-3")))
    node.tree.put("proc/sys/kernel/random/boot_id", "second")
    node.start()

    assert node.controls.is_put_back


async def test_a_full_disk_lets_nothing_be_written(tmp_path: Path) -> None:
    """It is said, and done when there is space again; what is stored already can be written."""
    with small_disk(tmp_path / "disk") as disk:
        node = Node(tmp_path)
        node.state = disk / "state"
        node.start()
        await node.apply(tuned(governor="performance"))
        known = node.changed()
        fill(disk)
        (trouble,) = await node.apply(tuned(governor="performance", min_frequency="base"))
        assert trouble.endswith(f"{BEFORE}: No space left on device; so nothing new is written")
        assert node.changed() == known
        assert await node.apply(NOTHING_DESIRED)
        assert node.changed() == {}
        free(disk)
        assert await node.apply(tuned(min_frequency="base"), look=True) == []
        assert node.changed() == on("scaling_min_freq", "2100000")


@pytest.mark.parametrize("text", ["", "{", '{"boot": "first"}', "[]", '{"boot": "first", "values": 3}', "\xff\0"])
def test_a_damaged_journal_is_no_empty_one(tmp_path: Path, text: str) -> None:
    """What was there before is never taken for nothing: the program says which file it is."""
    node = Node(tmp_path)
    (node.state / BEFORE).write_text(text, encoding="latin-1")

    with pytest.raises(Exception, match=rf"{node.state}.* is damaged .* is not put back if you move"):
        node.start()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        pytest.param(" 24:          1          0  IO-APIC   5-edge      ACPI:Ged", ("ACPI:Ged",), id="x86"),
        pytest.param(" 24:          1          0  IR-PCI-MSI 1-edge      a, b-0", ("a", "b-0"), id="shared"),
        pytest.param(" 27:          1 4294967295     GICv3  27 Level     arch_timer", ("arch_timer",), id="arm"),
        pytest.param(" 28:          1          0  PCI-MSI 1-edge      ", (), id="no-handler"),
    ],
)
def test_names_of_interrupts_are_read(line: str, names: tuple[str, ...]) -> None:
    """Whatever the kind of the chip."""
    text = f"           CPU0       CPU1       \n{line}\nLOC:          1          2   Local timer interrupts\n"

    assert [*irq_names(text).values()] == [names]


@given(st.frozensets(st.integers(0, 600), min_size=1))
def test_masks_are_written_as_they_are_read(cpus: frozenset[int]) -> None:
    """In groups of 32 bits."""
    text = cpus_mask(cpus)

    assert parse_mask(text) == cpus
    assert all(len(group) == 8 for group in text.split(",")[1:])
