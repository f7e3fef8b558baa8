"""The node with Kubernetes' own kubelet: it calls criproxy, and that a private containerd, with a network for pods."""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml

from criproxy.host.machine import discover
from criproxy.model.cpuset import CpuSet, format_cpuset
from lab.cluster import cards, manifests
from lab.cluster.control_plane import ControlPlane
from lab.cluster.process import Program
from lab.cluster.space import ADDRESS, POD_NETWORK
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import PrivateContainerd
from tests.daemons import Serve

NAME = "worker-1"
KUBELET = Path("/var/lib/kubelet")
PAUSE = "criproxy.test/pause:1"
HTTP = "127.0.0.1:9820"
"""Where the daemon serves its metrics."""
TAINT = "criproxy.io/not-ready"
_READY_S = 180.0
_POLICY = """\
policy: static
reservedCpus: "{reserved}"
{more}"""


def network(folder: Path) -> dict[str, Any]:
    """The configuration of the pods' network: a bridge, whose address is where pods send everything.

    Args:
        folder: where the addresses given out are kept.
    """
    ipam = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": [[{"subnet": POD_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}


def configuration(cgroup_root: str, static_pods: Path) -> dict[str, Any]:
    """The kubelet's configuration file. Everybody in the cluster's network may ask it: there is nobody else."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "staticPodPath": str(static_pods),
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "volumePluginDir": str(KUBELET / "volume-plugins"),
    }


def kubelet_command(program: Path, config: Path, kubeconfig: Path, endpoint: str) -> list[str]:
    """The kubelet's command line."""
    flags = {
        "config": config,
        "kubeconfig": kubeconfig,
        "root-dir": KUBELET,
        "cert-dir": KUBELET / "pki",
        "hostname-override": NAME,
        "node-ip": ADDRESS,
        "container-runtime": "remote",
        "container-runtime-endpoint": endpoint,
        "pod-infra-container-image": PAUSE,
        "register-with-taints": f"{TAINT}=:NoSchedule",
    }
    return [str(program), *(f"--{name}={value}" for name, value in flags.items())]


class Worker:
    """Everything of this node; its files are below *folder*."""

    def __init__(self, control_plane: ControlPlane, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.control_plane = control_plane
        self.containerd = PrivateContainerd()
        self.serve: Serve
        self._logs = logs
        self.cards = cards.Cards(folder / "cards", logs, folder)
        self.cpus = discover().cpus
        root = f"/{Path(os.environ['TMPDIR']).parent.name}"
        self.cgroups = PodCgroups(root)
        config = folder / "kubelet.yaml"
        self.kubelet = Program(
            kubelet_command(
                control_plane.programs / "kubelet",
                config,
                control_plane.kubeconfig("kubelet"),
                f"unix://{folder}/run/criproxy.sock",
            ),
            logs / "kubelet.log",
        )
        (folder / "run").mkdir(parents=True)
        (folder / "static").mkdir()
        config.write_text(yaml.safe_dump(configuration(root, folder / "static")))

    @property
    def reserved(self) -> CpuSet:
        """The reserved CPU."""
        return frozenset([min(self.cpus)])

    async def start(self, stack: AsyncExitStack) -> None:
        """Start containerd, criproxy and the kubelet, which register the node."""
        self._prepare()
        await asyncio.to_thread(self.cards.plug)
        await asyncio.to_thread(self.containerd.start)
        (self.folder / "runtime.sock").symlink_to(self.containerd.socket)
        self.serve = Serve(
            self.folder, "--http", HTTP, policy=_POLICY.format(reserved=format_cpuset(self.reserved), more=cards.POLICY)
        )
        await stack.enter_async_context(self.serve)
        await self.kubelet.start()
        await self.kubelet.until(self._is_ready, "the node was ready", _READY_S)
        await self.cards.start()

    def _prepare(self) -> None:
        """The pods' network, and their cgroup in each hierarchy."""
        settings = self.containerd.directory / "cni/net.d"
        settings.mkdir(parents=True)
        (settings / "10-lab.conflist").write_text(json.dumps(network(self.folder)))
        (self.containerd.directory / "cni/bin").symlink_to(self.control_plane.programs)
        self.cgroups.make(self.cgroups.root)
        mount = Path("/sys/fs/cgroup")
        if not (mount / "cgroup.controllers").exists():
            for tree in mount.iterdir():
                if (tree / "cgroup.procs").exists():
                    (tree / self.cgroups.root.lstrip("/")).mkdir(exist_ok=True)

    async def _is_ready(self) -> bool:
        return manifests.is_ready(await self.control_plane.get(f"/api/v1/nodes/{NAME}"))
