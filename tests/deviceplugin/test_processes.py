"""Programs that are started and ended."""

import asyncio
import os
from pathlib import Path

import pytest

from criproxy.deviceplugin.health_commands import CommandFailed, HealthCommands, ask
from criproxy.devices.plan import HealthCommand
from criproxy.observe.children import Child
from tests.deviceplugin.node import Log

LIMIT_S = 60.0


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
    ],
)
async def test_what_a_health_command_says(text: str, expected: dict[str, str]) -> None:
    """The first word of a line is the card, the rest the reason."""
    assert await ask(command(text), Child()) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("echo npu0 bad; exit 4", "has ended with exit status 4", id="status"),
        pytest.param("kill -9 $$", "has ended with signal 9", id="signal"),
        pytest.param("head -c 100000 /dev/zero", "prints more than", id="too-much"),
        pytest.param("sleep 1000", "has not ended within", id="hangs"),
        pytest.param("sleep 1000 &", "has not ended within", id="leaves-something-behind"),
        pytest.param("exec >&-; sleep 1000", "has not ended within", id="hangs-silently"),
    ],
)
async def test_when_nothing_is_known_about_cards(text: str, reason: str) -> None:
    """A program that fails, hangs or says too much judges no card, and is gone afterwards."""
    child = Child()
    try:
        with pytest.raises(CommandFailed, match=reason):
            await ask(command(text, timeout_s=0.3 if "within" in reason else LIMIT_S), child)
    finally:
        await child.end()
    assert child.status is not None


async def test_a_program_that_is_missing_is_told() -> None:
    """The reason is the system's."""
    missing = HealthCommand(kind="npu", command=("/nonexistent",), period_s=1, timeout_s=1)
    with pytest.raises(CommandFailed, match="/nonexistent cannot be run: No such file or directory"):
        await ask(missing, Child())


async def test_no_second_program_is_started_beside_one_that_hangs() -> None:
    """One that cannot be killed would be joined by another one each minute."""
    child = Child()
    await child.start(("/bin/sleep", "1000"))
    with pytest.raises(OSError, match="a former one still hangs"):
        await child.start(("/bin/true",))
    await child.end()
    assert child.status == -9

    await child.start(("/bin/true",))
    assert await child.ended() == 0
    await child.end()


async def test_what_systemd_says_to_us_is_not_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program could report that the device plugin lives."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("FOR_ALL", "1")

    assert await ask(command("echo ${NOTIFY_SOCKET:-none} $FOR_ALL"), Child()) == {"none": "1"}


async def test_commands_run_again_and_change(tmp_path: Path) -> None:
    """Each runs with its period; others take their place at once, and their failures are told once."""
    log, judged, news = Log(), list[tuple[str, object]](), asyncio.Event()

    def judge(kind: str, verdict: object) -> None:
        judged.append((kind, verdict))
        news.set()

    commands = HealthCommands(judge, log)
    commands.use([command(f"echo $$ >> {tmp_path}/pids; exit 1", period_s=0.05)])
    running = asyncio.create_task(commands.run())
    async with asyncio.timeout(LIMIT_S):
        while len(judged) < 3:
            news.clear()
            await news.wait()
        commands.use([command("echo npu1 bad")])
        while judged[-1] != ("npu", {"npu1": "bad"}):
            news.clear()
            await news.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert len(log.lines) == 1
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
