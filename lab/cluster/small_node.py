"""A node without Kubernetes' kubelet: the embedded runtime on a made-up machine, criproxy, and the small kubelet.

Its Node object is the rig's. The control plane does not see the difference, nor does criproxy. Its agent is an
unprivileged process with a token of the chart's ServiceAccount in a kubeconfig.
"""

import asyncio
import re
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from criproxy.cri.runtime import RuntimeCallError
from criproxy.host.machine import discover
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.process.tether import python
from criproxy.simulate.hosts import unpack
from lab.cluster import chart, manifests, space
from lab.cluster.cards import POLICY
from lab.cluster.control_plane import ControlPlane, kubeconfig
from lab.cluster.process import Program
from lab.containerd.containerd import IMAGE
from lab.kubelet.device_endpoint import write_checkpoint
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from lab.provenance import ROOT, SHARED
from tests.allocations import Allocations
from tests.daemons import Serve

SNAPSHOT = SHARED / "topologies/snapshots/xeon-2s2n-smt-pci.tar.xz"
_FILES = re.compile(r"/cpu/|cpu\d+/online|/topology/|/cache/|/node/|mounts|cgroup|cpuset|meminfo")
"""What of a snapshot matters for placement."""
USER = 62820
"""The user id of the chart's agent."""
_PERIOD_S = 2.0
_MIB = 1 << 20


async def _ask(kubelet: MiniKubelet) -> None:
    """Ask which pods there are, again and again, as a kubelet does."""
    while True:
        with suppress(RuntimeCallError):
            await kubelet.call("ListPodSandbox")
        await asyncio.sleep(_PERIOD_S)


class SmallNode:
    """One; its files are below *folder*."""

    def __init__(self, name: str, control_plane: ControlPlane, folder: Path, logs: Path) -> None:
        self.name = name
        self.folder = folder
        self.serve: Serve
        self.cpus: CpuSet = frozenset()
        self._control_plane = control_plane
        self._host = folder / "host"
        self._logs = logs
        (folder / "run").mkdir(parents=True)
        self._host.mkdir()

    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything, with a pod; the Node object is there then."""
        await asyncio.to_thread(unpack, SNAPSHOT, self._host, _FILES.search)
        self.cpus = discover(self._host).cpus
        command = [sys.executable, "-P", "-m", "lab.emulator", "--socket", str(self.folder / "runtime.sock")]
        command += ["--cpus", format_cpuset(self.cpus), "--mems", "0-1", "--host-root", str(self._host)]
        runtime = Program(command, self._logs / f"{self.name}.runtime.log", {"PYTHONPATH": str(ROOT)})
        await runtime.start()
        stack.push_async_callback(runtime.stop)
        await runtime.until(self._has_socket, "it listened")
        await self._serve_devices(stack)
        # A NodePolicy for all nodes has the section of the worker's cards, which the device plugin alone changes.
        policy = f'policy: topology-aware\nreservedCpus: "{format_cpuset(frozenset(sorted(self.cpus)[:2]))}"\n{POLICY}'
        self.serve = Serve(self.folder, "--host-root", str(self._host), policy=policy)
        await stack.enter_async_context(self.serve)
        await asyncio.to_thread(space.show, self.folder / "run/agent/pod", self.agent_socket.parent)
        await self.register()
        kubelet = await stack.enter_async_context(self.serve.kubelet())
        await kubelet.run_pod(self.pod("first", 2))
        asking = asyncio.create_task(_ask(kubelet))
        stack.callback(asking.cancel)

    @property
    def agent_socket(self) -> Path:
        """The daemon's socket for the agent, as in the mount of a pod."""
        return self.folder / "agent/control.sock"

    def pod(self, name: str, cpus: int) -> PodSpec:
        """A Guaranteed pod."""
        sizes = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=64 * _MIB)
        return PodSpec(f"{self.name}-{name}", (sizes,))

    async def _serve_devices(self, stack: AsyncExitStack) -> None:
        """Tell which devices containers have, as a kubelet does: none."""
        kubelet = self._host / "var/lib/kubelet"
        allocations = Allocations(kubelet / "pod-resources/kubelet.sock", kubelet / "unused")
        await allocations.start()
        stack.push_async_callback(allocations.stop)
        (plugins := kubelet / "device-plugins").mkdir(parents=True)
        write_checkpoint(plugins / "kubelet_internal_checkpoint", {}, {})

    async def _has_socket(self) -> bool:
        return (self.folder / "runtime.sock").exists()

    async def register(self) -> None:
        """Create its Node object."""
        await self._control_plane.asked(
            "POST", "/api/v1/nodes", manifests.node(self.name, manifests.GROUP | manifests.SMALL)
        )
        path = f"/api/v1/nodes/{self.name}"
        await self._control_plane.patch(f"{path}/status", manifests.ready(len(self.cpus), 8 << 30))
        taint = [{"key": "lab", "value": "small", "effect": "NoSchedule"}]
        await self._control_plane.patch(path, {"spec": {"taints": taint}})


class Agent:
    """The agent of one node.

    Args:
        node: its name.
        control_socket: of the node's daemon, for agents.
        folder: for its kubeconfig and token.
        logs: for its log.
        options: further ones.
    """

    def __init__(
        self, control_plane: ControlPlane, node: str, control_socket: Path, folder: Path, logs: Path, *options: str
    ) -> None:
        self.node = node
        self._control_plane = control_plane
        self._config = folder / "agent.kubeconfig"
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        command += python("criproxy", "agent", "--node-name", node, "--control-socket", str(control_socket))
        command += ["--kubeconfig", str(self._config), "--namespace", chart.NAMESPACE, *options]
        self.program = Program(command, logs / f"{node}.agent.log", {"PYTHONPATH": str(ROOT)})

    async def renew(self) -> None:
        """Give it a new token, and its kubeconfig."""
        token = await self._control_plane.token(chart.NAMESPACE, chart.ACCOUNT)
        text = kubeconfig(token, self._control_plane.authority)
        new = self._config.with_suffix(".new")
        new.write_text(text)
        new.replace(self._config)

    async def start(self) -> None:
        """Start it."""
        await self.renew()
        await self.program.start()
