"""The watcher's requests for the grants of containers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.deviceplugin.daemon_client.asking import DaemonClient
from criproxy.deviceplugin.usage.grants_client import Granted, Grants
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import running
from tests.deviceplugin.node import Log
from tests.deviceplugin.usage.hosts import container_id, grant


@pytest.fixture
async def asking(folder: Path) -> AsyncIterator[tuple[Daemon, Grants, Log]]:
    """Let a watcher ask a daemon again and again, without pauses, for one container that has a card."""
    daemon, log = Daemon(folder / "control.sock", grant("a")), Log()
    await daemon.start()
    grants = Grants(DaemonClient(str(folder / "control.sock"), log), log, refresh_s=0.0, pause_s=0.0)
    async with running(grants.run()):
        yield daemon, grants, log
    await daemon.stop()


async def answered(daemon: Daemon, grants: Grants) -> Granted:
    """Return what the watcher knows when it has used an answer to a request that it has sent after this call."""
    asked = len(daemon.said("device-grants"))
    await daemon.until_said("device-grants", asked + 3)
    assert grants.granted is not None
    return grants.granted


async def test_a_repeated_answer_is_another_answer_with_the_same_grants(asking: tuple[Daemon, Grants, Log]) -> None:
    """Whoever acts once for each answer acts again; the grants themselves are not read anew; a new one is known."""
    daemon, grants, _ = asking
    first, second = await answered(daemon, grants), await answered(daemon, grants)
    assert second is not first
    assert second == first
    assert second.limits is first.limits

    daemon.grants = (grant("a"), grant("b"))
    found = await answered(daemon, grants)
    assert [each.key.container_id for each in found.limits["ali-npu"]["npu0"]] == [container_id("a"), container_id("b")]


async def test_an_invalid_answer_is_never_used(asking: tuple[Daemon, Grants, Log]) -> None:
    """However often it is repeated, the last valid grants stay, and the log has the reason once."""
    daemon, grants, log = asking
    before = await answered(daemon, grants)
    daemon.incidents = [{"container_id": "a"}]
    await answered(daemon, grants)

    assert await answered(daemon, grants) == before
    assert log.events() == ["the daemon's answer about containers is invalid"]
