"""A vGPU has one container: a create is refused while a container of another pod still has its vGPU.

The kubelet gives an id to the next pod as soon as the former pod's containers have ended, and hands that of an init
container on to the pod's other containers. So nobody is refused without the runtime's word: what criproxy knows of an
end may be a moment old.
"""

from dataclasses import dataclass

from criproxy.control.context import Context
from criproxy.control.devices.evidence import Gathered
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.evidence import Subject
from criproxy.devices.holdings import Holdings, vgpus_of
from criproxy.devices.may_see import Refusal
from criproxy.errors import StatusCode
from criproxy.model.workload import Container

ASK_S = 1.0
"""How long a create waits for the runtime to say whether the former container is still there."""


@dataclass(frozen=True, slots=True)
class VgpuOwners:
    """Knows which container has which vGPU."""

    context: Context
    holdings: Holdings

    async def taken(self, given: Gathered, subject: Subject) -> Refusal | None:
        """Why the container of *subject* cannot have the vGPU that it was given; None where it can."""
        node = self.context.state.node
        for kind, vgpu in vgpus_of(given.evidence):
            for holder in list(self.holdings.holders(node, kind, vgpu)):
                if not self._is_of_pod(holder, subject) and not await self._is_over(holder):
                    text = f"container {holder.title} still has its vGPU {vgpu}"
                    return Refusal(StatusCode.FAILED_PRECONDITION, text)
        return None

    def _is_of_pod(self, holder: Container, subject: Subject) -> bool:
        """Whether a container is of the same pod, in this sandbox or a former one."""
        pod = self.context.state.node.pods.get(holder.pod)
        known_uid = pod.uid if pod else ""
        return holder.pod == subject.sandbox_id or (subject.pod_uid != "" and known_uid == subject.pod_uid)

    async def _is_over(self, holder: Container) -> bool:
        """What the runtime says: it runs no more, or its pod was stopped before it ran.

        A runtime that does not answer is no reason to refuse.
        """
        if holder.key == holder.reservation:
            return False  # its own create goes on
        request = api.ContainerStatusRequest(container_id=holder.key)
        try:
            reply = await self.context.runtime.call("ContainerStatus", request, api.ContainerStatusResponse, ASK_S)
        except RuntimeCallError:
            return True
        pod = self.context.state.node.pods.get(holder.pod)
        never_runs = reply.status.state == api.CONTAINER_CREATED and (pod is None or pod.stopped)
        return never_runs or reply.status.state == api.CONTAINER_EXITED
