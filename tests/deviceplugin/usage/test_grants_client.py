"""The watcher's requests for the grants of containers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from structlog import get_logger
from structlog.testing import capture_logs

from criproxy.deviceplugin.daemon_client.daemon_client import DaemonClient
from criproxy.deviceplugin.usage.grants_client import Granted, Grants
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.news import running
from tests.deviceplugin.usage.hosts import container_id, grant


@asynccontextmanager
async def requesting() -> AsyncIterator[tuple[Daemon, Grants]]:
    """Let a watcher ask a daemon again and again, without pauses, for one container that has a card."""
    with TemporaryDirectory(prefix="g") as folder:
        socket = Path(folder) / "control.sock"
        daemon = Daemon(socket, grant("a"))
        await daemon.start()
        grants = Grants(DaemonClient(str(socket), get_logger()), get_logger(), refresh_s=0.0, pause_s=0.0)
        async with running(grants.run()):
            yield daemon, grants
        await daemon.stop()


async def answered(daemon: Daemon, grants: Grants) -> Granted:
    """Return what the watcher knows when it has used an answer to a request that it has sent after this call."""
    asked = len(daemon.said("device-grants"))
    await daemon.until_said("device-grants", asked + 3)
    assert grants.granted is not None
    return grants.granted


async def test_a_repeated_answer_is_another_answer_with_the_same_grants() -> None:
    """Whoever acts once for each answer acts again; the grants themselves are not read anew."""
    async with requesting() as (daemon, grants):
        first = await answered(daemon, grants)
        second = await answered(daemon, grants)

    assert second is not first
    assert second == first
    assert second.limits is first.limits


async def test_another_answer_counts_at_once() -> None:
    """A new container is known by the next answer."""
    async with requesting() as (daemon, grants):
        await answered(daemon, grants)
        daemon.grants = (grant("a"), grant("b"))
        found = await answered(daemon, grants)

    assert [each.key.container_id for each in found.limits["ali-npu"]["npu0"]] == [container_id("a"), container_id("b")]


async def test_an_invalid_answer_is_never_used() -> None:
    """However often it is repeated, the last valid grants stay, and the log has the reason once."""
    with capture_logs() as logs:
        async with requesting() as (daemon, grants):
            before = await answered(daemon, grants)
            daemon.incidents = [{"container_id": "a"}]
            await answered(daemon, grants)
            found = await answered(daemon, grants)

    assert found == before
    assert [line["event"] for line in logs] == ["the daemon's answer about containers is invalid"]
