"""One conversation with a runtime that calls every method of CRI: with success, with mistakes, and with nonsense."""

import socket
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.methods import METHODS
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from tests.e2e.recording import CLIENTS_DEADLINE, EVENTS, Recorder
from tests.e2e.through import connect

SPEC = ContainerSpec("main", IMAGE, ("/bin/sleep", "1000"), cpu_limit_milli=500, memory_limit_bytes=64 << 20)
POD = PodSpec("parity", (SPEC,), annotations={"note": "a"}, labels={"app": "x"})
MEMORY_BYTES = 8 << 30
DANGEROUS = "RemoveImage"
"""Not called with an empty name: containerd takes that for the start of every image's id, and removes the image."""


@dataclass(slots=True)
class Conversation:
    """Talks through *to*; *cgroup_root* and *logs* are where pods live and write."""

    to: Recorder
    cgroup_root: str
    logs: Path

    async def run(self) -> None:
        """Have the whole conversation."""
        await self.about_the_runtime()
        sandbox_id = await self.start_sandbox()
        container_id = await self.create(sandbox_id)
        await self.watch(sandbox_id, container_id)
        await self.start(container_id)
        await self.watch(sandbox_id, container_id)
        await self.update(container_id)
        await self.execute(sandbox_id, container_id)
        await self.stop(container_id)
        await self.watch(sandbox_id, container_id)
        await self.remove(sandbox_id, container_id)
        await self.images()
        await self.nonsense()

    async def about_the_runtime(self) -> None:
        """Version, state and configuration."""
        await self.to.send(cri.VersionRequest(version="0.1.0"))
        for verbose in (False, True):
            await self.to.send(cri.StatusRequest(verbose=verbose))
        network = cri.NetworkConfig(pod_cidr="10.0.0.0/24")
        configuration = cri.RuntimeConfig(network_config=network)
        await self.to.send(cri.UpdateRuntimeConfigRequest(runtime_config=configuration))

    def sandbox_config(self) -> cri.PodSandboxConfig:
        """Describe the one pod."""
        config = sandbox_config(POD, self.cgroup_root)
        config.log_directory = str(self.logs)
        return config

    async def start_sandbox(self) -> str:
        """Run a sandbox, and fail to run others."""
        config = self.sandbox_config()
        unknown = cri.RunPodSandboxRequest(config=config, runtime_handler="none")
        await self.to.send(unknown, "unknown handler")
        data = await self.to.send(cri.RunPodSandboxRequest(config=config))
        await self.to.send(cri.RunPodSandboxRequest(config=config), "same name")
        await self.to.send(cri.ListPodSandboxRequest())
        return cri.RunPodSandboxResponse.FromString(data).pod_sandbox_id

    def creation(self, sandbox_id: str, **changes: str) -> cri.CreateContainerRequest:
        """Describe the one container; *changes* are name and image."""
        config = container_config(POD, SPEC, MEMORY_BYTES)
        config.metadata.name = changes.get("name", config.metadata.name)
        config.image.image = changes.get("image", config.image.image)
        config.log_path = f"{config.metadata.name}.log"
        return cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=self.sandbox_config()
        )

    async def create(self, sandbox_id: str) -> str:
        """Create a container, and fail to create others."""
        data = await self.to.call("CreateContainer", self.creation(sandbox_id))
        await self.to.call("CreateContainer", self.creation(sandbox_id), "same name")
        await self.to.call("CreateContainer", self.creation(sandbox_id, name="b", image="none:1"), "no image")
        await self.to.call("CreateContainer", self.creation("zz", name="b"), "no sandbox")
        container_id = cri.CreateContainerResponse.FromString(data).container_id
        early = cri.ExecSyncRequest(container_id=container_id, cmd=["true"])
        await self.to.send(early, "not running")
        return container_id

    async def start(self, container_id: str) -> None:
        """Start it, and once more."""
        for label in ("", "again"):
            await self.to.send(cri.StartContainerRequest(container_id=container_id), label)

    async def watch(self, sandbox_id: str, container_id: str) -> None:
        """Ask everything that can be asked of a sandbox and a container."""
        for verbose in (False, True):
            of_sandbox = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=verbose)
            await self.to.send(of_sandbox)
        await self.to.send(cri.ContainerStatusRequest(container_id=container_id[:13]))
        for state in (cri.CONTAINER_CREATED, cri.CONTAINER_RUNNING, cri.CONTAINER_EXITED):
            wanted = cri.ContainerFilter(state=cri.ContainerStateValue(state=state), pod_sandbox_id=sandbox_id)
            await self.to.send(cri.ListContainersRequest(filter=wanted), str(state))
        await self.to.send(cri.ListContainersRequest())
        selector = cri.PodSandboxFilter(label_selector={"app": "x"})
        await self.to.send(cri.ListPodSandboxRequest(filter=selector))
        await self.to.send(cri.ContainerStatsRequest(container_id=container_id))
        await self.to.send(cri.ListContainerStatsRequest())
        await self.to.send(cri.PodSandboxStatsRequest(pod_sandbox_id=sandbox_id))
        await self.to.send(cri.ListPodSandboxStatsRequest())
        await self.to.send(cri.ReopenContainerLogRequest(container_id=container_id))

    async def update(self, container_id: str) -> None:
        """Move and resize the container, within and beyond what there is."""
        for linux in (
            cri.LinuxContainerResources(cpuset_cpus="0", cpuset_mems="0"),
            cri.LinuxContainerResources(cpu_shares=512, cpu_quota=30_000, cpu_period=100_000),
            cri.LinuxContainerResources(cpuset_cpus="4000"),
            cri.LinuxContainerResources(cpuset_cpus="none"),
            cri.LinuxContainerResources(),
        ):
            request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
            await self.to.send(request, str(linux))

    async def execute(self, sandbox_id: str, container_id: str) -> None:
        """Run commands, and ask for the URLs of streams."""
        for command in (("/bin/echo", "a"), ("/bin/false",), ("/bin/none",), ()):
            await self.to.send(cri.ExecSyncRequest(container_id=container_id, cmd=command), str(command))
        slow = cri.ExecSyncRequest(container_id=container_id, cmd=["/bin/sleep", "5"], timeout=1)
        await self.to.send(slow, "too slow")
        for stdout in (True, False):
            exec_request = cri.ExecRequest(container_id=container_id, cmd=["/bin/echo"], stdout=stdout)
            await self.to.send(exec_request, str(stdout))
            attach = cri.AttachRequest(container_id=container_id, stdout=stdout)
            await self.to.send(attach, str(stdout))
        await self.to.send(cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[80]))

    async def stop(self, container_id: str) -> None:
        """Stop it twice, and try what a stopped container cannot do."""
        for label in ("", "again"):
            await self.to.send(cri.StopContainerRequest(container_id=container_id), label)
        await self.to.send(cri.StartContainerRequest(container_id=container_id), "after its end")

    async def remove(self, sandbox_id: str, container_id: str) -> None:
        """Take all away, each step twice."""
        for label in ("", "again"):
            await self.to.send(cri.RemoveContainerRequest(container_id=container_id), label)
        for label in ("", "again"):
            await self.to.send(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), label)
        await self.to.call("CreateContainer", self.creation(sandbox_id), "stopped sandbox")
        for label in ("", "again"):
            await self.to.send(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), label)
        await self.to.send(cri.ListContainersRequest(), "at the end")

    async def images(self) -> None:
        """Pull what is not there; then remove."""
        names = ("127.0.0.1:1/parity:1", "NO NAME")
        for name in names:
            spec = cri.ImageSpec(image=name)
            await self.to.send(cri.PullImageRequest(image=spec), name)
            await self.to.send(cri.ImageStatusRequest(image=spec), name)
        with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
            spec = cri.ImageSpec(image=f"127.0.0.1:{silent.getsockname()[1]}/parity:1")
            await self.to.send(cri.PullImageRequest(image=spec), CLIENTS_DEADLINE, timeout_s=0.2)
        await self.to.send(cri.ListImagesRequest())
        await self.to.send(cri.ImageFsInfoRequest())
        for name in names:
            await self.to.send(cri.RemoveImageRequest(image=cri.ImageSpec(image=name)), name)

    async def nonsense(self) -> None:
        """Call every method with an unknown id, with nothing, and with bytes that are no message; and invented ones."""
        for name, method in METHODS.items():
            timeout_s = 1 if name == EVENTS else 60
            if name != DANGEROUS:
                await self.to.call(name, method.request(), "empty", timeout_s=timeout_s)
                await self.to.call(name, _unknown_id(method.request()), "unknown id", timeout_s=timeout_s)
            await self.to.call(name, b"\xff\xff", "no message")
        await self.to.call("Invented", b"\x0a\x01x")
        await self.to.call_path(f"/{self.to.package}.InventedService/Version", b"")


async def talk(
    path: Path, logs: Path, cgroups: PodCgroups, package: str, edited: frozenset[str] = frozenset()
) -> Recorder:
    """Have the conversation over the socket *path*, with the pod's cgroup made before, as a kubelet does."""
    async with connect(path) as channel:
        to = Recorder(channel, package, edited)
        talking = Conversation(to, cgroups.root, logs)
        cgroups.make(talking.sandbox_config().linux.cgroup_parent)
        await talking.run()
    return to


def _unknown_id(request: Message) -> Message:
    for name in ("container_id", "pod_sandbox_id"):
        if name in request.DESCRIPTOR.fields_by_name:
            setattr(request, name, "zz")
    return request
