"""Waiting for the end of a container."""

import asyncio

import pytest

from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet import exits
from lab.kubelet.exits import exited
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

LIMIT_S = 60.0
POD = PodSpec("pod", (ContainerSpec("main", IMAGE),))


async def test_an_event_is_enough(
    runtime: EmbeddedRuntime, client: RuntimeClient, kubelet: MiniKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the runtime has events, nobody waits until it is asked again."""
    monkeypatch.setattr(exits, "RELIST_S", 10 * LIMIT_S)
    _, ids = await kubelet.run_pod(POD)
    async with asyncio.timeout(LIMIT_S):
        waiting = asyncio.create_task(exited(client, ids["main"]))
        while not runtime.core.events.listeners:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)

        runtime.exit_container(ids["main"], 3)
        status = await waiting

    assert status.exit_code == 3


class TestWithoutEvents:
    """A runtime as old as containerd 1.6."""

    @pytest.fixture
    def options(self) -> RuntimeOptions:
        """One that does not know the method."""
        return RuntimeOptions(missing=frozenset({"GetContainerEvents"}))

    async def test_it_is_asked_again(
        self, runtime: EmbeddedRuntime, client: RuntimeClient, kubelet: MiniKubelet
    ) -> None:
        """The end of a container is seen without events."""
        _, ids = await kubelet.run_pod(POD)
        async with asyncio.timeout(LIMIT_S):
            waiting = asyncio.create_task(exited(client, ids["main"]))
            runtime.exit_container(ids["main"], 3)

            assert (await waiting).exit_code == 3


async def test_a_container_that_is_not_known(client: RuntimeClient) -> None:
    """Nobody waits for it."""
    with pytest.raises(RuntimeCallError, match="not found"):
        await exited(client, "0" * 64)
