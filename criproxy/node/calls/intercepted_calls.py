"""The table of held and watched calls, and the small handlers: sandboxes, and ends of containers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri import sizes, translate
from criproxy.cri.methods import paths
from criproxy.errors import Fault
from criproxy.model.workload import ContainerState
from criproxy.node.calls.create import Creates
from criproxy.node.calls.on_error import note_failed
from criproxy.node.calls.start import Starts
from criproxy.node.calls.update import Updates
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.sync.ends import Inheritance
from criproxy.node.sync.outcomes import Outcomes
from criproxy.node.sync.resync import Resync
from criproxy.placement import events
from criproxy.wire.calls import Call, DoneHandler, HoldHandler, Outcome, OutcomeKind, Refuse, Rule, Table, Verdict


@dataclass(slots=True)
class Handlers:
    """One function for each watched method; handlers of held calls wait until the node is known."""

    context: Context
    outcomes: Outcomes
    resync: Resync
    devices: DeviceGuard
    inheritance: Inheritance
    creates: Creates
    starts: Starts
    updates: Updates

    def table(self) -> Table:
        """Return the rules of all calls that are held or watched; `status_replies` has the rules for edited replies."""
        known, watch = self._known, self._watch
        rules = {
            "RunPodSandbox": watch(api.RunPodSandboxRequest, self.sandbox_run),
            "StopPodSandbox": watch(api.StopPodSandboxRequest, self.sandbox_stopped),
            "RemovePodSandbox": watch(api.RemovePodSandboxRequest, self.sandbox_removed),
            "CreateContainer": self._rule(self.container_created, known(self.creates.hold, hurry=True)),
            "StartContainer": self._rule(self.starts.done, known(self.starts.hold)),
            "UpdateContainerResources": self._rule(self.updates.done, known(self.updates.hold)),
            "StopContainer": watch(api.StopContainerRequest, self.container_stopped),
            "RemoveContainer": watch(api.RemoveContainerRequest, self.container_removed),
            "UpdatePodSandboxResources": watch(api.UpdatePodSandboxResourcesRequest, self.sandbox_resized),
            "RestorePod": self._rule(self.sandbox_restored),
        }
        return {path: rule for name, rule in rules.items() for path in paths(name)}

    def sandbox_run(self, run: api.RunPodSandboxRequest, outcome: Outcome) -> None:
        """Add a sandbox that was created; if the outcome is unknown, its first container adds it."""
        if outcome.kind is OutcomeKind.OK and outcome.reply is not None:
            sandbox_id = translate.read(api.RunPodSandboxResponse, outcome.reply).pod_sandbox_id
            pod = translate.pod(run.config, sandbox_id)
            self.context.state.submit(events.PodCreated(pod, self.inheritance.of(pod.uid)))
            self.devices.sandbox_run(run, sandbox_id)
            self.context.pods.prefetch(pod.uid)

    def sandbox_stopped(self, stop: api.StopPodSandboxRequest, outcome: Outcome) -> None:
        """Apply that all containers of a sandbox have ended."""
        self._sandbox(stop.pod_sandbox_id, outcome, events.PodStopped)

    def sandbox_removed(self, remove: api.RemovePodSandboxRequest, outcome: Outcome) -> None:
        """Apply that a sandbox is gone with all its containers."""
        if outcome.kind is OutcomeKind.OK:  # otherwise it may still run, with its cards; a list will show that
            key = self.context.state.resolve_pod(remove.pod_sandbox_id)
            self.devices.sandbox_removed(key)
            self.context.state.forget_refused({key, remove.pod_sandbox_id})
        self._sandbox(remove.pod_sandbox_id, outcome, events.PodGone)

    def sandbox_resized(self, update: api.UpdatePodSandboxResourcesRequest, outcome: Outcome) -> None:
        """Apply the new size of a pod, and check its containers, which the runtime may have changed."""
        key = self.context.state.resolve_pod(update.pod_sandbox_id)
        if update.resources.cpu_shares and outcome.kind is not OutcomeKind.NOT_SENT:
            # The kubelet continues with this size even after an error (containerd before 2.3 does not know this call).
            self.context.state.submit(events.PodResized(key, sizes.pod_total(update.resources)))
        if outcome.kind in (OutcomeKind.OK, OutcomeKind.UNKNOWN):
            self.context.tasks.spawn(f"resync {key}", self.resync.of_sandbox(key))

    def sandbox_restored(self, call: Call, outcome: Outcome) -> None:
        """List the containers of a pod that was restored from a checkpoint: they run without a create or a start."""
        if outcome.kind is OutcomeKind.OK and outcome.reply is not None:
            key = translate.read(api.RestorePodResponse, outcome.reply).pod_sandbox_id
            self.context.tasks.spawn(f"resync {key}", self.resync.of_sandbox(key))
        elif outcome.kind is not OutcomeKind.NOT_SENT:
            self.resync.soon()

    def container_created(self, call: Call, outcome: Outcome) -> None:
        """Handle the end of a create; if criproxy did not place the container, adopt it."""
        if not self.creates.done(call, outcome):
            self.resync.soon()

    def container_stopped(self, stop: api.StopContainerRequest, outcome: Outcome) -> None:
        """Apply that a container has ended and loses its place; one that never ran may still be started."""
        key = self.context.state.resolve(stop.container_id)
        self.resync.touch(key)
        container = self.context.state.node.containers.get(key)
        if outcome.kind is not OutcomeKind.OK or container is None or container.state is ContainerState.CREATED:
            self._ask(key, outcome)
        elif self.context.in_flight.outlasts_stop(key):
            self.context.in_flight.stop(key)
        else:
            self.context.state.submit(events.ContainerExited(key))

    def container_removed(self, remove: api.RemoveContainerRequest, outcome: Outcome) -> None:
        """Apply that a container is gone."""
        key = self.context.state.resolve(remove.container_id)
        self.resync.touch(key)
        if outcome.kind is OutcomeKind.OK:
            self.context.state.submit(events.ContainerGone(key))
        else:
            self._ask(key, outcome)
            self._check_removal(outcome)

    def _sandbox(self, sandbox_id: str, outcome: Outcome, event: type[events.PodStopped | events.PodGone]) -> None:
        key = self.context.state.resolve_pod(sandbox_id)
        self.resync.touch(key)
        if outcome.kind is OutcomeKind.OK:
            self.inheritance.ended(self.context.state.node, key)
            if event is events.PodStopped:
                self._keep_starts(key)
            self.context.state.submit(event(key))
            return
        for container in self.context.state.node.containers_of(key):
            self._ask(container.key, outcome)
        pod = self.context.state.node.pods.get(key)
        if event is events.PodGone or (pod and pod.uid in self.context.state.node.kept):
            self._check_removal(outcome)

    def _check_removal(self, outcome: Outcome) -> None:
        """Resync again later after a failed removal, which may continue in the runtime after its call."""
        if outcome.kind is not OutcomeKind.NOT_SENT:
            self.resync.check_removals()

    def _keep_starts(self, sandbox: str) -> None:
        """Keep the places of containers whose start is in flight: the stop of their sandbox does not end them."""
        in_flight = self.context.in_flight
        for container in self.context.state.node.containers_of(sandbox):
            key, is_unknown = container.key, container.state is ContainerState.UNKNOWN
            if in_flight.outlasts_stop(key):
                self.context.state.submit(events.UnknownOutcome(key))
            elif not is_unknown or not container.has_id:
                continue
            in_flight.stop(key)
            if not in_flight.is_starting(key):
                self.outcomes.ask(key)

    def _ask(self, key: str, outcome: Outcome) -> None:
        """Query the state of a container after a call that should have ended it, but did not report that."""
        container = self.context.state.node.containers.get(key)
        if container and container.has_id and outcome.kind is not OutcomeKind.NOT_SENT:
            self.outcomes.ask(key)

    def _watch(self, kind: type[translate.M], handler: Callable[[translate.M, Outcome], None]) -> Rule:
        """Return a rule for watched calls; the runtime refuses those without a request: too large or malformed."""

        def done(call: Call, outcome: Outcome) -> None:
            if call.request is not None:
                handler(translate.view(kind, call.request), outcome)

        return self._rule(done)

    def _rule(self, done: DoneHandler, hold: HoldHandler | None = None) -> Rule:
        """Return a rule that resyncs with the runtime if applying the end of a call fails."""

        def checked(call: Call, outcome: Outcome) -> None:
            try:
                done(call, outcome)
            except Exception as error:
                self.resync.soon()
                note_failed(self.context, call, error)
                raise  # the data plane counts and logs it

        return Rule(hold=hold, done=checked)

    def _known(self, hold: HoldHandler, *, hurry: bool = False) -> HoldHandler:
        """Return a handler that waits until the node is known and then calls *hold*, all within a time limit.

        At the limit, that is cancelled, and `Overdue` raised; with *hurry*, it is shorter during an automatic bypass.
        """
        context = self.context

        async def held(call: Call, message: bytes) -> Verdict:
            settings = context.settings  # those in force when the call begins
            limit_s = settings.bypass_timeout_s if hurry and context.state.bypassed else settings.handler_timeout_s
            limit = asyncio.timeout(limit_s)
            try:
                async with limit:
                    await self.resync.ready()
                    await context.state.settled()
                    verdict = await hold(call, message)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                name = call.method.rpartition("/")[2]
                raise Overdue(f"criproxy did not finish {name} within {limit_s:g} s") from error
            if isinstance(verdict, Refuse):
                with context.failures.harmless("a count"):
                    context.counters.refusals[verdict.code.name] += 1
            return verdict

        return held


class Overdue(Fault):
    """A handler took too long; its effects are undone when the call ends."""

    hung = True
