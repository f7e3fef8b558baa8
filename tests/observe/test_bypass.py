"""The bypass: switched by command, and by failures that repeat."""

from dataclasses import dataclass

import pytest

from criproxy.errors import CriproxyError, StatusCode, StoreError, UsageError
from criproxy.observe.bypass import FAILURES, WINDOW_S, Bypass
from criproxy.wire.calls import Call, Refuse, Verdict

CALL = Call("/runtime.v1.RuntimeService/CreateContainer", 1, 1, "identity")
REFUSE = Refuse(StatusCode.UNAVAILABLE, "as before")


@dataclass
class Proxy:
    """What is switched."""

    bypass: bool = False


async def refuse(_call: Call, _message: bytes | None, _error: Exception) -> Verdict:
    """What happens to calls at which we fail."""
    return REFUSE


async def fail(bypass: Bypass, error: Exception, times: int) -> None:
    """Let calls fail with *error*; the verdict is that of the inner handler."""
    for _ in range(times):
        assert await bypass.watch(refuse)(CALL, b"", error) == REFUSE


async def test_every_proxy_is_switched_and_the_manager_told() -> None:
    """On and off reach all proxies; only a change is told."""
    proxies = [Proxy(), Proxy()]
    told: list[str | None] = []
    bypass = Bypass(proxies, told.append)

    assert (await bypass.command({"state": "status"}))["bypass"] is False
    assert (await bypass.command({"state": "on"}))["bypass"] is True
    assert proxies == [Proxy(True), Proxy(True)]
    await bypass.command({"state": "on"})
    assert (await bypass.command({"state": "off"}))["bypass"] is False
    assert proxies == [Proxy(False), Proxy(False)]

    assert len(told) == 2
    assert str(told[0]).startswith("BYPASS since 20")
    assert told[1] is None


@pytest.mark.parametrize("state", [None, "", "On", 1, ["on"], True])
async def test_another_state_is_refused(state: object) -> None:
    """A mistyped command changes nothing."""
    bypass = Bypass([], lambda _text: None)

    with pytest.raises(UsageError, match="bypass is on, off or status"):
        await bypass.command({"state": state})

    assert not bypass.on


@pytest.mark.parametrize("error", [StoreError("the disk is full"), ZeroDivisionError("a fault")])
async def test_failures_that_repeat_switch_it_on(error: Exception) -> None:
    """The tenth failure within a minute is the last one that a call of the kubelet meets."""
    proxy = Proxy()
    bypass = Bypass([proxy], lambda _text: None)
    seen = []

    for _ in range(FAILURES):
        seen.append(proxy.bypass)
        await fail(bypass, error, 1)

    assert [*seen, proxy.bypass] == [False] * FAILURES + [True]
    assert str(error) in bypass.reason


async def test_what_others_did_wrong_is_no_failure_of_ours() -> None:
    """A runtime that is away and a message that cannot be read do not switch it on."""
    bypass = Bypass([], lambda _text: None)

    await fail(bypass, CriproxyError("the runtime is away"), FAILURES * 2)

    assert not bypass.on


async def test_failures_over_a_long_time_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten failures in a day are for the log."""
    now_s = 0.0
    monkeypatch.setattr("criproxy.observe.bypass.time.monotonic", lambda: now_s)
    bypass = Bypass([], lambda _text: None)

    for _ in range(FAILURES * 2):
        await fail(bypass, ZeroDivisionError(), 1)
        now_s += WINDOW_S / (FAILURES - 2)

    assert not bypass.on


async def test_after_off_the_count_begins_anew() -> None:
    """Who switches it off gets the full number of tries."""
    bypass = Bypass([], lambda _text: None)
    await fail(bypass, ZeroDivisionError(), FAILURES)
    bypass.set(False, "mended")

    await fail(bypass, ZeroDivisionError(), FAILURES - 1)

    assert not bypass.on
