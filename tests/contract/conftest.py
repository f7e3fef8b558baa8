"""The nodes that most tests look at: exclusive and shared CPUs, a pod that was refused, a vGPU over its quota."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contract.cri import Cri, Refused, pod_of
from tests.contract.programs import CRIPROXY, Node, service, wait_until

POLICY = """\
policy: static
reservedCpus: '0'
devices:
  privileged: deny
  podresources: {{socket: ''}}
  checkpoint: ''
  classes:
    - {{name: npu, resources: [example.com/npu], idFormat: index, nodes: {{perDevice: ["/dev/npu{{index}}"]}}}}
  plugin:
    advertise: [npu]
    profiles: [{{name: npu-1g, class: npu, memory: 1Gi, cores: 25, count: 2}}]
    usage: [{{class: npu, from: command, command: [/bin/sh, -c, "while cat {readings}; do sleep 0.5; done"]}}]
    quota: {{period: 1s, samples: 1, grace: 0s, actions: {{memory: observe}}}}
"""
"""Of the rich node; the class needs no library of a vendor, and its use is what a file says."""
VGPU = "devices.criproxy.io/"
GIVEN = {
    f"{VGPU}criproxy.io_npu-1g": "npu0/npu-1g/0",
    f"{VGPU}profile": "npu-1g",
    f"{VGPU}memory-mib": "1024",
    f"{VGPU}cores-percent": "25",
    f"{VGPU}enforcement": "watch",
}
"""The annotations with which the device plugin tells of a vGPU."""


class RichNode(Node):
    """A node on which something of everything happens."""

    def __init__(self, root: Path) -> None:
        self.readings = root / "readings"
        super().__init__(root, POLICY.format(readings=self.readings), cpus=("0-3", "4-7"))
        self.plugin_http = root / "plugin.sock"
        self.tell_use()
        (root / "proc").mkdir()
        for name in ("stat", "meminfo"):
            (root / "proc" / name).symlink_to(f"/proc/{name}")  # how busy it is
        for number in range(2):
            self.add_npu(number)

    def add_npu(self, number: int) -> None:
        """Add a card, on the NUMA node of the same number."""
        address = f"0000:1{number}:00.0"
        self.write(f"dev/npu{number}")
        self.write(f"sys/bus/pci/devices/{address}/numa_node", str(number))
        self.write(f"sys/bus/pci/devices/{address}/class", "0x030200")
        link = self.root / f"sys/class/misc/npu{number}/device"
        link.parent.mkdir(parents=True)
        link.symlink_to(self.root / f"sys/bus/pci/devices/{address}")

    def tell_use(self, *processes: dict[str, Any]) -> None:
        """Let *processes* use cards from now on."""
        cards = [{"card": "npu0", "memory_mib": 2000, "total_mib": 4096, "cores_percent": 40}]
        new = self.readings.with_suffix(".new")
        new.write_text(json.dumps({"processes": processes, "cards": cards}) + "\n")
        new.rename(self.readings)

    def pid_of(self, container_id: str) -> int:
        """Return the process of a container, as the emulated runtime's files say."""
        found = (file.parent.name for file in self.root.glob("proc/*/cgroup") if container_id in file.read_text())
        return int(next(found))

    def run_pods(self) -> None:
        """Run the pods; one does not fit."""
        with Cri(self.socket) as kubelet:
            kubelet.run(pod_of("owner", limit_milli=2000, memory_mib=256))
            kubelet.run(pod_of("sharer", cpu_milli=200, memory_mib=64))
            kubelet.run(pod_of("best-effort"))
            ended = kubelet.run(pod_of("ended", limit_milli=1000, memory_mib=64))
            kubelet.call("StopContainer", {"container_id": ended})
            pod = pod_of("vgpu", cpu_milli=100)
            pod["container"]["annotations"].update(GIVEN)
            holder = kubelet.run(pod)
            with pytest.raises(Refused):
                kubelet.run(pod_of("too-big", limit_milli=6000, memory_mib=64))
        self.tell_use({"pid": self.pid_of(holder), "card": "npu0", "memory_mib": 2000, "cores_percent": 40})

    def is_over_quota(self) -> bool:
        """Whether the daemon knows that a container uses more than its vGPU."""
        return bool(self.query("devices")["over_quota"])


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RichNode]:
    """A node with a daemon, a device plugin and some pods, until the last test."""
    found = RichNode(tmp_path_factory.mktemp("n"))
    plugin = (
        *("device-plugin", "--config", found.policy, "--host-root", found.root, "--control-socket", found.control),
        *("--kubelet-dir", found.root / "kubelet", "--http", f"unix://{found.plugin_http}"),
    )
    with ExitStack() as stack:
        stack.enter_context(found.runtime_serving())
        stack.enter_context(found.serving())
        found.run_pods()
        stack.enter_context(service(found.root / "plugin.log", *CRIPROXY, *plugin))
        wait_until(found.is_over_quota, found.log.read_text, pause_s=0.1)
        yield found
