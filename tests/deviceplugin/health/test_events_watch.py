"""The program that tells of NVML's events, whatever becomes of it."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from criproxy.deviceplugin.health import nvml_events
from criproxy.deviceplugin.health.events_watch import EventsWatch
from criproxy.deviceplugin.health.nvml_events import Registered, watch
from criproxy.deviceplugin.nvidia.xids import Event
from criproxy.process.tasks import Backoff
from tests.deviceplugin.hosts import a100, t4
from tests.deviceplugin.news import News, poll, running
from tests.deviceplugin.node import Log
from tests.nvml import Driver
from tests.nvml import Library as Nvml

LIMIT_S = 60.0


class Watched(News):
    """What an `EventsWatch` tells, as it comes."""

    def __init__(self, command: Iterable[str], silence_timeout_s: float = LIMIT_S) -> None:
        super().__init__()
        self.log = Log()
        self.told: list[Registered | Event] = []
        self.watch = EventsWatch(tuple(command), self._tell, self._tell, self.log, silence_timeout_s)
        self.watch.first_s = silence_timeout_s
        self.watch._backoff = Backoff(0.01, 0.05)

    def _tell(self, what: Registered | Event) -> None:
        self.told.append(what)
        self.wake()


@asynccontextmanager
async def watching(watched: Watched, gpus: tuple[str, ...] = ("GPU-0",)) -> AsyncIterator[Watched]:
    """Run it."""
    watched.watch.use(gpus)
    async with running(watched.watch.run()):
        yield watched


def program(text: str) -> tuple[str, ...]:
    """Return a command that runs *text*."""
    return ("/bin/sh", "-c", text)


async def test_what_it_says_is_told() -> None:
    """Each event once, with its place, and which GPUs have MIG; lines that only say that it lives are none."""
    first, alive = '{"registered": {"gpus": ["GPU-0"]}}', '{"alive": true}'
    lines = (first, alive, '{"mig": {"GPU-0": true}}', '{"event": {"gpu": "GPU-0", "xid": 79}}')
    modes: list[Mapping[str, bool]] = []
    made = Watched(program(f"printf '%s\\n' {' '.join(map(repr, lines))}; sleep 1000"))
    made.watch.on_mig = modes.append
    async with watching(made) as watched:
        await watched.until(lambda: len(watched.told) == 2)

    assert watched.told == [Registered(gpus=("GPU-0",)), Event(gpu="GPU-0", xid=79)]
    assert modes == [{"GPU-0": True}]
    assert watched.watch.problem == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("""echo '{"problem": "NVML: Driver Not Loaded"}'""", "NVML: Driver Not Loaded", id="says-why"),
        pytest.param("echo nonsense", "printed an invalid line", id="nonsense"),
        pytest.param("""echo '{"event": {"gpu": 3}}'""", "printed an invalid line", id="another-form"),
    ],
)
async def test_why_there_are_no_events_is_told_once(text: str, reason: str, tmp_path: Path) -> None:
    """It is started again and again meanwhile."""
    count = tmp_path / "count"
    async with watching(Watched(program(f"echo >> {count}; {text}"))) as watched:
        await watched.log.until(lambda: any(reason in str(line) for line in watched.log.lines))
        await poll(lambda: len(count.read_text()) >= 3)

    assert sum(reason in str(line) for line in watched.log.lines) == 1


async def test_one_that_is_silent_is_replaced(tmp_path: Path) -> None:
    """It is killed, and the next one is heard."""
    pid = tmp_path / "pid"
    hangs = f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 1000"  # on a slow machine, another one after this one
    text = f"""if [ ! -e {pid} ]; then {hangs}; fi; echo '{{"registered": {{}}}}'; sleep 1000"""
    async with watching(Watched(program(text), silence_timeout_s=0.3)) as watched:
        await watched.until(lambda: bool(watched.told))
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
        assert "NVML events are not received" in str(watched.log.lines[0])


async def test_it_runs_only_while_there_are_gpus(tmp_path: Path) -> None:
    """Other GPUs mean another program; none mean none."""
    text = f"""echo $$ >> {tmp_path}/pids; echo '{{"registered": {{}}}}'; sleep 1000"""
    async with watching(Watched(program(text)), gpus=()) as watched:
        watched.watch.use(["GPU-0"])
        await watched.until(lambda: len(watched.told) == 1)
        watched.watch.use(["GPU-0"])
        watched.watch.use(["GPU-0", "GPU-1"])
        await watched.until(lambda: len(watched.told) == 2)

    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class Enough(Exception):
    """Ends a program that would go on."""


def test_a_wait_for_events_that_fails_says_nothing_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs are looked at all the same, and events are waited for again."""
    library = Nvml(lambda: Driver(gpus=(t4(0), t4(1)), lost=(1,)))
    library.nvmlEventSetWait_v2 = lambda *_: 999  # type: ignore[method-assign]
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(nvml_events, "PAUSE_S", 0.0)
    told: list[tuple[str, object]] = []

    def tell(key: str, value: object) -> None:
        told.append((key, value))
        if len(told) == 6:
            raise Enough

    with pytest.raises(Enough):
        watch(pynvml, tell)
    registered, cards = ("registered", Registered(gpus=("GPU-0",))), ("cards", {"GPU-0": ""})
    assert told == [registered, cards, ("unheard", "NVML: Unknown Error"), registered, cards, told[2]]


def test_the_program_tells_of_mig_that_is_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each change, also of a GPU that fails meanwhile; GPUs that do not know MIG are not named."""
    on, off = replace(a100(0), mig_enabled=True), a100(0)
    drivers = [Driver(gpus=(gpu, t4(1)), lost=lost) for gpu, lost in ((off, ()), (off, ()), (on, (0,)), (on, ()))]
    library = Nvml(lambda: drivers[0])

    def wait() -> int:
        if len(drivers) == 1:
            raise Enough
        del drivers[0]
        library._driver = drivers[0]
        return int(pynvml.NVML_ERROR_TIMEOUT)

    library.nvmlEventSetWait_v2 = lambda *_: wait()  # type: ignore[method-assign]
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    told: list[tuple[str, object]] = []
    with pytest.raises(Enough):
        watch(pynvml, lambda key, value: told.append((key, value)))

    assert [value for key, value in told if key == "mig"] == [{"GPU-0": False}, {"GPU-0": True}]
