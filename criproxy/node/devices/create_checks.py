"""Checks of a create with a vGPU, or of a client of MPS.

A vGPU has one container, and its quota is enforced as the device plugin has decided. A create is refused while a
container of another pod still has its vGPU. The kubelet allocates an id to the next pod as soon as the former pod's
containers have ended, and passes that of an init container on to the pod's other containers. Therefore criproxy queries
the runtime before it refuses: its own state may be outdated by a moment.
"""

from dataclasses import dataclass, replace

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.boundary import Boundary, Finding, Refusal, Word
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import Subject
from criproxy.devices.holdings import Holdings, vgpus_of
from criproxy.devices.mps_client import mps_client, with_shared_memory
from criproxy.devices.plugin.enforcement import as_enforced, enforcement_in, lost_mounts, names_removed
from criproxy.errors import StatusCode
from criproxy.host.patience import Hangs, Patience
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.node.devices.evidence import Gathered

CHECK_S = 1.0
"""How long a create waits for each file of the host."""
QUERY_S = 1.0
"""How long a create waits for the runtime to report whether the former container is still there."""
_MOST_NAMED = 4
"""How many vGPUs a refusal names."""
_MOST_REMOVED, _REMOVED_CHARS = 8, 100
"""How many removed variables and mounts a finding names, and the longest name."""


class CheckFailed(Exception):
    """A create is refused."""

    def __init__(self, why: str) -> None:
        self.refusal = Refusal(StatusCode.FAILED_PRECONDITION, why)


async def check_mps(context: Context, patience: Patience, asked: DeviceRequest, given: Gathered) -> DeviceRequest:
    """Return the create of a client of MPS as it continues; only values that our device plugin wrote are checked.

    Not earlier: the daemon of a resource may start long after Allocate. Not later: the runtime creates every
    missing directory of a mount, and the daemon would then find a directory that it did not create.

    Raises:
        CheckFailed: the daemon does not run.
    """
    client = mps_client(asked) if given.is_joined else None
    if client is None:
        return asked
    settings = context.settings
    path, why = settings.host_root / client.pipe.lstrip("/"), ""
    try:
        if not await patience.wait(client.pipe, path.is_dir, settings.device_limits.scan_s):
            why = f"the directory {client.pipe} does not exist on this host: start the MPS control daemon"
    except Hangs as error:
        why = str(error)
    except OSError as error:
        why = f"the directory {client.pipe} cannot be accessed: {error.strerror}"
    if why:
        raise CheckFailed(f"it is a client of CUDA MPS, and {why}")
    return with_shared_memory(asked, client)


@dataclass(slots=True)
class Vgpus:
    """Checks creates of containers with a vGPU; the checks raise `CheckFailed`."""

    context: Context
    holdings: Holdings
    patience: Patience
    _is_silent: bool = False
    """Whether the runtime did not answer the last query, which was logged."""

    def check_single(self, given: Gathered) -> None:
        """Refuse a container that was allocated several vGPUs.

        The annotations of all vGPUs have the same names, and the kubelet keeps those of one: the quotas of the others
        are unknown.
        """
        ids = sorted({vgpu for _, vgpu in vgpus_of(given.evidence)})  # annotations come in any order
        if len(ids) > 1:
            some = " and ".join(ids[:_MOST_NAMED])
            raise CheckFailed(f"a container can have one vGPU, and this one was allocated {some}")

    async def check_free(self, given: Gathered, subject: Subject) -> None:
        """Refuse a container whose allocated vGPU another container still has."""
        node = self.context.state.node
        for kind, vgpu in vgpus_of(given.evidence):
            for holder in list(self.holdings.holders(node, kind, vgpu)):
                if not self._is_of_pod(holder, subject) and not await self._is_over(holder, vgpu):
                    raise CheckFailed(f"container {holder.title} still has its vGPU {vgpu}")

    async def limited(self, done: Boundary, given: Gathered) -> Boundary:
        """Return the create with the enforcement of the quota.

        Not earlier: the files that enforce it may have been removed since Allocate, which is called once for all
        restarts of a container. Not later: the runtime would create a directory in place of a missing file of a mount.
        """
        found = enforcement_in(done.asked.annotations)
        if found is None:
            return done
        if lost := lost_mounts(done.asked, found):
            raise CheckFailed(f"its create lacks the mount {lost[0]}, which enforces its quota")
        for path in found.needs:
            await self._check_exists(path)
        limited = as_enforced(done.asked, found)
        removed = bounded_texts(names_removed(done.asked, limited), _MOST_REMOVED, _REMOVED_CHARS)
        if not removed:
            return replace(done, asked=limited)
        kind = next((kind for kind, _ in vgpus_of(given.evidence)), "")
        text = f"{kind}: it could have changed the limits of its vGPU: criproxy removed {', '.join(removed)}"
        return replace(done, asked=limited, findings=(*done.findings, Finding(kind, Word.STRIPPED, text)))

    async def _check_exists(self, path: str) -> None:
        try:
            on_host = self.context.settings.host_root / path.lstrip("/")
            if not await self.patience.wait(path, on_host.exists, CHECK_S):
                raise CheckFailed(f"{path}, which enforces the quota of its vGPU, does not exist on this host")
        except Hangs as error:
            raise CheckFailed(str(error)) from error
        except OSError as error:
            raise CheckFailed(f"{path} cannot be accessed: {error.strerror}") from error

    def _is_of_pod(self, holder: Container, subject: Subject) -> bool:
        """Whether a container is of the same pod, in this sandbox or a former one."""
        pod = self.context.state.node.pods.get(holder.pod)
        known_uid = pod.uid if pod else ""
        return holder.pod == subject.sandbox_id or (subject.pod_uid != "" and known_uid == subject.pod_uid)

    async def _is_over(self, holder: Container, vgpu: str) -> bool:
        """Whether the runtime reports that *holder* has ended, or will not start because its pod was stopped.

        True, too, if the runtime does not answer: that is no reason to refuse.
        """
        if holder.key == holder.reservation:
            return False  # its create is in flight
        try:
            reply = await self.context.runtime.container_status(holder.key, QUERY_S)
        except RuntimeCallError as error:
            self._note(error, holder, vgpu)
            return True
        self._is_silent = False
        pod = self.context.state.node.pods.get(holder.pod)
        never_runs = reply.status.state == api.CONTAINER_CREATED and (pod is None or pod.stopped)
        return never_runs or reply.status.state == api.CONTAINER_EXITED

    def _note(self, error: RuntimeCallError, holder: Container, vgpu: str) -> None:
        """Log once, until the runtime answers again, that it is unknown whether a container has ended."""
        if not self._is_silent and not error.not_found:
            text = "the runtime does not report whether a container still has its vGPU"
            self.context.log.warning(text, container=holder.title, vgpu=vgpu, error=str(error), result="not refused")
        self._is_silent = not error.not_found
