"""Programs that are started and ended."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from psutil import pid_exists

from criproxy.deviceplugin.health.health_commands import CommandFailed, HealthCommands, run_command
from criproxy.devices.plugin.plan import HealthCommand
from criproxy.process.children import Child, Entry, adopt, started_by
from tests.deviceplugin.news import running
from tests.deviceplugin.node import Log

LIMIT_S = 60.0


@pytest.fixture
def adopting() -> Iterator[None]:
    """Let this process be the parent of orphans, as the device plugin is."""
    adopt()
    yield
    adopt(orphans=False)


def command(text: str, timeout_s: float = LIMIT_S, period_s: float = LIMIT_S) -> HealthCommand:
    """Return a health command that runs *text*."""
    return HealthCommand(kind="npu", command=("/bin/sh", "-c", text), period_s=period_s, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {}, id="all-good"),
        pytest.param("echo; echo ' npu0  too   hot '; echo npu3", {"npu0": "too   hot ", "npu3": ""}, id="two"),
        pytest.param("printf 'npu0 \\377'", {"npu0": "\ufffd"}, id="no-utf-8"),
        pytest.param("head -c 1000 /dev/zero | tr '\\0' x | sed 's/^/npu0 /'", {"npu0": "x" * 200}, id="long-reason"),
        pytest.param("echo lost >&2", {}, id="messages"),
        pytest.param("echo npu0 hot; sleep 1000 &", {"npu0": "hot"}, id="leaves-something-behind"),
        pytest.param("echo npu0 hot; setsid sleep 1000 &", {"npu0": "hot"}, id="leaves-a-daemon"),
    ],
)
async def test_what_a_health_command_says(adopting: None, text: str, expected: dict[str, str]) -> None:
    """The first word of a line is the card, the rest the reason; what it leaves behind is not waited for."""
    child = Child()
    assert await run_command(command(text), child) == expected
    await child.end()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("echo npu0 bad; exit 4", "exited with exit status 4", id="status"),
        pytest.param("kill -9 $$", "exited with signal 9", id="signal"),
        pytest.param("head -c 100000 /dev/zero", "printed more than", id="too-much"),
        pytest.param("sleep 1000", "did not finish within", id="hangs"),
        pytest.param("exec >&-; sleep 1000", "did not finish within", id="hangs-silently"),
    ],
)
async def test_when_nothing_is_known_about_cards(text: str, reason: str) -> None:
    """A program that fails, hangs or says too much judges no card, and is gone afterwards."""
    child = Child()
    try:
        with pytest.raises(CommandFailed, match=reason):
            await run_command(command(text, timeout_s=0.3 if "within" in reason else LIMIT_S), child)
    finally:
        await child.end()
    assert child.status is not None


async def test_a_program_that_is_missing_is_told() -> None:
    """The reason is the system's."""
    missing = HealthCommand(kind="npu", command=("/nonexistent",), period_s=1, timeout_s=1)
    with pytest.raises(CommandFailed, match="/nonexistent cannot be run: No such file or directory"):
        await run_command(missing, Child())


async def test_no_second_program_is_started_beside_one_that_hangs() -> None:
    """One that cannot be killed would be joined by another one each minute."""
    child = Child()
    await child.start(("/bin/sleep", "1000"))
    with pytest.raises(OSError, match="a previous one still hangs"):
        await child.start(("/bin/true",))
    await child.end()
    assert child.status == -9

    await child.start(("/bin/true",))
    assert await child.ended() == 0
    await child.end()


SCATTER = """
sleep 1000 & echo $! >> {pids}
setsid sleep 1000 & echo $! >> {pids}
(setsid sh -c 'echo $$ >> {pids}; exec >&-; sleep 1000; true' &)
(setsid sh -c 'trap "" TERM HUP INT; echo $$ >> {pids}; (setsid sleep 1000 & echo $! >> {pids}); sleep 1000; true' &)
while [ $(wc -l < {pids}) -lt 5 ]; do sleep 0.01; done
"""
"""Leaves five processes behind: in its group, in sessions of their own, and with parents that have ended."""


@pytest.mark.parametrize("end", ["exit 3", "sleep 1000"])
async def test_everything_that_a_program_has_started_ends_with_it(tmp_path: Path, adopting: None, end: str) -> None:
    """Whether it has ended, or hangs; a program that runs beside it goes on, with what it has started."""
    other, child = Child(), Child()
    left = int(await (await other.start(("/bin/sh", "-c", "(sleep 1000 & echo $!); sleep 1000"))).readline())
    (pids := tmp_path / "pids").touch()
    lines = await child.start(("/bin/sh", "-c", f"{SCATTER.format(pids=pids)} echo ready; {end}"))
    assert await lines.readline() == b"ready\n"
    if "sleep" not in end:
        await child.ended()
    await child.end()

    assert len(found := list(map(int, pids.read_text().split()))) == 5
    assert [pid for pid in found if pid_exists(pid)] == []
    assert pid_exists(left)
    await other.end()
    assert not pid_exists(left)


async def test_what_systemd_says_to_us_is_not_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program could report that the device plugin lives."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("FOR_ALL", "1")

    assert await run_command(command("echo ${NOTIFY_SOCKET:-none} $FOR_ALL"), Child()) == {"none": "1"}


async def test_commands_run_again_and_change(tmp_path: Path) -> None:
    """Each runs with its period; others take their place at once, and their failures are told once."""
    log, judged, news = Log(), list[tuple[str, object]](), asyncio.Event()

    def judge(kind: str, verdict: object) -> None:
        judged.append((kind, verdict))
        news.set()

    commands = HealthCommands(judge, log)
    commands.use([command(f"echo $$ >> {tmp_path}/pids; exit 1", period_s=0.05)])
    async with running(commands.run()):
        async with asyncio.timeout(LIMIT_S):
            while len(judged) < 3:
                news.clear()
                await news.wait()
            commands.use([command("echo npu1 bad")])
            while judged[-1] != ("npu", {"npu1": "bad"}):
                news.clear()
                await news.wait()

    assert len(log.lines) == 1
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


OWN = {1: Entry(0, 1), 5: Entry(1, 5)}
"""The machine's first process, and ours."""


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param({10: Entry(5, 10)}, [], id="itself"),
        pytest.param({10: Entry(5, 10), 11: Entry(10, 10), 12: Entry(11, 12)}, [11, 12], id="children"),
        pytest.param({11: Entry(5, 10), 12: Entry(11, 12)}, [11, 12], id="orphans"),
        pytest.param({13: Entry(5, 13, is_over=True)}, [13], id="one-that-is-over"),
        pytest.param({20: Entry(5, 20), 21: Entry(20, 21), 22: Entry(5, 20)}, [], id="of-another-program"),
        pytest.param({30: Entry(5, 5), 31: Entry(30, 5)}, [], id="of-ours"),
        pytest.param({40: Entry(1, 40), 41: Entry(40, 10)}, [], id="of-others"),
        pytest.param({50: Entry(51, 10), 51: Entry(50, 10), 52: Entry(99, 10)}, [], id="nonsense"),
    ],
)
def test_what_a_program_has_started(others: Mapping[int, Entry], expected: list[int]) -> None:
    """Those below it, and those that this process adopted, unless they are in the session of another program."""
    assert sorted(started_by(10, [20], {**OWN, **others}, own=5)) == expected
