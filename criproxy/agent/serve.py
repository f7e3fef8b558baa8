"""One run of `criproxy agent`: builds the parts, runs them beside each other, and stops them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from criproxy.agent.changes import any_changed
from criproxy.agent.install_slots import InstallSlots, give_up_when_well, wait_to_install
from criproxy.agent.kubernetes import client as api
from criproxy.agent.kubernetes.credentials import credentials_of
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.options import AgentOptions
from criproxy.agent.publish import placement_publisher, topology_publisher
from criproxy.agent.rollout.trial import Followed, Rollout
from criproxy.agent.signs.device_configuration import DeviceConfiguration
from criproxy.agent.signs.event_source import EventSource
from criproxy.agent.signs.events import EventWriter
from criproxy.agent.signs.node import NodeSigns, SignOptions
from criproxy.agent.troubles import Troubles
from criproxy.process.log import LineWriter, structlog
from criproxy.process.program import Program
from criproxy.process.tasks import Work

if TYPE_CHECKING:
    from criproxy.agent.http import AgentHttp
    from criproxy.agent.metrics import Sample

log = structlog.get_logger("criproxy.agent")


Part = tuple[str, Callable[[], Work]]
"""What a part of the agent does, in words, and what does it for ever; an exception begins it again after a pause."""


def run(options: AgentOptions, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CriproxyError: it cannot start: an option, or a file that one names, is wrong.
    """

    async def serve() -> None:
        if options.wait_to_install:
            await wait_to_install(options, log)
            return
        await Agent(options, log_writer).serve()  # its parts need the running loop

    with asyncio.Runner() as runner:
        runner.run(serve())


class Agent:
    """One run of the program; each part waits for the daemon and the API server by itself."""

    def __init__(self, options: AgentOptions, log_writer: LineWriter) -> None:
        self._options = options
        self._program = Program(log, log_writer, self._status_text)
        self._troubles = Troubles(log)
        self._view = NodeView(options.control_socket, options.node_name, self._troubles)
        credentials = credentials_of(options.kubeconfig)
        self._client = api.ApiClient(credentials, node=options.node_name, first_contact_s=options.first_contact_s)
        name = options.node_name
        self._followed = Followed(
            policies=Watched(self._client, api.NODE_POLICIES),
            node=Watched(self._client, api.NODES, name=name, metadata_only=True),
            placement=Watched(self._client, api.NODE_PLACEMENTS, name=name),
        )
        self._rollout = Rollout(
            self._client, self._view, self._followed, namespace=options.namespace, troubles=self._troubles, log=log
        )

    async def serve(self) -> None:
        """Start all parts, wait for the signal, and stop the parts."""
        program, tasks = self._program, self._program.tasks
        async with AsyncExitStack() as stack:
            program.start(stack)
            stack.push_async_callback(self._client.close)
            stack.push_async_callback(tasks.stop)
            tasks.watch_callbacks()
            for name, run in self._parts():
                tasks.forever(name, run)
            tasks.forever("report what the API server refuses", self._report_watches)
            program.ready(node=self._options.node_name)
            await program.stop.wait()
            program.notifier.stopping()
        log.info("stopped")

    def _parts(self) -> Iterator[Part]:
        """Yield all parts, with what they do."""
        followed, address = self._followed, self._options.http
        yield "follow the daemon", self._view.run
        yield "follow the NodePolicies", followed.policies.run
        yield "follow the Node", followed.node.run
        yield "follow the NodePlacement", followed.placement.run
        yield "bring NodePolicies into force", self._rollout.run
        writer = placement_publisher(
            self._client, self._view, followed.node, followed.placement, self._rollout, self._troubles
        )
        yield "write the NodePlacement", writer.run
        if self._options.topology:
            yield from self._topology()
        yield from self._signs()
        if self._options.pod_name:
            slots = InstallSlots.of(self._client, self._options, log)
            yield "let the next node install criproxy", partial(give_up_when_well, slots, self._view, self._troubles)
        if address is not None:
            yield "serve HTTP", self._http(address).run

    def _topology(self) -> Iterator[Part]:
        options, client = self._options, self._client
        own = Watched(client, api.NODE_RESOURCE_TOPOLOGIES, name=options.node_name, metadata_only=True)
        yield "follow the NodeResourceTopology", own.run
        writer = topology_publisher(
            client,
            self._view,
            self._followed.node,
            own,
            self._troubles,
            policy=options.topology_policy,
            scope=options.topology_scope,
        )
        yield "write the NodeResourceTopology", writer.run

    def _signs(self) -> Iterator[Part]:
        """Yield what writes to the Node, what writes Events, and what reads the label of the node."""
        options, client, view, troubles = self._options, self._client, self._view, self._troubles
        writer = EventWriter(client, options.node_name, troubles)
        source = EventSource(view, writer, why_back=self._rollout.why_back)
        what = SignOptions(taint=options.taint, labels=options.labels)
        node = NodeSigns(client, view, self._followed.node, troubles, log, what, source.tell)
        yield "write to the Node", node.run
        yield "follow what happens", source.run
        yield "write Events", writer.run
        if options.device_configurations:
            name, namespace = options.device_configurations, options.namespace
            config_map = Watched(client, api.CONFIG_MAPS, name=name, namespace=namespace)
            yield "follow the configurations of cards", config_map.run
            chooser = DeviceConfiguration(
                view,
                self._followed.node,
                config_map,
                f"{namespace}/{name}",
                troubles,
                source.tell_of_cards,
                default=options.default_device_configuration,
            )
            yield "choose the configuration of cards", chooser.run

    def _http(self, address: str) -> "AgentHttp":
        """Return what serves metrics, health and queries; its modules take memory that agents without it save."""
        from criproxy.agent.http import AgentHttp
        from criproxy.agent.metrics import registry
        from criproxy.process.http.address import Address
        from criproxy.process.http.server import Sources

        sources = Sources(registry(self._sample).render, self._program.heartbeat.healthy, self._ready)
        return AgentHttp(
            Address.parse(address),
            self._options.http_token_file,
            self._options.control_socket,
            sources,
            self._troubles,
            self._program.failures,
        )

    async def _report_watches(self) -> None:
        """Say why the API server cannot be followed: one reason is enough."""
        watches = self._followed
        while True:
            seen = [each.version for each in watches]
            problem = next((each.problem for each in watches if each.problem), "")
            self._troubles.set("watch", f"it does not know what the API server has: {problem}" if problem else "")
            await any_changed(watches, seen)

    async def _ready(self) -> str | None:
        return self._view.problem or None

    def _sample(self) -> "Sample":
        from criproxy.agent.metrics import Sample

        counters = self._client.counters
        return Sample(
            connected=not self._view.problem,
            requests=counters.requests,
            watch_restarts=counters.watch_restarts,
            silent_s=counters.since_contact_s(),
            view_age_s=self._view.silent_s,
            watches={each.resource.plural: each.known and not each.problem for each in self._followed},
            phase=state.phase if (state := self._rollout.state) else "",
            troubles=len(self._troubles.sentences()),
            failures=sum(self._program.failures.counts.values()),
        )

    def _status_text(self) -> str:
        """Return one line for systemd."""
        return "; ".join(self._troubles.sentences()) or f"connects the node {self._options.node_name}"
