"""A vGPU at a create: it has one container, which is held to its quota by what the device plugin has decided.

A create is refused while a container of another pod still has its vGPU. The kubelet gives an id to the next pod as soon
as the former pod's containers have ended, and hands that of an init container on to the pod's other containers. So
nobody is refused without the runtime's word: what criproxy knows of an end may be a moment old.
"""

from dataclasses import dataclass
from pathlib import Path

from criproxy.control.context import Context
from criproxy.control.devices.evidence import Gathered
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.boundary import Refusal
from criproxy.devices.device_request import DeviceRequest
from criproxy.devices.enforcement import as_enforced, enforcement_in, lost_mounts
from criproxy.devices.evidence import Subject
from criproxy.devices.holdings import Holdings, vgpus_of
from criproxy.discovery.patience import Hangs, Patience
from criproxy.errors import StatusCode
from criproxy.model.workload import Container

LOOK_S = 1.0
"""How long a create waits for each file of the host."""
ASK_S = 1.0
"""How long a create waits for the runtime to say whether the former container is still there."""
_MOST_NAMED = 4
"""Of several vGPUs, those that a refusal names."""


@dataclass(slots=True)
class Vgpus:
    """Checks creates of containers with a vGPU."""

    context: Context
    holdings: Holdings
    patience: Patience
    _is_silent: bool = False
    """Whether the runtime did not answer the last question, as the log has it."""

    def several(self, given: Gathered) -> Refusal | None:
        """Why a container that was given several vGPUs is not created; None for the others.

        The annotations of all vGPUs have the same names, and the kubelet keeps those of one: the quota of the others is
        not known.
        """
        ids = sorted({vgpu for _, vgpu in vgpus_of(given.evidence)})  # annotations come in any order
        if len(ids) < 2:
            return None
        return _refused(f"a container can have one vGPU, and this one was allocated {' and '.join(ids[:_MOST_NAMED])}")

    async def taken(self, given: Gathered, subject: Subject) -> Refusal | None:
        """Why the container of *subject* cannot have the vGPU that it was given; None where it can."""
        node = self.context.state.node
        for kind, vgpu in vgpus_of(given.evidence):
            for holder in list(self.holdings.holders(node, kind, vgpu)):
                if not self._is_of_pod(holder, subject) and not await self._is_over(holder, vgpu):
                    return _refused(f"container {holder.title} still has its vGPU {vgpu}")
        return None

    async def limited(self, asked: DeviceRequest) -> DeviceRequest | Refusal:
        """The create with what enforces the quota, or why it does not go on.

        Not earlier: what enforces it may have been removed since Allocate, which is called once for all restarts of a
        container. Not later: the runtime would make a directory in the place of a file that a mount lacks.
        """
        found = enforcement_in(asked.annotations)
        if found is None:
            return asked
        if lost := lost_mounts(asked, found):
            return _refused(f"its create lacks the mount {lost[0]}, which enforces its quota")
        for path in found.needs:
            try:
                there = await self.patience.wait(path, (self._root / path.lstrip("/")).exists, LOOK_S)
            except Hangs as error:
                return _refused(str(error))
            except OSError as error:
                return _refused(f"{path} cannot be looked at: {error.strerror}")
            if not there:
                return _refused(f"{path}, which enforces the quota of its vGPU, does not exist on this host")
        return as_enforced(asked, found)

    @property
    def _root(self) -> Path:
        return self.context.settings.host_root

    def _is_of_pod(self, holder: Container, subject: Subject) -> bool:
        """Whether a container is of the same pod, in this sandbox or a former one."""
        pod = self.context.state.node.pods.get(holder.pod)
        known_uid = pod.uid if pod else ""
        return holder.pod == subject.sandbox_id or (subject.pod_uid != "" and known_uid == subject.pod_uid)

    async def _is_over(self, holder: Container, vgpu: str) -> bool:
        """What the runtime says: it runs no more, or its pod was stopped before it ran.

        A runtime that does not answer is no reason to refuse.
        """
        if holder.key == holder.reservation:
            return False  # its own create goes on
        request = api.ContainerStatusRequest(container_id=holder.key)
        try:
            reply = await self.context.runtime.call("ContainerStatus", request, api.ContainerStatusResponse, ASK_S)
        except RuntimeCallError as error:
            self._note(error, holder, vgpu)
            return True
        self._is_silent = False
        pod = self.context.state.node.pods.get(holder.pod)
        never_runs = reply.status.state == api.CONTAINER_CREATED and (pod is None or pod.stopped)
        return never_runs or reply.status.state == api.CONTAINER_EXITED

    def _note(self, error: RuntimeCallError, holder: Container, vgpu: str) -> None:
        """Let the log have that it is not known whether a container is over: once until the runtime answers again."""
        if not self._is_silent and not error.not_found:
            text = "the runtime does not report whether a container still has its vGPU"
            self.context.log.warning(text, container=holder.title, vgpu=vgpu, error=str(error), result="not refused")
        self._is_silent = not error.not_found


def _refused(why: str) -> Refusal:
    return Refusal(StatusCode.FAILED_PRECONDITION, why)
