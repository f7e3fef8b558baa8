"""Cards that fail and recover, as the kubelet, the daemon and the log of `criproxy device-plugin` see them."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from criproxy.api.control_socket import ControlServer
from criproxy.wire.sockets import listen
from tests.deviceplugin.fake_nvml import FakeNvml
from tests.deviceplugin.kubelet import PATIENT_S, Pod
from tests.deviceplugin.program import NPU, Program, policy
from tests.nvml import Driver

GPU = "nvidia.com/gpu"
FIRST, SECOND = "GPU-491287c9-bc95-b926-a488-9503064e72a0", "GPU-491287ca-bc95-b926-a488-9503064e72a1"
"""The cards of p100.txt."""
Nvml = Callable[[str], FakeNvml]


class Daemon:
    """Keeps what the device plugin tells the daemon on its control socket."""

    def __init__(self, socket: Path, lacks: Collection[str] = (), **answers: Any) -> None:  # noqa: ANN401
        self.lacks = lacks
        """The commands that it does not know, because it is older."""
        self.answers = answers
        """By command, with ``_`` for ``-``."""
        self.hangs = False
        """Whether no command is answered any more."""
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self._socket = socket
        self._news = asyncio.Event()

    async def start(self) -> ControlServer:
        """Listen from now on."""
        commands = ("free-cpus", "device-plugin", "device-inventory", "device-incident")
        server = ControlServer({name: self._command(name) for name in commands if name not in self.lacks})
        await server.start(listen(str(self._socket), 0o600).sock)
        return server

    def _command(self, name: str) -> Any:  # noqa: ANN401
        async def answer(arguments: Mapping[str, Any]) -> dict[str, Any]:
            self.told.append((name, arguments))
            self._news.set()
            if self.hangs:
                await asyncio.Event().wait()
            answer: dict[str, Any] = self.answers.get(name.replace("-", "_"), {})
            return answer

        return answer

    def incidents(self) -> list[Mapping[str, Any]]:
        """All so far."""
        return [arguments for name, arguments in self.told if name == "device-incident"]

    def asked(self, name: str) -> int:
        """How often a command has come."""
        return sum(command == name for command, _ in self.told)

    async def until_asked(self, name: str, times: int) -> None:
        """Return when a command has come so many times."""
        async with asyncio.timeout(PATIENT_S):
            while self.asked(name) < times:
                await self._news.wait()
                self._news.clear()

    async def until_incidents(self, count: int) -> list[Mapping[str, Any]]:
        """Return all when there are so many."""
        async with asyncio.timeout(PATIENT_S):
            while len(self.incidents()) < count:
                await self._news.wait()
                self._news.clear()
        return self.incidents()

    async def until_report(self, wanted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Return a report on what is offered, when there is one as *wanted*."""
        async with asyncio.timeout(PATIENT_S):
            while not (found := [each for name, each in self.told if name == "device-inventory" and wanted(each)]):
                await self._news.wait()
                self._news.clear()
        return found[-1]


async def gpus(program: Program, nvml: FakeNvml, section: str) -> None:
    """Start a program with two GPUs whose events are watched, each in two replicas."""
    program.policy.write_text(policy(section))
    await program.kubelet.start()
    await program.ready()
    await program.kubelet.until_capacity(GPU, 4)
    await nvml.until_watched(2)


async def test_an_xid_error_makes_all_replicas_unhealthy(folder: Path, fake_nvml: Nvml) -> None:
    """They are healthy again after the hold-down, and the daemon is told of both, whenever it comes."""
    sharing = "sharing: [{resource: nvidia.com/gpu, replicas: 2}]"
    section = f"{{advertise: [nvidia], {sharing}, health: {{holdDown: %s, onUnhealthy: stop}}}}"
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        await gpus(program, nvml, section % "1h")
        nvml.xid(1, 31)  # one that a program causes by itself
        nvml.xid(1, 79)
        await program.kubelet.until_capacity(GPU, 4, healthy=2)

        assert program.kubelet.unhealthy(GPU) == {f"{SECOND}::0", f"{SECOND}::1"}
        await program.until_said("a card is unhealthy")
        assert program.said("a card is unhealthy") == 1
        daemon = Daemon(program.control)
        server = await daemon.start()
        (incident,) = await daemon.until_incidents(1)
        assert incident["device_class"] == "nvidia"
        assert incident["card"] == SECOND
        assert (incident["healthy"], incident["reason"], incident["action"]) == (False, "XID 79", "stop")
        program.policy.write_text(policy(section % "10ms"))  # only now, however long all this has taken
        await program.kubelet.until_capacity(GPU, 4)
        assert (await daemon.until_incidents(2))[1]["healthy"]
        await server.stop()


async def test_a_gpu_that_falls_off_the_bus_is_unhealthy(folder: Path, fake_nvml: Nvml) -> None:
    """NVML cannot describe it any more: its replicas stay listed, and the log has NVML's reason."""
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        await gpus(program, nvml, "{advertise: [nvidia], sharing: [{resource: nvidia.com/gpu, replicas: 2}]}")
        nvml.say("lost 1")
        program.host.unplug("/dev/nvidia1")
        await program.kubelet.until_capacity(GPU, 4, healthy=2)

        assert program.kubelet.unhealthy(GPU) == {f"{SECOND}::0", f"{SECOND}::1"}
        await program.until_said("GPU is lost")


async def test_the_daemon_is_told_what_is_offered(folder: Path, fake_nvml: Nvml) -> None:
    """The report names resources, ids and cards; the incident is told at once where the daemon runs."""
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        daemon = Daemon(program.control)
        server = await daemon.start()
        await gpus(program, nvml, "{advertise: [nvidia], sharing: [{resource: nvidia.com/gpu, replicas: 2}]}")
        nvml.xid(0, 79)
        (incident,) = await daemon.until_incidents(1)

        assert incident["reason"] == "XID 79"
        assert incident["action"] == "none"
        registered = {"name": GPU, "device_class": "nvidia", "ids": 4, "healthy": 2}
        report = await daemon.until_report(lambda report: _bad(report) and report["resources"] == [registered])
        assert [card["id"] for card in report["cards"]] == [FIRST, SECOND]
        assert report["cards"][0]["replicas"] == {GPU: 2}
        await server.stop()


def _bad(report: Mapping[str, Any]) -> bool:
    return any(not card.get("healthy", True) for card in report.get("cards", ()))


async def test_a_health_command_judges_cards(folder: Path) -> None:
    """Cards that it names are unhealthy; where it fails or hangs, all of its class are, until it works again."""
    check = folder / "check"
    _script(check, "echo 'npu1 too hot'; echo 'npu9 unknown'")
    health = f"{{holdDown: 10ms, commands: [{{class: ali-npu, command: [{check}], period: 2s, timeout: 2s}}]}}"
    async with Program(folder) as program:
        program.policy.write_text(policy(f"{{advertise: [ali-npu], health: {health}}}"))
        for number in range(3):
            program.host.plug(f"/dev/npu{number}")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 3, healthy=2)
        assert program.kubelet.unhealthy(NPU) == {"npu1"}
        await program.until_said("too hot")

        _script(check, "exit 3")
        await program.kubelet.until_capacity(NPU, 3, healthy=0)
        await program.until_said("exited with exit status 3")
        _script(check, "")
        await program.kubelet.until_capacity(NPU, 3)


async def test_no_card_is_healthy_before_its_health_command_has_answered(folder: Path) -> None:
    """Also after a restart, and a new one: the command runs for it at once, whatever its period."""
    check = folder / "check"
    os.mkfifo(folder / "answer")
    _script(check, f"cat {folder}/answer")
    health = f"{{commands: [{{class: ali-npu, command: [{check}], period: 1h, timeout: 10m}}]}}"
    async with Program(folder) as program:
        program.policy.write_text(policy(f"{{advertise: [ali-npu], health: {health}}}"))
        for number in range(2):
            program.host.plug(f"/dev/npu{number}")
        await program.kubelet.start()
        for _ in range(2):
            program.told.clear()
            await program.ready()
            await program.kubelet.until_capacity(NPU, 2, healthy=0)
            await asyncio.to_thread((folder / "answer").write_text, "npu1 bad\n")
            await program.kubelet.until_capacity(NPU, 2, healthy=1)
            assert program.kubelet.healthy(NPU) == {"npu0"}
            program.signal(SIGTERM)
            await program.ended()
            await program.kubelet.until(lambda: program.kubelet.capacity(NPU)[1] == 0)

        program.told.clear()
        await program.ready()
        await asyncio.to_thread((folder / "answer").write_text, "")
        await program.kubelet.until_capacity(NPU, 2)
        program.host.plug("/dev/npu2")
        await program.kubelet.until_capacity(NPU, 3, healthy=2)
        await asyncio.to_thread((folder / "answer").write_text, "")
        await program.kubelet.until_capacity(NPU, 3)


async def test_a_health_command_that_hangs_is_ended(folder: Path) -> None:
    """No card of its class is healthy; the program goes on, and ends as fast as ever."""
    check = folder / "check"
    pid = folder / "pid"
    _script(check, f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 1000")
    health = f"{{commands: [{{class: ali-npu, command: [{check}], period: 1s, timeout: 200ms}}]}}"
    async with Program(folder) as program:
        program.policy.write_text(policy(f"{{advertise: [ali-npu], health: {health}}}"))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 1, healthy=0)
        await program.until_said("did not finish within 0.2 s")
        async with asyncio.timeout(PATIENT_S):
            while not pid.exists():  # noqa: ASYNC110 (one may have been ended before it had written it)
                await asyncio.sleep(0.05)
        assert program.process is not None
        program.process.terminate()

        assert await program.ended() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


async def test_what_a_health_command_leaves_behind_ends_with_it(folder: Path) -> None:
    """Also where it has left its group, its session and its parent; and the command counts as it ended."""
    check = folder / "check"
    _script(check, f"(setsid sleep 1000 & echo $! >> {folder}/pids); echo npu1 hot")
    health = f"{{commands: [{{class: ali-npu, command: [{check}], period: 1h, timeout: 10m}}]}}"
    async with Program(folder) as program:
        program.policy.write_text(policy(f"{{advertise: [ali-npu], health: {health}}}"))
        for number in range(2):
            program.host.plug(f"/dev/npu{number}")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 2, healthy=1)

        (pid,) = map(int, (folder / "pids").read_text().split())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_node_that_vanishes_comes_back_after_the_hold_down(folder: Path) -> None:
    """A card that comes and goes is not offered as healthy at once."""
    async with Program(folder) as program:
        section = "{advertise: [ali-npu], health: {holdDown: %s}}"
        program.policy.write_text(policy(section % "1h"))
        program.host.plug("/dev/npu0")
        program.host.plug("/dev/npu1")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 2)

        program.host.unplug("/dev/npu1")
        await program.kubelet.until_capacity(NPU, 1)
        program.host.plug("/dev/npu1")
        await program.kubelet.until_capacity(NPU, 2, healthy=1)
        program.policy.write_text(policy(section % "10ms"))  # only now, however long all this has taken
        await program.kubelet.until_capacity(NPU, 2)

        await program.until_said("a card is healthy again")
        assert program.said("a card is unhealthy") == 1
        (again,) = [line for line in program.lines if line["event"] == "a card is healthy again"]
        assert again["was"]
        assert "reason" not in again


def _script(file: Path, text: str) -> None:
    """Put a program in place of the one that is there."""
    new = file.with_suffix(".new")
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(0o755)
    new.rename(file)


async def admit_asking(program: Program, daemon: Daemon, pod: Pod) -> None:
    """Give a pod a card, again until the daemon was asked: on a stalled machine, the plugin does not wait for it."""
    before = daemon.asked("free-cpus")
    async with asyncio.timeout(PATIENT_S):
        assert await program.kubelet.admit(pod, {NPU: 1})
        while daemon.asked("free-cpus") == before:
            program.kubelet.remove(pod)
            assert await program.kubelet.admit(pod, {NPU: 1})


async def test_the_daemon_is_asked_for_free_cpus(folder: Path) -> None:
    """A pod gets a card without the daemon, with its answer, and while it gives none."""
    async with Program(folder) as program:
        daemon = Daemon(program.control, free_cpus={"free_milli": {"0": 250, "1": 8000}})
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        for number in range(4):
            program.host.plug(f"/dev/npu{number}", f"0000:1{number}:00.0", numa_node=number // 2)
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 4)

        assert (await program.kubelet.admit(Pod("one"), {NPU: 1}))[NPU].ids == ("npu0",)
        server = await daemon.start()
        await admit_asking(program, daemon, Pod("two"))
        daemon.hangs = True
        await admit_asking(program, daemon, Pod("three"))
        await server.stop()


async def test_nvml_that_hangs_holds_up_neither_start_nor_end(folder: Path) -> None:
    """SIGTERM ends the program while it still waits for NVML."""
    async with Program(folder, driver=Driver(hangs=True)) as program:
        program.policy.write_text(policy("{advertise: [nvidia, ali-npu]}"))
        await program.kubelet.start()
        await program.start()
        await program.until(lambda: "STATUS=looking for cards" in program.told)
        assert program.process is not None
        program.process.terminate()

        assert await program.ended() == 0
        assert program.said("stopped")
