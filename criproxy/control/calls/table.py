"""The table of held and watched calls, and the small handlers: sandboxes, and the ends of containers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from criproxy.control.calls.create import Creates
from criproxy.control.calls.deadlines import Limits
from criproxy.control.calls.start import Starts, Updates
from criproxy.control.context import Context
from criproxy.control.devices.guard import DeviceGuard
from criproxy.control.sync.inheritance import Inheritance
from criproxy.control.sync.outcomes import Outcomes
from criproxy.control.sync.resync import Resync
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.methods import paths
from criproxy.engine.events import (
    ContainerExited,
    ContainerGone,
    PodCreated,
    PodGone,
    PodResized,
    PodStopped,
    UnknownOutcome,
)
from criproxy.errors import Fault
from criproxy.model.workload import ContainerState
from criproxy.wire.calls import Call, DoneHandler, HoldHandler, Outcome, OutcomeKind, Refuse, Rule, Table, Verdict


class Overdue(Fault):
    """A handler of ours took too long; what it had done for the call is undone at the call's end."""

    hung = True


@dataclass(slots=True)
class Handlers:
    """One function per watched method; held ones wait until the node is known."""

    context: Context
    outcomes: Outcomes
    resync: Resync
    devices: DeviceGuard
    inheritance: Inheritance
    creates: Creates
    starts: Starts
    updates: Updates
    limits: Limits = field(default_factory=Limits)

    def table(self) -> Table:
        """The rules of all calls that the controller touches, in both packages of CRI."""
        rules = {
            "RunPodSandbox": Rule(done=_readable(self.sandbox_run)),
            "StopPodSandbox": Rule(done=_readable(self.sandbox_stopped)),
            "RemovePodSandbox": Rule(done=_readable(self.sandbox_removed)),
            "CreateContainer": Rule(hold=self._known(self.creates.hold, hurry=True), done=self.container_created),
            "StartContainer": Rule(hold=self._known(self.starts.hold), done=self.container_started),
            "UpdateContainerResources": Rule(hold=self._known(self.updates.hold), done=self.updates.done),
            "StopContainer": Rule(done=_readable(self.container_stopped)),
            "RemoveContainer": Rule(done=_readable(self.container_removed)),
            "UpdatePodSandboxResources": Rule(done=_readable(self.sandbox_resized)),
            "RestorePod": Rule(done=self.sandbox_restored),
        }
        return {path: self._checked(rule) for name, rule in rules.items() for path in paths(name)}

    def sandbox_run(self, request: bytes, outcome: Outcome) -> None:
        """A sandbox was made; one of unknown outcome is learnt of at its first container."""
        if outcome.kind is OutcomeKind.OK and outcome.reply is not None:
            run = translate.read(api.RunPodSandboxRequest, request)
            sandbox_id = translate.read(api.RunPodSandboxResponse, outcome.reply).pod_sandbox_id
            pod = translate.pod(run.config, sandbox_id)
            self.context.state.submit(PodCreated(pod, self.inheritance.of(pod.uid)))
            self.devices.sandbox_run(run, sandbox_id)

    def sandbox_stopped(self, request: bytes, outcome: Outcome) -> None:
        """All containers of a sandbox have ended."""
        sandbox_id = translate.read(api.StopPodSandboxRequest, request).pod_sandbox_id
        self._sandbox(sandbox_id, outcome, PodStopped)

    def sandbox_removed(self, request: bytes, outcome: Outcome) -> None:
        """A sandbox is gone with all its containers."""
        sandbox_id = translate.read(api.RemovePodSandboxRequest, request).pod_sandbox_id
        if outcome.kind is OutcomeKind.OK:  # otherwise it may run on, with its cards; a list will tell
            key = self.context.state.resolve_pod(sandbox_id)
            self.devices.sandbox_removed(key)
            self.context.state.forget_refused({key, sandbox_id})
        self._sandbox(sandbox_id, outcome, PodGone)

    def sandbox_resized(self, request: bytes, outcome: Outcome) -> None:
        """The pod has another size: whatever the runtime did with its containers is looked at."""
        update = translate.read(api.UpdatePodSandboxResourcesRequest, request)
        sandbox_id = update.pod_sandbox_id
        if update.resources.cpu_shares and outcome.kind is not OutcomeKind.NOT_SENT:
            # Whatever the runtime says (containerd does not know this call before 2.3), the kubelet goes on with it.
            total, key = translate.pod_total(update.resources), self.context.state.resolve_pod(sandbox_id)
            self.context.state.submit(PodResized(key, total))
        if outcome.kind in (OutcomeKind.OK, OutcomeKind.UNKNOWN):
            key = self.context.state.resolve_pod(sandbox_id)
            self.context.tasks.spawn(f"look at {key}", self.resync.of_sandbox(key))

    def sandbox_restored(self, call: Call, outcome: Outcome) -> None:
        """A pod came back from a checkpoint: its containers run without a create or a start of theirs."""
        if outcome.kind is OutcomeKind.OK and outcome.reply is not None:
            key = translate.read(api.RestorePodResponse, outcome.reply).pod_sandbox_id
            self.context.tasks.spawn(f"look at {key}", self.resync.of_sandbox(key))
        elif outcome.kind is not OutcomeKind.NOT_SENT:
            self.resync.soon()

    def container_created(self, call: Call, outcome: Outcome) -> None:
        """A create ended; a container that we did not place is adopted."""
        if not self.creates.done(call, outcome):
            self.resync.soon()

    def container_started(self, call: Call, outcome: Outcome) -> None:
        """A start ended; lists from before it say nothing of the container."""
        self.starts.done(call, outcome)
        if call.request is not None:
            container_id = translate.read(api.StartContainerRequest, call.request).container_id
            self.resync.touch(self.context.state.resolve(container_id))

    def container_stopped(self, request: bytes, outcome: Outcome) -> None:
        """A container has ended and gives up its place; one that never ran may still be started."""
        key = self.context.state.resolve(translate.read(api.StopContainerRequest, request).container_id)
        self.resync.touch(key)
        container = self.context.state.node.containers.get(key)
        if outcome.kind is not OutcomeKind.OK or container is None or container.state is ContainerState.CREATED:
            self._ask(key, outcome)
        elif self._outlasts_a_stop(key):
            self.outcomes.ends(key)
        else:
            self.context.state.submit(ContainerExited(key))

    def container_removed(self, request: bytes, outcome: Outcome) -> None:
        """A container is gone."""
        key = self.context.state.resolve(translate.read(api.RemoveContainerRequest, request).container_id)
        self.resync.touch(key)
        if outcome.kind is OutcomeKind.OK:
            self.context.state.submit(ContainerGone(key))
        else:
            self._ask(key, outcome)
            self._may_go_on(outcome)

    def _sandbox(self, sandbox_id: str, outcome: Outcome, event: type[PodStopped | PodGone]) -> None:
        key = self.context.state.resolve_pod(sandbox_id)
        self.resync.touch(key)
        if outcome.kind is OutcomeKind.OK:
            self.inheritance.ended(self.context.state.node, key)
            if event is PodStopped:
                self._keep_starts(key)
            self.context.state.submit(event(key))
            return
        for container in self.context.state.node.containers_of(key):
            self._ask(container.key, outcome)
        pod = self.context.state.node.pods.get(key)
        if event is PodGone or (pod and pod.uid in self.context.state.node.kept):
            self._may_go_on(outcome)

    def _may_go_on(self, outcome: Outcome) -> None:
        """Look for the end of a removal that may be under way after its call has ended."""
        if outcome.kind is not OutcomeKind.NOT_SENT:
            self.resync.unsettled()

    def _keep_starts(self, sandbox: str) -> None:
        """Let nobody lose the place that it is just being started in: the stop of a sandbox does not see these."""
        for container in self.context.state.node.containers_of(sandbox):
            asked = container.key in self.context.in_flight.starting or self.context.in_flight.may_start(container.key)
            if self._outlasts_a_stop(container.key):
                self.context.state.submit(UnknownOutcome(container.key))
            elif container.state is not ContainerState.UNKNOWN or container.key == container.reservation:
                continue
            self.outcomes.ends(container.key)
            if not asked:
                self.outcomes.ask(container.key)

    def _outlasts_a_stop(self, key: str) -> bool:
        """Whether the runtime ends nothing when it is told to stop *key*: it does not know that it runs, or will."""
        return key in self.context.in_flight.starting or self.outcomes.is_doubtful(key)

    def _ask(self, key: str, outcome: Outcome) -> None:
        """Ask for the state of a container after a call that should have ended it did not say so."""
        container = self.context.state.node.containers.get(key)
        if container and key != container.reservation and outcome.kind is not OutcomeKind.NOT_SENT:
            self.outcomes.ask(key)

    def _checked(self, rule: Rule) -> Rule:
        """*rule*; where booking a call's end fails, the runtime is asked what is true."""

        def done(call: Call, outcome: Outcome) -> None:
            assert rule.done is not None
            try:
                rule.done(call, outcome)
            except Exception:
                self.resync.soon()
                raise  # the data plane counts and logs it

        return replace(rule, done=done)

    def _known(self, hold: HoldHandler, *, hurry: bool = False) -> HoldHandler:
        """*hold* for a node that is known, within a limit; a shorter one in bypass where there is *hurry*."""
        manager, settings, counters = self.context.state, self.context.settings, self.context.counters
        limits, failures = self.limits, self.context.failures

        async def when_known(call: Call, message: bytes) -> Verdict:
            limit_s = settings.bypass_timeout_s if hurry and manager.bypassed else settings.handler_timeout_s
            limit = limits.begin(limit_s)
            try:
                await self.resync.ready()
                await manager.settled()
                verdict = await hold(call, message)
            except BaseException as error:
                if limits.end(limit) and isinstance(error, asyncio.CancelledError):
                    name = call.method.rpartition("/")[2]
                    raise Overdue(f"criproxy did not get done with {name} within {limit_s:g} s") from error
                raise
            limits.end(limit)
            if isinstance(verdict, Refuse):
                with failures.harmless("a count"):
                    counters.refusals[verdict.code.name] += 1
            return verdict

        return when_known


def _readable(handler: Callable[[bytes, Outcome], None]) -> DoneHandler:
    """Skip calls whose request was too large or malformed: the runtime has refused those."""

    def done(call: Call, outcome: Outcome) -> None:
        if call.request is not None:
            handler(call.request, outcome)

    return done
