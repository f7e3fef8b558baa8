"""What must become of the vGPUs of a case: each has one container, which is held to its quota whatever happens."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.usage.values import Grant
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.text.plain import from_plain
from tests.matrix.scene import Asks, Ran, Scene, pod
from tests.node.devices.test_create_checks_vgpu import make_files
from tests.watchers import Watcher

SECTION = "{profiles: [{name: gpu-8g, class: nvidia, memory: 8Gi, cores: 25}]}"
HELD, FOR_CARD, FOR_STRANGER = (f"GPU-b/gpu-8g/{number}" for number in range(3))
"""The vGPUs of who is there first, of who comes with what the case says, and of who comes while criproxy is down."""
QUOTA = Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)
SAID = ("GPUMemoryQuotaExceeded", "9000 MiB used, 8192 MiB allowed on GPU-b")
UNSAID = ("Error", "")
"""What a status says of a container that was stopped where criproxy cannot change that."""
SWITCH = ("GPU_CORE_UTILIZATION_POLICY", "disable")
"""A variable by which a pod would lift its limit."""
READINGS = 8
"""More than the grace has seconds."""


@dataclass(slots=True)
class Vgpus:
    """The vGPUs of one case, and the watcher of their quotas."""

    scene: Scene
    namespace: str
    problems: list[str]
    tells: bool
    """Whether the status of who was stopped says why."""
    _watching: Watcher = field(init=False)
    _at_s: float = 0.0

    def __post_init__(self) -> None:
        self._watching = Watcher(self._ask)
        make_files(self.scene.file.parent)
        for vgpu in (FOR_CARD, FOR_STRANGER):
            (self.scene.file.parent / HAMI.containers[1:] / vgpu.replace("/", "_")).mkdir()
        self.scene.stranger = Asks(card=FOR_STRANGER)

    @property
    def is_exempt(self) -> bool:
        """Whether the case's pods are in an exempt namespace."""
        return self.namespace == "kube-system"

    def pod(self, name: str) -> Any:  # noqa: ANN401 (a PodSpec)
        """A pod of the case's namespace that shares CPUs."""
        return pod(name, 100, namespace=self.namespace, guaranteed=False)

    async def read(self) -> None:
        """The holder of the first vGPU uses more than its quota, for longer than the grace, and nobody else does."""
        for _ in range(READINGS):
            self._at_s += 1
            with suppress(CriproxyError):  # the daemon says that it does not know yet: the watcher goes on
                await self._watching.read(self._at_s, holder=9000, card=1000, stranger=8000)

    def limited(self, ran: Ran, *, guarded: bool) -> None:
        """The pod cannot switch off what enforces its quota, unless it is exempt."""
        envs = {env.key: env.value for env in self.scene.config(ran).envs}
        if (SWITCH[0] in envs) is (guarded and not self.is_exempt):
            self.problems.append(f"{SWITCH[0]} of {ran.pod.name}: {envs.get(SWITCH[0])!r}")
        if envs.get("CUDA_DEVICE_MEMORY_LIMIT_0") != b"8192m":
            self.problems.append(f"{ran.pod.name} has no limit")

    async def twin(self, of: Ran, *, guarded: bool) -> None:
        """Another pod comes with the same vGPU: it is refused while the first one's container is there."""
        ran = await self.scene.bring(self.pod("twin"), Asks(card=FOR_CARD))
        refused = ran.refusal is not None and ran.refusal.code is StatusCode.FAILED_PRECONDITION
        expected = guarded and not of.refusal
        if refused != expected or (ran.refusal and f"still has its vGPU {FOR_CARD}" not in ran.refusal.details):
            self.problems.append(f"another pod with the vGPU of card: {ran.refusal or 'it is created'}")

    async def ends(self, *, guarded: bool, over: bool) -> None:
        """At rest: everybody has what it was given, and only who used more was stopped, which its status says.

        Args:
            guarded: whether criproxy has rules about cards.
            over: whether the holder has used more than its quota.
        """
        holder, stops = self._ran("holder"), guarded and over and not self.is_exempt
        if over:
            await self.read()
        if stops:
            await self.scene.poll(lambda: holder.container_id not in self.scene.running())
        status = await self._status(holder)
        expected = (SAID if self.tells else UNSAID) if stops else ("", "")
        if (status.reason, status.message) != expected:
            self.problems.append(f"the holder's status says {status.reason!r}, {status.message!r}")
        if not stops and holder.container_id not in self.scene.running():
            self.problems.append("the holder does not run although it need not be stopped")
        if guarded:
            await self._all_have_theirs()
            await self._heir()

    async def _all_have_theirs(self) -> None:
        """Who runs and was given a vGPU has it, with its quota; nobody else was stopped."""
        answer = await self._ask("device-grants", {})
        grants = {each.container_id: each for each in (from_plain(Grant, one) for one in answer["containers"])}
        for name in ("card", "stranger"):
            for ran in (one for one in self.scene.runs if one.pod.name == name and one.container_id):
                if ran.container_id not in self.scene.running():
                    self.problems.append(f"{name} within its quota does not run")
                elif (grant := grants.get(ran.container_id)) is None or grant.quota != QUOTA:
                    self.problems.append(f"what {name} was given is not known: {grant}")

    async def _heir(self) -> None:
        """Once all containers with a vGPU have ended, the next pod gets it."""
        for ran in (one for one in self.scene.runs if one.pod.name in ("card", "twin") and one.container_id):
            request = api.StopContainerRequest(container_id=ran.container_id)
            await self.scene.client.call("StopContainer", request, api.StopContainerResponse)
        heir = await self.scene.bring(self.pod("heir"), Asks(card=FOR_CARD))
        if heir.refusal:
            self.problems.append(f"the next pod does not get the vGPU: {heir.refusal}")

    def _ran(self, name: str) -> Ran:
        return next(ran for ran in self.scene.runs if ran.pod.name == name)

    async def _status(self, ran: Ran) -> api.ContainerStatus:
        request = api.ContainerStatusRequest(container_id=ran.container_id)
        return (await self.scene.client.call("ContainerStatus", request, api.ContainerStatusResponse)).status

    async def _ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return await DevicePluginCommands(self.scene.controller).commands()[command](arguments)
