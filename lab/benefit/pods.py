"""Pods whose containers run programs of the machine, and who manages them.

Their image is that of busybox, with the machine's /usr mounted read-only. A manager stands between us, who are the
kubelet, and the runtime: criproxy with a policy, or nothing.
"""

import json
import os
import select
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.cri import api_pb2 as api
from lab.bench.processes import Serve
from lab.bench.ways import DIRECT, Way
from lab.benefit.cases import Manager
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import Equipment
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from lab.provenance import ROOT

_MEMORY_CAPACITY_BYTES = 8 << 30
_SYSTEM = ("/usr", "/lib", "/lib64")
CODE = "/benefit"
"""Where containers find the folder ``tests`` of this repository."""
_LOG = "log"
_VARIABLES = {
    "PYTHONPATH": CODE,
    "PATH": "/usr/bin:/bin",
    "USER": "root",
    **dict.fromkeys(("BENEFIT_OUT", "HOME", "TMPDIR"), "/out"),
}


class SilentError(RuntimeError):
    """A program in a container did not say what it should have said in time."""


def _mounts(equipment: Equipment, out: Path) -> list[api.Mount]:
    """The machine's programs, the equipment and our code, read-only; *out* as /out."""
    base = Path(os.path.realpath(equipment.python)).parents[1]
    folders = [Path(path) for path in _SYSTEM] + [equipment.folder]
    if not str(base).startswith("/usr"):
        folders.append(base)
    places = {str(path): os.path.realpath(path) for path in folders if path.is_dir()} | {
        f"{CODE}/lab": str(ROOT / "lab")
    }
    mounts = [api.Mount(host_path=host, container_path=inside, readonly=True) for inside, host in places.items()]
    return [*mounts, api.Mount(host_path=str(out), container_path="/out")]


@dataclass(slots=True)
class Pod:
    """A running pod of one container."""

    spec: PodSpec
    sandbox_id: str
    container_id: str
    pod_cgroup: str
    out: Path
    _say: int = field(init=False)
    _go: int = field(init=False)
    _heard: bytes = b""

    @property
    def cgroup(self) -> str:
        """Path of the container's cgroup."""
        return f"{self.pod_cgroup}/{self.container_id}"

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """The next line that the program says.

        Raises:
            SilentError: it says nothing in time.
        """
        end = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            readable, _, _ = select.select([self._say], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                raise SilentError(f"{self.spec.name} was silent for {timeout_s:.0f} s: {self.log}")
            self._heard += os.read(self._say, 65536)
        line, _, self._heard = self._heard.partition(b"\n")
        return dict(json.loads(line))

    @property
    def log(self) -> str:
        """The end of what the program printed."""
        file = self.out / _LOG
        return file.read_text(errors="replace")[-2000:] if file.exists() else "it printed nothing"

    def go(self) -> None:
        """Let the program work."""
        os.write(self._go, b"go\n")

    @property
    def count(self) -> int:
        """What the workers of a neighbour have done so far."""
        return sum(each for (each,) in struct.iter_unpack("<Q", (self.out / "count").read_bytes()))

    def __post_init__(self) -> None:
        self.out.mkdir()
        for name in ("say", "go"):
            os.mkfifo(self.out / name)
        # Both are open for reading and writing, so that nobody waits for the other end.
        self._say, self._go = (os.open(self.out / name, os.O_RDWR | os.O_CLOEXEC) for name in ("say", "go"))

    def close(self) -> None:
        """Close the pipes and remove the folder."""
        for descriptor in (self._say, self._go):
            os.close(descriptor)
        shutil.rmtree(self.out)


@dataclass(slots=True)
class Node:
    """Makes and removes pods through any way to one runtime."""

    cgroups: NodeCgroups
    equipment: Equipment
    directory: Path
    _made: int = field(default=0)

    @contextmanager
    def running(self, way: Way, spec: ContainerSpec, namespace: str) -> Iterator[Pod]:
        """Run a pod of one container whose program may use /out; with the block goes everything that it has."""
        pod = self._run(way, spec, namespace)
        try:
            yield pod
        finally:
            way.call("StopPodSandbox", api.StopPodSandboxRequest(pod_sandbox_id=pod.sandbox_id))
            way.call("RemovePodSandbox", api.RemovePodSandboxRequest(pod_sandbox_id=pod.sandbox_id))
            self.cgroups.remove_pod(pod.pod_cgroup)
            pod.close()

    def _run(self, way: Way, spec: ContainerSpec, namespace: str) -> Pod:
        self._made += 1
        pod_spec = PodSpec(f"{spec.name}-{self._made}", (spec,), namespace)
        pod = Pod(pod_spec, "", "", self.cgroups.make_pod(pod_spec), self.directory / pod_spec.name)
        sandbox = sandbox_config(pod_spec, self.cgroups.root)
        sandbox.log_directory = str(pod.out)
        answer = way.call("RunPodSandbox", api.RunPodSandboxRequest(config=sandbox))
        assert isinstance(answer, api.RunPodSandboxResponse)
        pod.sandbox_id = answer.pod_sandbox_id
        config = container_config(pod_spec, spec, _MEMORY_CAPACITY_BYTES)
        config.log_path = _LOG
        config.mounts.extend(_mounts(self.equipment, pod.out))
        variables = {**_VARIABLES, **self.equipment.environment}.items()
        config.envs.extend(api.KeyValue(key=key, value=value.encode()) for key, value in variables)
        request = api.CreateContainerRequest(pod_sandbox_id=pod.sandbox_id, config=config, sandbox_config=sandbox)
        created = way.call("CreateContainer", request)
        assert isinstance(created, api.CreateContainerResponse)
        pod.container_id = created.container_id
        way.call("StartContainer", api.StartContainerRequest(container_id=pod.container_id))
        return pod

    def command(self, module: str, *arguments: str) -> tuple[str, ...]:
        """The command of a program in `lab.benefit.programs`."""
        return (str(self.equipment.python), "-m", f"lab.benefit.programs.{module}", *arguments)


@contextmanager
def managed(manager: Manager, runtime: Path) -> Iterator[Way]:
    """The way to the runtime under *manager* while the block lasts; criproxy starts without anything remembered."""
    if not manager.policy:
        with Way(DIRECT, runtime) as way:
            yield way
        return
    with tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        policy = Path(folder) / "policy.yaml"
        policy.write_text(manager.policy)
        serve = Serve(runtime, Path(folder), policy)
        service = serve.controls() if manager.has_classes else nullcontext()
        with service, serve.running() as pid, Way(manager.name, serve.listen, pid) as way:
            yield way
