"""Containers that run from the start."""

import time
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions


class TestThousand:
    """A full node."""

    @pytest.fixture
    def options(self) -> RuntimeOptions:
        """Ask for 1,000 containers, and two more to have a pod that is not full."""
        return RuntimeOptions(containers=1002)

    async def test_they_all_run_in_pods_of_their_own(self, client: RuntimeClient) -> None:
        """Each has its own name, the labels of its pod, and a cpuset."""
        containers = await client.list_containers()

        assert len({container.id for container in containers}) == 1002
        assert {container.state for container in containers} == {cri.CONTAINER_RUNNING}
        assert len(await client.list_pod_sandbox()) == 251
        assert containers[5].labels["io.kubernetes.pod.name"] == "prefilled-1"

    async def test_listing_them_is_quick(self, client: RuntimeClient) -> None:
        """A list costs a few milliseconds, not the building of 1,000 messages: the quickest of some does."""
        took_s = []
        for _ in range(10):
            began_s = time.process_time()  # the runtime and its client are in this process
            await client.list_containers()
            took_s.append(time.process_time() - began_s)

        assert min(took_s) < 0.05


def test_the_same_options_give_the_same_containers(tmp_path: Path) -> None:
    """Ids do not change from run to run."""
    ids = [
        list(EmbeddedRuntime(tmp_path / "s", RuntimeOptions(containers=5)).core.records.containers) for _ in range(2)
    ]

    assert ids[0] == ids[1]
