"""The program with its socket: on files of this machine, killed, stopped, and asked in hostile ways."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.controls.serve import MOST_CLIENTS
from criproxy.model.controls import ContainerControls, CpuTuning, Desired, IrqClaim, Irqs
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.text.plain import to_plain
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from tests.conftest import ROOT
from tests.controls.trees import CPUS, Tree
from tests.daemons import LIMIT_S, Process, until
from tests.disks import fill, free, small_disk
from tests.kernel_files import changing_this_machine

POLICY = f"{CPUS}/cpufreq/policy"
GOLD = Desired(cpus={"gold": "1"}, tunings={"gold": CpuTuning(governor="performance")})


class Service(Process):
    """`criproxy controls` with everything below one folder; *root* is its machine, *module* has the program."""

    def __init__(self, folder: Path, root: Path, module: str = "criproxy") -> None:
        self.socket, self.state = folder / "controls.sock", folder / "state"
        self.options = ("--state-dir", str(self.state), "--host-root", str(root))
        self._module = module
        command = "-P", "-m", module, "controls", "--socket", str(self.socket), *self.options
        super().__init__(folder, "controls", *command)
        self.client = ControlClient(str(self.socket), LIMIT_S)
        self._generation = 0

    async def __aexit__(self, *_: object) -> None:
        """Close the connection, too."""
        self.client.close()
        await super().__aexit__(*_)

    async def apply(self, desired: Desired) -> Mapping[str, Any]:
        """Send everything; return how it is when all is applied."""
        self._generation += 1
        answer = await self.client.ask("apply", {"generation": self._generation, "desired": to_plain(desired)})
        assert answer["generation"] == self._generation
        return dict(await until(self.applied) if answer.get("pending") else answer)

    async def applied(self) -> Mapping[str, Any] | None:
        """Return the status when all is applied."""
        answer = await self.client.ask("status", {})
        return None if answer.get("pending") else dict(answer)

    async def is_well(self) -> bool:
        """Whether all is applied without any trouble."""
        return (status := await self.applied()) is not None and not status.get("troubles")

    async def put_back(self) -> tuple[int, str]:
        """Run ``--put-back``; return its exit status and what it prints."""
        command = (sys.executable, "-P", "-m", self._module, "controls", "--put-back", *self.options)
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, text = await process.communicate()
        return process.returncode or 0, text.decode()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine with two CPUs and two interrupts."""
    tree = Tree(tmp_path / "host")
    tree.irqs(2, 2)
    tree.cpus(2)
    return tree


@pytest.fixture
async def service(tmp_path: Path, tree: Tree) -> AsyncIterator[Service]:
    """The program on that machine."""
    async with Service(tmp_path, tree.root) as service:
        yield service


# ---------------------------------------------------------------- this machine


@pytest.fixture
def files() -> Iterator[dict[Path, str]]:
    """The interrupts and idle states of this machine, with what they have; they are restored in any case."""
    with changing_this_machine() as files:
        yield files


def now(files: Mapping[Path, str]) -> dict[Path, str]:
    """What they have now."""
    return {path: path.read_text() for path in files}


@dataclass(frozen=True)
class Machine:
    """The CPUs of this machine, the last of which shall be quiet, and an interrupt that belongs there."""

    online: frozenset[int]
    irq: str

    @property
    def quiet(self) -> int:
        """The quiet CPU."""
        return max(self.online)

    @property
    def desired(self) -> Desired:
        """All interrupts but one on other CPUs, and only idle states without latency."""
        others = format_cpuset(self.online - {self.quiet})
        irqs = Irqs(cpus=others, claims=(IrqClaim(names=(self.irq,), cpus=str(self.quiet)),))
        return Desired(cpus={"quiet": str(self.quiet)}, tunings={"quiet": CpuTuning(max_latency_us=0)}, irqs=irqs)

    def check(self, files: Mapping[Path, str], immovable: int) -> None:
        """Compare what the files have now."""
        lists = {path.parent.name: now({path: ""})[path] for path in files if path.name == "smp_affinity_list"}
        assert lists[self.irq].strip() == str(self.quiet)
        moved = [number for number, text in lists.items() if parse_cpuset(text) <= self.online - {self.quiet}]
        assert len(moved) + 1 + immovable == len(lists)
        mask = int(Path("/proc/irq/default_smp_affinity").read_text().replace(",", ""), 16)
        assert mask == sum(1 << cpu for cpu in self.online - {self.quiet})
        for path in (path for path in files if path.name == "disable" and f"cpu{self.quiet}/" in str(path)):
            is_slow = int((path.parent / "latency").read_text()) > 0
            assert (path.read_text().strip() == "1") == (is_slow or files[path].strip() == "1")


@pytest.fixture
def machine(files: dict[Path, str]) -> Machine:
    """This machine."""
    online = parse_cpuset(Path("/sys/devices/system/cpu/online").read_text())
    if len(online) == 1:
        pytest.skip("with one CPU, interrupts have no choice")
    movable = []
    for path in (path for path in files if path.name == "smp_affinity_list"):
        with suppress(OSError):
            path.write_text(files[path])
            movable.append(path.parent.name)
    return Machine(online, movable[0])


async def test_this_machine_gets_what_is_desired_and_has_again_what_it_had(
    tmp_path: Path, machine: Machine, files: dict[Path, str]
) -> None:
    """Interrupts, those to come, and idle states; over a kill, and file by file."""
    async with Service(tmp_path, Path("/")) as service:
        assert not (await service.apply(machine.desired)).get("troubles")
        status = await service.client.ask("status", {})
        machine.check(files, status["files"]["immovable"])
        changed = now(files)
        service.signal(signal.SIGKILL)
        await service.exit_status()
    assert now(files) == changed

    async with Service(tmp_path, Path("/")) as service:
        assert now(files) == changed, "before a map comes, all stays"
        assert not (await service.apply(replace(machine.desired, irqs=None))).get("troubles")
        assert not (await service.apply(Desired())).get("troubles")
        assert now(files) == files


async def test_put_back_needs_no_daemon(tmp_path: Path, files: dict[Path, str]) -> None:
    """After a kill, ``--put-back`` alone restores this machine; while the program serves, it refuses."""
    async with Service(tmp_path, Path("/")) as service:
        await service.apply(Desired(irqs=Irqs(cpus="0")))
        status, text = await service.put_back()
        assert (status, "stop it first" in text) == (1, True)
        service.signal(signal.SIGKILL)
        await service.exit_status()
        assert now(files) != files
        assert await service.put_back() == (0, "")
        assert now(files) == files
        assert await service.put_back() == (0, "")


# ---------------------------------------------------------------- crashes and hangs


async def test_no_kill_between_two_steps_loses_what_was_there_before(tmp_path: Path) -> None:
    """Before each step of two maps on a disk; whatever was changed by then, all files are put back."""
    command = (sys.executable, "-P", "-m", "tests.controls.killed", str(tmp_path))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    text, _ = await process.communicate()
    steps = [json.loads(line) for line in text.splitlines()]

    assert process.returncode == 0
    assert [step["step"] for step in steps if step["wrong"]] == []
    assert [step["killed"] for step in steps] == [True] * (len(steps) - 1) + [False]
    assert len({step["changed"] for step in steps}) > 4, "the kills met it in the middle of its work"


async def test_with_a_full_disk_containers_are_pending(tmp_path: Path, tree: Tree) -> None:
    """Until there is space: the daemon does not take them for applied."""
    one = Desired(containers={"one": ContainerControls(cgroup="/one", burst_us=10)})
    with small_disk(tmp_path / "state") as disk:
        async with Service(tmp_path, tree.root) as service:
            fill(disk)
            arguments = {"generation": 1, "desired": to_plain(one)}

            async def has_troubles() -> bool:
                return bool((await service.client.ask("apply", arguments)).get("troubles"))

            await until(has_troubles)
            assert (await service.client.ask("status", {}))["pending"]
            free(disk)
            assert not (await service.apply(one)).get("troubles")


async def test_stopped_it_answers_when_it_goes_on(service: Service, tree: Tree) -> None:
    """SIGSTOP: the client waits as long as it wants, nothing is lost, and all is applied afterwards."""
    await service.apply(GOLD)
    service.signal(signal.SIGSTOP)
    hasty = ControlClient(str(service.socket), 0.1)
    with pytest.raises(NoDaemon, match="did not answer within"):
        await hasty.ask("apply", {"generation": 7, "desired": {}})
    service.signal(signal.SIGCONT)

    await until(lambda: tree.get(f"{POLICY}1/scaling_governor") == "powersave")
    assert not (await service.apply(GOLD)).get("troubles")
    assert tree.get(f"{POLICY}1/scaling_governor") == "performance"


async def test_a_file_that_hangs_is_named_and_keeps_no_other_waiting(service: Service, tree: Tree) -> None:
    """The answer comes at once, other files and containers get their values, and when it goes on, it gets its own."""
    pipe = tree.root / POLICY[:-6] / "policy0/scaling_governor"
    pipe.unlink()
    os.mkfifo(pipe)
    desired = Desired(cpus={"gold": "0-1"}, tunings=GOLD.tunings, irqs=Irqs(cpus="0"))

    begin_s = asyncio.get_running_loop().time()
    await service.client.ask("apply", {"generation": 1, "desired": to_plain(desired)})
    assert asyncio.get_running_loop().time() - begin_s < LIMIT_S / 2
    await until(lambda: tree.get(f"{POLICY}1/scaling_governor") == "performance")
    await until(lambda: tree.get("proc/irq/24/smp_affinity_list") == "0")
    (trouble,) = (await until(service.applied))["troubles"]
    assert f"{pipe} has not answered for" in trouble["text"]

    driver = os.open(pipe, os.O_RDWR)
    pipe.unlink()
    tree.put(f"{POLICY}0/scaling_governor", "powersave")
    os.write(driver, b"powersave\n")
    await until(service.is_well)
    os.close(driver)
    assert pipe.read_text() == "performance\n"


# ---------------------------------------------------------------- the socket


@asynccontextmanager
async def connected(service: Service) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of another client."""
    reader, writer = await asyncio.open_unix_connection(str(service.socket))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_only_root_connects(service: Service) -> None:
    """The socket is closed to all others before it listens."""
    assert stat.S_IMODE(service.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(service.state.stat().st_mode) == 0o700


def first(**cgroups: str) -> dict[str, Any]:
    """A first map with containers that have these cgroups."""
    return {"generation": 1, "desired": {"containers": {name: {"cgroup": path} for name, path in cgroups.items()}}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({}, "generation is missing", id="nothing"),
        pytest.param({"generation": "1", "desired": {}}, "generation must be of the kind int", id="generation"),
        pytest.param({"generation": 1, "desired": []}, "Desired must be a dict", id="no-map"),
        pytest.param({"generation": 1, "desires": {}}, "apply has no argument 'desires'", id="strange"),
        pytest.param({"generation": 1}, "Changes.after is missing", id="neither"),
        pytest.param({"generation": 1, "desired": {"irqs": {}}}, "Desired.irqs.cpus is missing", id="irqs"),
        pytest.param({"generation": 1, "desired": {"cpus": {"a": 3}}}, "Desired.cpus.a must be", id="cpus"),
        pytest.param(first(a="/kubepods/../../etc"), "'/kubepods/../../etc' is not the path of a", id="elsewhere"),
        pytest.param(first(a=""), "'' is not the path", id="root-cgroup"),
        pytest.param(first(**{"../a": "a"}), "is not the path", id="strange-id"),
        pytest.param(first(**{str(n): "a" for n in range(20_001)}), "20001 containers are too many", id="too-many"),
    ],
)
async def test_a_wrong_request_changes_nothing(
    service: Service, tree: Tree, arguments: dict[str, Any], expected: str
) -> None:
    """Its sender hears what is wrong, and the next request is answered."""
    await service.apply(GOLD)
    before = tree.contents()

    with pytest.raises(DaemonRefuses, match=expected.replace("(", r"\(")) as raised:
        await service.client.ask("apply", arguments)
    assert raised.value.wrong
    assert tree.contents() == before
    assert (await service.client.ask("status", {}))["generation"] == 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(b"{\n", id="half"),
        pytest.param(b"\xff\n", id="bytes"),
        pytest.param(b'{"command": ["apply"]}\n', id="list"),
        pytest.param(b'{"command": "apply", "arguments": [[[]]]}\n', id="arguments"),
        pytest.param(b"[" * 100_000 + b"\n", id="deep"),
        pytest.param(b"x" * (9 << 20), id="endless"),
        pytest.param(b"\n" * 1000, id="empty"),
    ],
)
async def test_no_bytes_stop_it(service: Service, lines: bytes) -> None:
    """Whoever may connect can send what he wants; others are answered."""
    async with connected(service) as (reader, writer):
        with suppress(ConnectionError):
            writer.write(lines)
            await writer.drain()
            await reader.readline()

    assert (await service.client.ask("status", {}))["generation"] == 0


async def test_idle_clients_are_turned_away(service: Service) -> None:
    """Beyond a few; those that are there are answered."""
    await service.client.ask("status", {})
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(connected(service)) for _ in range(20)]
        ended = [asyncio.ensure_future(reader.read(1)) for reader, _ in others]
        await until(lambda: sum(each.done() for each in ended) >= 20 - MOST_CLIENTS)

        assert (await service.client.ask("status", {}))["generation"] == 0
        for each in ended:
            each.cancel()


async def test_changes_need_what_they_change(service: Service, tree: Tree) -> None:
    """Who sends changes of another generation has to send everything; a layout is replaced as a whole."""
    await service.apply(GOLD)

    async def ask(**arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401 (JSON)
        return dict(await service.client.ask("apply", arguments))

    assert (await ask(generation=9, after=8, gone=["x"]))["needs_whole"]
    answer = await ask(generation=2, after=1, layout=to_plain(Desired(irqs=Irqs(cpus="1"))))
    assert (answer["generation"], "needs_whole" in answer) == (2, False)
    await until(lambda: tree.get(f"{POLICY}1/scaling_governor") == "powersave")
    await until(lambda: tree.get("proc/irq/25/smp_affinity_list") == "1")
    await ask(generation=3, after=2, layout={})
    await until(lambda: tree.get("proc/irq/25/smp_affinity_list") == "0-1")


async def test_a_second_one_does_not_start(service: Service) -> None:
    """Both would put back what the other has set."""
    command = (sys.executable, "-P", "-m", "criproxy", "controls", "--socket", f"{service.socket}2", *service.options)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, text = await process.communicate()

    assert process.returncode == 1
    assert b"criproxy controls runs already" in text


async def test_it_tells_systemd_how_it_is(service: Service) -> None:
    """Ready at the start, what is wrong after a heartbeat, and that it stops; it leaves no socket."""
    assert "STATUS=waits for the daemon" in service.said
    await service.apply(Desired(cpus=GOLD.cpus, tunings={"gold": CpuTuning(governor="ondemand")}))

    lines = await service.message("STATUS=1 troubles, such as: cpus: class gold")
    assert "has performance, powersave" in lines[0]
    assert "governor 'ondemand' is not possible there" in service.log.read_text()
    assert await service.stop() == 0
    assert not service.socket.exists()
