"""The bypass: ordered by a command, or automatic after failures that repeat."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from criproxy.errors import CriproxyError, Fault, StatusCode, StoreError, UsageError
from criproxy.node import bypass as module
from criproxy.node.bypass import FAILURES, HANGS, WINDOW_S, Bypass, BypassMode
from criproxy.wire.calls import Call, Refuse, Verdict
from criproxy.wire.stats import Stats
from tests.node.world import soon

CALL = Call("/runtime.v1.RuntimeService/CreateContainer", 1, 1, "identity")
REFUSE = Refuse(StatusCode.UNAVAILABLE, "as before")
LIMIT_S = 60.0


class Hung(Fault):
    """A handler that took too long."""

    hung = True


@dataclass
class Proxy:
    """What is switched."""

    stats: Stats = field(default_factory=lambda: Stats({}))


@dataclass
class World:
    """A bypass and all that it tells."""

    proxies: list[Proxy] = field(default_factory=lambda: [Proxy(), Proxy()])
    modes: list[BypassMode] = field(default_factory=list)
    ailing: bool = False
    asked: int = 0

    def __post_init__(self) -> None:
        self.bypass = Bypass(self.proxies, self.modes.append, self.is_ailing)

    def is_ailing(self) -> bool:
        """Count the question."""
        self.asked += 1
        return self.ailing

    async def fail(self, error: Exception, times: int = 1) -> None:
        """Let calls fail with *error*; the verdict is that of the inner handler."""
        for _ in range(times):
            assert await self.bypass.watch(refuse)(CALL, b"", error) == REFUSE

    async def until(self, mode: BypassMode) -> None:
        """Wait for a mode that the timer brings."""
        await soon(lambda: self.bypass.mode is mode)


async def refuse(_call: Call, _message: bytes | None, _error: Exception) -> Verdict:
    """What happens to calls at which we fail."""
    return REFUSE


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return a bypass that is off."""
    made = World()
    yield made
    made.bypass.close()


async def test_an_order_makes_every_proxy_a_splice(world: World) -> None:
    """On and off reach all proxies; only a change is told."""
    assert (await world.bypass.command({"state": "status"}))["bypass"] is False
    assert (await world.bypass.command({"state": "on"}))["mode"] == "ordered"
    assert [proxy.stats.bypass for proxy in world.proxies] == [True, True]
    await world.bypass.command({"state": "on"})
    assert (await world.bypass.command({"state": "off"}))["bypass"] is False
    assert [proxy.stats.bypass for proxy in world.proxies] == [False, False]

    assert world.modes == [BypassMode.ORDERED, BypassMode.OFF]


@pytest.mark.parametrize("state", [None, "", "On", 1, ["on"], True])
async def test_another_state_is_refused(world: World, state: object) -> None:
    """A mistyped command changes nothing."""
    with pytest.raises(UsageError, match="bypass is on, off or status"):
        await world.bypass.command({"state": state})

    assert not world.bypass.on


@pytest.mark.parametrize("error", [StoreError("the disk is full"), ZeroDivisionError("a fault")])
async def test_failures_that_repeat_switch_it_on(world: World, error: Exception) -> None:
    """The tenth failure within a minute is the last one that a call meets; the proxies go on holding creates."""
    await world.fail(error, FAILURES - 1)
    assert world.modes == []

    await world.fail(error)

    assert world.modes == [BypassMode.AUTOMATIC]
    assert [proxy.stats.bypass for proxy in world.proxies] == [False, False]
    assert str(error) in world.bypass.reason


async def test_few_handlers_that_hang_are_enough(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs its call a minute, so that ten within a minute never come."""
    now_s = 0.0
    monkeypatch.setattr("criproxy.node.bypass.time.monotonic", lambda: now_s)

    for _ in range(HANGS):
        assert not world.bypass.on
        now_s += 70
        await world.fail(Hung("it hangs"))

    assert world.bypass.mode is BypassMode.AUTOMATIC


async def test_what_others_did_wrong_is_no_failure_of_ours(world: World) -> None:
    """A runtime that is away and a message that cannot be read do not switch it on."""
    await world.fail(CriproxyError("the runtime is away"), FAILURES * 2)

    assert not world.bypass.on


async def test_failures_over_a_long_time_do_not_add_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten failures in a day are for the log."""
    now_s = 0.0
    monkeypatch.setattr("criproxy.node.bypass.time.monotonic", lambda: now_s)

    for _ in range(FAILURES * 2):
        await world.fail(ZeroDivisionError())
        now_s += WINDOW_S / (FAILURES - 2)

    assert not world.bypass.on


async def test_after_off_the_count_begins_anew(world: World) -> None:
    """Who switches it off gets the full number of tries."""
    await world.fail(ZeroDivisionError(), FAILURES)
    await world.bypass.command({"state": "off"})

    await world.fail(ZeroDivisionError(), FAILURES - 1)

    assert not world.bypass.on


async def test_it_tries_again_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while containers are placed again; the first failure then ends the trial, and the next comes later."""
    monkeypatch.setattr(module, "FIRST_TRY_S", 0.01)
    await world.fail(ZeroDivisionError(), FAILURES)

    await world.until(BypassMode.OFF)
    await world.fail(ZeroDivisionError("again"))
    assert world.bypass.mode is BypassMode.AUTOMATIC
    assert world.bypass.reason == "it still fails: again"
    assert world.bypass._pause_s == 0.02
    await world.until(BypassMode.OFF)

    assert world.modes == [BypassMode.AUTOMATIC, BypassMode.OFF] * 2


async def test_there_is_no_trial_while_the_disk_still_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known to fail need not be tried on the kubelet's calls."""
    monkeypatch.setattr(module, "FIRST_TRY_S", 0.005)
    world.ailing = True
    await world.fail(StoreError("the disk is full"), FAILURES)
    await soon(lambda: world.asked >= 3)
    assert world.modes == [BypassMode.AUTOMATIC]

    world.ailing = False
    await world.until(BypassMode.OFF)


async def test_an_order_is_not_ended_by_the_timer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator has switched on stays on."""
    monkeypatch.setattr(module, "FIRST_TRY_S", 0.005)
    await world.fail(ZeroDivisionError(), FAILURES)
    await world.bypass.command({"state": "on"})

    await asyncio.sleep(0.03)

    assert world.bypass.mode is BypassMode.ORDERED
    assert world.modes == [BypassMode.AUTOMATIC, BypassMode.ORDERED]
