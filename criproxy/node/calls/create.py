"""CreateContainer: reserve a place before the runtime receives the call, and confirm or release it after the answer."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time, time_ns

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite, sizes, translate
from criproxy.cri.asked import asked
from criproxy.cri.methods import BY_PATH
from criproxy.cri.pods import ContainerSpec
from criproxy.cri.stamp import MISSED, missed_text
from criproxy.errors import NotEnough, Refused, StatusCode
from criproxy.host.numa import read_huge_pages
from criproxy.model.cpuset import format_cpuset
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState, Miss, Missed
from criproxy.node.calls.update import Updates
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.record.state import Words
from criproxy.node.settings import OnError
from criproxy.node.sync.ends import Inheritance
from criproxy.node.sync.hotplug import Hotplug
from criproxy.node.sync.outcomes import Outcomes
from criproxy.placement import events
from criproxy.placement.decision import Decision
from criproxy.placement.rules.promotion import as_before
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Verdict


@dataclass(slots=True)
class HeldCreate:
    """The state of a held create."""

    sandbox_id: str
    place: str
    """The reservation that holds its place: its own, or that of the create that it repeats."""
    moves: bool = False
    """Whether containers that run have to give up CPUs for it."""
    guarding: bool = False
    """Whether the device rules are being applied, or have not returned."""


@dataclass(slots=True)
class Creates:
    """The handlers of CreateContainer.

    `hold` reserves the place; `done` confirms or releases it. It is not reserved earlier: only the create contains the
    requests of the container. Nor later, with the runtime's reply: the cpuset has to be in the message that the runtime
    receives, and other creates that are decided meanwhile must not get the same CPUs. It is not confirmed at once,
    because the id comes with the reply, and without a reply the outcome is unknown: until lists show it
    (`Outcomes.create_unknown`), no other container gets the CPUs of the reservation. And a failed create releases the
    place only if the kubelet does not repeat it at that moment: both share one place, and the last one to end decides.
    """

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    devices: DeviceGuard
    inheritance: Inheritance
    hotplug: Hotplug
    updates: Updates
    """Knows whether the kubelet sets cpusets, too."""
    _creating: Counter[str] = field(default_factory=Counter)
    """How many creates are in flight in each sandbox."""
    _only_named: set[str] = field(default_factory=set)
    """Sandboxes that only creates have named, and in which none is known to have made a container; see `_ends`."""

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Reserve a place and write it into the message; refuse the call if the container does not fit."""
        try:
            request = translate.read(api.CreateContainerRequest, message)
        except translate.NotUtf8 as error:
            return self._not_utf8(message, error)
        request.pod_sandbox_id = self.context.state.resolve_pod(request.pod_sandbox_id)
        capacity_bytes = self.context.state.node.topology.capacity_bytes
        container = self._beside_pages(translate.container(request, _new_reservation(), capacity_bytes))
        self.updates.on_create(container.title, request.config.linux.resources.cpuset_cpus)
        call.context = creating = HeldCreate(container.pod, container.key)
        self.context.in_flight.create(creating.place)
        self._creating[creating.sandbox_id] += 1
        spec = await self.context.pods.container(request.sandbox_config.metadata.uid, container.name)
        container = sizes.exactly(container, spec)
        with self.context.failures.harmless("what a create asks for"):
            self._note_asked(request, container, capacity_bytes, spec)
        try:
            creating.guarding = True
            guarded = await self.devices.guard(request, container)
            creating.guarding = False
            await self._update_pod(request, creating)
            await self.hotplug.follow(container, request.sandbox_config.linux.cgroup_parent)
            asking = container
            if guarded.hints or guarded.stays:
                asking = replace(container, hints=guarded.hints, stays=guarded.stays)
            decision = await self._place(asking)
        except Refused as error:
            return self._refused(container, error.code, str(error))
        if decision.key and decision.key != creating.place:
            self.context.in_flight.end_create(creating.place)
            creating.place = decision.key
            self.context.in_flight.create(creating.place)
        creating.moves = bool(decision.updates)
        if _must_be_durable(container, decision):
            await self.context.durable(creating.place)  # if this fails, `_release` undoes the create
        grant = decision.grant
        if grant is None:
            return Proceed(request.SerializeToString() if guarded.changed else None)
        pod = decision.node.pods.get(creating.sandbox_id)
        placed = decision.node.containers[creating.place]
        stamp = translate.stamp_of(placed, pod.cpu_total_milli if pod else 0)
        return Proceed(rewrite.place(request, grant, placed, stamp))

    def done(self, call: Call, outcome: Outcome) -> bool:
        """Confirm or release the place; False if this create had none and may have created a container."""
        if not isinstance(call.context, HeldCreate):
            return outcome.kind in (OutcomeKind.FAILED, OutcomeKind.NOT_SENT)
        place, sandbox_id = call.context.place, call.context.sandbox_id
        self.context.in_flight.end_create(place)
        is_last = self._ends(sandbox_id)
        may_be_made = outcome.kind in (OutcomeKind.OK, OutcomeKind.UNKNOWN)
        if may_be_made:  # the runtime has that sandbox
            self._only_named.discard(sandbox_id)
        known = self.context.state.node.containers.get(place)
        if container_id := _created_id(outcome):
            confirmed = self.context.state.submit(events.ContainerCreated(place, container_id))
            # The cpuset in its message may be outdated: others were placed while it had no id.
            confirmed.add_done_callback(lambda _: self.reconciler.enqueue([container_id]))
        elif may_be_made and not (known and known.has_id):
            self.outcomes.create_unknown(place, sandbox_id)
        elif self._only_reserved(place):
            self._release(call.context, is_last=is_last)
        else:
            # The create repeated one of a container that exists: its outcome does not end that container, and the
            # cpuset in its message is not in force.
            self.reconciler.enqueue([place], read=True)
        return True

    async def without_place(self, call: Call, message: bytes, *, shared: bool) -> Verdict:
        """Answer a create whose handler failed, without a place for its container; the device rules still apply.

        Args:
            call: the create; its reservation is released.
            message: its request.
            shared: whether to use the CPUs that are not exclusive instead of the cpuset that the kubelet sent.
        """
        container = self.container_of(call, message)
        hung = isinstance(call.context, HeldCreate) and call.context.guarding  # the device rules catch their own errors
        self.abandon(call)
        request = translate.read(api.CreateContainerRequest, message)
        try:
            if hung:  # the rules do not run again: every card is hidden
                self.devices.hide(request, container, TimeoutError("it did not finish in time"))
            else:
                await self.devices.guard(request, container)
        except Refused as error:
            return Refuse(error.code, str(error))
        cpus = self.context.state.node.shared_cpus  # read now: the rules may have taken seconds
        if shared and not cpus:  # an empty set would mean all CPUs that its pod may use, including exclusive ones
            return Refuse(StatusCode.RESOURCE_EXHAUSTED, "criproxy failed, and every CPU of this node is exclusive")
        if shared:
            request.config.linux.resources.cpuset_cpus = format_cpuset(cpus)
        # When the container is adopted, this annotation shows that criproxy failed at its create: it is placed later.
        request.config.annotations[MISSED] = missed_text(Missed(why=Miss.FAILED, since_s=time()))
        return Proceed(request.SerializeToString())

    def container_of(self, call: Call, message: bytes | None) -> Container | None:
        """Return the container of a create whose handler failed; None for other calls and unreadable messages."""
        if message is None or BY_PATH[call.method].name != "CreateContainer":
            return None
        place = call.context.place if isinstance(call.context, HeldCreate) else _new_reservation()
        with suppress(Exception):  # the read may be the failure itself, which is reported already
            return translate.container(translate.read(api.CreateContainerRequest, message), place)
        return None

    def abandon(self, call: Call) -> None:
        """Release the reservation of a create whose handler failed; when it ends, its container is adopted."""
        if isinstance(call.context, HeldCreate):
            creating, call.context = call.context, None
            self.context.in_flight.end_create(creating.place)
            is_last = self._ends(creating.sandbox_id)
            if self._only_reserved(creating.place):
                self._release(creating, is_last=is_last)

    def _ends(self, sandbox_id: str) -> bool:
        """Record the end of a create; return whether it was the last one in a sandbox that only creates have named.

        If none of these creates leads to a container, the sandbox is forgotten then, and not when the one that named it
        ends: others, which may not be decided yet, would lose their places and their pod's annotations.
        """
        self._creating[sandbox_id] -= 1
        if self._creating[sandbox_id]:
            return False
        del self._creating[sandbox_id]
        is_only_named = sandbox_id in self._only_named
        self._only_named.discard(sandbox_id)
        return is_only_named

    def _not_utf8(self, message: bytes, error: translate.NotUtf8) -> Verdict:
        """Refuse a create with a string that is not UTF-8: criproxy cannot write such a message.

        With ``onError: pass`` and without device rules, it passes as it came, and its container is adopted afterwards.
        """
        request = translate.view_identity(message)
        request.pod_sandbox_id = self.context.state.resolve_pod(request.pod_sandbox_id)
        container = translate.container(request, _new_reservation())
        text = f"{error.strings} in its CreateContainer request is not UTF-8"
        if self.devices.rules is None and self.context.settings.on_error is OnError.PASS:
            self.context.log.warning("container passes without a place", container=container.title, error=text)
            self.context.state.note(container, Kind.PASSED, f"{text}; criproxy adopts it afterwards")
            return Proceed()
        advice = "write it in UTF-8 in the specification of the pod"
        return self._refused(container, error.code, f"container {container.title} is refused: {text}: {advice}")

    def _refused(self, container: Container, code: StatusCode, text: str) -> Refuse:
        """Refuse a container because of what its pod asks for: no failure of criproxy."""
        self.context.log.warning("container refused", container=container.title, error=text)
        self.context.state.note(container, Kind.REFUSED, text)
        return Refuse(code, text)

    def _note_asked(
        self, request: api.CreateContainerRequest, container: Container, capacity_bytes: int, spec: ContainerSpec | None
    ) -> None:
        sent = api.LinuxContainerResources()
        sent.CopyFrom(request.config.linux.resources)  # as the kubelet sent it: the request is changed in place
        parent = request.sandbox_config.linux.cgroup_parent

        def words() -> Words:
            wishes = asked(sent, container, parent, capacity_bytes, spec)
            return wishes.sentences, {**wishes.facts}

        self.context.state.note_later(container, Kind.ASKED, words)

    def _release(self, creating: HeldCreate, *, is_last: bool) -> None:
        """Release the place of a create without a container; if it *is_last* in its sandbox, also the sandbox."""
        others = {one.key for one in self.context.state.node.containers_of(creating.sandbox_id)} - {creating.place}
        gone = events.PodGone(creating.sandbox_id) if is_last and not others else events.ContainerGone(creating.place)
        self.context.state.submit(gone)

    def _beside_pages(self, container: Container) -> Container:
        """Return the container with the machine's huge pages of the sizes that it asks for, as they are now."""
        if not container.huge_pages:
            return container
        there = read_huge_pages(self.context.settings.host_root, self.context.state.node.topology.mems)
        return replace(container, huge_pages=tuple(each.beside(there) for each in container.huge_pages))

    async def _update_pod(self, request: api.CreateContainerRequest, creating: HeldCreate) -> None:
        """Add the sandbox to the node if it is unknown, or update its size."""
        await self.context.state.settled()  # the sandbox's removal may be queued
        known = self.context.state.node.pods.get(creating.sandbox_id)
        if known is None:
            self._only_named.add(creating.sandbox_id)
            pod = translate.pod(request.sandbox_config, creating.sandbox_id)
            await self.context.state.apply(events.PodCreated(pod, self.inheritance.of(pod.uid)))
        elif request.sandbox_config.linux.HasField("resources"):
            total = sizes.pod_total(request.sandbox_config.linux.resources)
            if total != known.cpu_total_milli:
                await self.context.state.apply(events.PodResized(known.key, total))

    async def _place(self, container: Container) -> Decision:
        """Ask the policy; before it refuses, release the places of containers that have ended meanwhile."""
        state, creating = self.context.state, events.ContainerCreating(container)
        if state.bypassed:  # no place changes, so the policy need not be asked
            return await state.apply(creating)
        if container.pod in state.node.pods_with_exclusive:
            await self.outcomes.release_exited(container.pod)  # init containers end without a call
        with suppress(NotEnough):
            return await state.apply(creating)
        await self.outcomes.release_exited()
        try:
            return await state.apply(creating)
        except NotEnough:
            smaller = as_before(state.node, container, time())
            if smaller is None:
                raise
        # A resize to this size was refused while the container ran; its next attempt must not fail because of that.
        return await state.apply(events.ContainerCreating(smaller))

    def _only_reserved(self, place: str) -> bool:
        """Whether only the create that ended held the place: it has no id, and no create for it is in flight."""
        container, in_flight = self.context.state.node.containers.get(place), self.context.in_flight
        reserved = container is None or container.state is ContainerState.CREATING
        return reserved and not in_flight.is_creating(place) and not in_flight.is_asked(place)


def _must_be_durable(container: Container, decision: Decision) -> bool:
    """Whether the decision must be on disk before the runtime receives the create.

    It must if the create takes CPUs of others, gets exclusive CPUs, or repeats another create. A shared container is
    recognised by its stamp, and adopted where it runs: docs/decisions/0038.
    """
    if decision.in_bypass:  # no container newly gets exclusive CPUs, and the disk may be what failed
        return False
    grant = decision.grant
    return bool(decision.updates or decision.key != container.key or (grant and grant.exclusive))


def _new_reservation() -> str:
    """Return an unused reservation ID: milliseconds since the epoch, and 80 random bits.

    The store sorts by it: so what it writes about new containers is side by side, and not everywhere in the database.
    """
    return f"r-{time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def _created_id(outcome: Outcome) -> str:
    """Return the id in the reply of a successful create; empty if there is none or it cannot be read."""
    if outcome.kind is OutcomeKind.OK and outcome.reply is not None:
        with suppress(translate.UnreadableMessage):
            return translate.read(api.CreateContainerResponse, outcome.reply).container_id
    return ""
