"""StartContainer and the kubelet's UpdateContainerResources: the two calls that have a container's lane to themselves.

A start is the barrier: it waits until nobody can still be running on the CPUs that the container gets.
"""

from dataclasses import dataclass

from criproxy.control.followups import Blocked, Followups
from criproxy.control.inquiry import Inquiry
from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite, translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.events import ContainerStarted, UnknownOutcome
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Verdict


@dataclass(frozen=True, slots=True)
class InLane:
    """A held call that holds the lane of a container until its end."""

    key: str


@dataclass(slots=True)
class Starts:
    """The handlers of StartContainer."""

    followups: Followups
    inquiry: Inquiry

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Let the start through once its CPUs are free and its own cpuset is up to date."""
        followups = self.followups
        key = followups.manager.resolve(translate.read(api.StartContainerRequest, message).container_id)
        try:
            while key in followups.manager.node.grants:
                await followups.clear(key)
                if await self._enter(key):
                    call.context = InLane(key)
                    break
        except Blocked as error:
            followups.log.warning("start refused", container=key, error=str(error))
            return Refuse(StatusCode.UNAVAILABLE, str(error))
        except RuntimeCallError as error:
            return Refuse(StatusCode.UNAVAILABLE, f"cannot set the cpuset of container {key} before its start: {error}")
        return Proceed()

    async def _enter(self, key: str) -> bool:
        """Take the lane with everything in order; False (without the lane) if something changed meanwhile."""
        followups = self.followups
        await followups.lanes.enter(key)
        try:
            await followups.settle(key)
            ready = not followups.blockers(key)
        except BaseException:
            followups.lanes.leave(key)
            raise
        if ready:
            followups.starting.add(key)
        else:
            followups.lanes.leave(key)
        return ready

    def done(self, call: Call, outcome: Outcome) -> None:
        """Book the start, and give the lane back when that is done."""
        if not isinstance(call.context, InLane):
            return
        key = call.context.key
        if outcome.kind is OutcomeKind.OK:
            booked = self.followups.submit(ContainerStarted(key))
        elif outcome.kind is OutcomeKind.UNKNOWN:
            booked = self.followups.submit(UnknownOutcome(key))
        else:
            self._ended(key)
            if outcome.kind is OutcomeKind.FAILED:  # it has exited then: the runtime tells
                self.followups.tasks.spawn(f"ask for {key}", self.inquiry.settle(key))
            return
        booked.add_done_callback(lambda _: self._ended(key))
        if outcome.kind is OutcomeKind.UNKNOWN:
            self.followups.tasks.spawn(f"ask for {key}", self.inquiry.settle(key, unknown=True))

    def _ended(self, key: str) -> None:
        self.followups.starting.discard(key)
        self.followups.lanes.leave(key)
        self.followups.kick([key], look=True)


@dataclass(slots=True)
class Updates:
    """The handlers of the kubelet's UpdateContainerResources."""

    followups: Followups
    _warned: bool = False

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Send it on with our cpuset: a new size comes without one, the kubelet's CPU manager sends its own."""
        request = translate.read(api.UpdateContainerResourcesRequest, message)
        followups = self.followups
        key = followups.manager.resolve(request.container_id)
        if key not in followups.manager.node.grants:
            return Proceed()
        await followups.lanes.enter(key)
        call.context = InLane(key)
        ours = followups.now(key)
        if ours is None:
            return Proceed()
        self._warn(request)
        return Proceed(rewrite.repin(request, format_cpuset(ours.cpus), format_cpuset(ours.mems)))

    def done(self, call: Call, outcome: Outcome) -> None:
        """Give the lane back, then look what the container has."""
        if isinstance(call.context, InLane):
            self.followups.lanes.leave(call.context.key)
            if outcome.kind is not OutcomeKind.NOT_SENT:
                self.followups.kick([call.context.key], look=True)

    def _warn(self, request: api.UpdateContainerResourcesRequest) -> None:
        if request.linux.cpuset_cpus and not self._warned:
            self._warned = True
            self.followups.log.warning(
                "the kubelet sets cpusets too: switch its CPU manager off (cpuManagerPolicy: none)",
                container=request.container_id,
                cpus=request.linux.cpuset_cpus,
            )
