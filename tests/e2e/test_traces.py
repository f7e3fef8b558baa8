"""Recordings of a real kubelet, played on a real containerd: commands, networks and mounts are those of here."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import IMAGE, PrivateContainerd
from tests.daemons import until
from tests.e2e.scene import Scene, exited, proxied
from tests.e2e.test_policies import RESERVED
from tests.node.test_traces import RECORDED
from tests.node.traces import Player, Recorded, read

LIMIT_S = 60.0
PLAYED = (
    "crash_loop",
    "init_and_sidecar",
    "kubelet_restart",
    "pause_killed",
    "pod_level_resources",
    "refused_create_then_room",
    "resize_in_place",
    "resize_to_a_fraction_then_restart",
)
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "RunPodSandboxRequest": ("dns_config", "log_directory", "hostname"),
    "CreateContainerRequest": ("command", "args", "envs", "mounts", "log_path"),
}
"""Fields of a request's configuration that belong to another machine, or were hidden."""


@dataclass(frozen=True, slots=True)
class Here:
    """Makes of a recorded request one that this machine's containerd understands."""

    cgroups: PodCgroups

    def adapt(self, message: Any) -> None:  # noqa: ANN401 (any request)
        """Change *message* in place."""
        for field in LEFT_OUT.get(type(message).__name__, ()):
            message.config.ClearField(field)
        match message:
            case cri.RunPodSandboxRequest():
                self._sandbox(message.config)
                self.cgroups.make(message.config.linux.cgroup_parent)
            case cri.CreateContainerRequest():
                self._sandbox(message.sandbox_config)
                _limits(message.config.linux.resources)
                _host_network(message.config.linux.security_context)
            case cri.UpdateContainerResourcesRequest():
                _limits(message.linux)
            case cri.StopContainerRequest():
                message.timeout = 0

    def _sandbox(self, config: cri.PodSandboxConfig) -> None:
        config.linux.cgroup_parent = f"{self.cgroups.root}{config.linux.cgroup_parent}"
        _host_network(config.linux.security_context)


def _host_network(context: Any) -> None:  # noqa: ANN401 (of a sandbox or a container)
    context.Clear()
    context.namespace_options.network, context.namespace_options.pid = cri.NODE, cri.CONTAINER


def _limits(linux: cri.LinuxContainerResources) -> None:
    linux.ClearField("hugepage_limits")
    linux.ClearField("memory_swap_limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Kills:
    """Ends processes as the kernel would."""

    direct: RuntimeClient

    async def exit(self, container_id: str) -> None:
        """Kill a container's first process; returns when the runtime knows it."""
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=True)
        status = await self.direct.call("ContainerStatus", request, cri.ContainerStatusResponse)
        os.kill(json.loads(status.info["info"])["pid"], signal.SIGKILL)
        await exited(self.direct, container_id)

    async def lose(self, sandbox_id: str) -> None:
        """Kill a sandbox's process; returns when the runtime knows it."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        reply = await self.direct.call("PodSandboxStatus", request, cri.PodSandboxStatusResponse)
        os.kill(json.loads(reply.info["info"])["pid"], signal.SIGKILL)
        while reply.status.state is not cri.SANDBOX_NOTREADY:
            await asyncio.sleep(0.01)
            reply = await self.direct.call("PodSandboxStatus", request, cri.PodSandboxStatusResponse)


def _anything(_: Mapping[str, Any]) -> bool:
    return True


def _is_free(values: Mapping[str, Any]) -> bool:
    """Whether nobody has a place any more."""
    return not values["cpus"]["exclusive"] and not any(one["placed"] for one in values["containers"])


def _is_empty(values: Mapping[str, Any]) -> bool:
    """Whether no container is known any more."""
    return not values["totals"]["containers"]


async def all_is_well(scene: Scene, is_so: Callable[[Mapping[str, Any]], bool] = _anything) -> None:
    """Wait until ``status --check`` finds nothing and its answer *is_so*.

    A call is answered a moment before its end is booked.
    """

    async def is_well() -> bool:
        values = await scene.serve.ask("status", check=True)
        return not values["problems"] and not values["under_way"] and is_so(values)

    await until(is_well)


@pytest.mark.parametrize("name", PLAYED)
async def test_what_a_real_kubelet_says_is_answered_as_there(
    name: str, tmp_path: Path, containerd: PrivateContainerd
) -> None:
    """Under the static policy, on two CPUs: each call ends as recorded, all is well after each, nothing is left."""
    if name not in RECORDED:
        pytest.skip("no traces beside the repository (../shared)")
    async with asyncio.timeout(LIMIT_S), proxied(tmp_path, containerd, f"policy: static\n{RESERVED}") as scene:

        async def look(_: Recorded) -> None:
            await all_is_well(scene)

        here = Here(containerd.cgroups)
        player = Player(scene.client, Kills(scene.direct), IMAGE, at_rest=look, adapt=here.adapt)
        await player.play(read(RECORDED[name]))
        await all_is_well(scene, _is_free)
        await player.clean_up()
        await all_is_well(scene, _is_empty)
