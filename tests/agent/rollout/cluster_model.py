"""A cluster in virtual time: the objects of the small API server, nodes as models, and the agents' real rollouts.

What is between a rollout and the objects is not the network but two points for each request, before and after it takes
effect: there requests are refused or lost, and agents are killed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from inspect import Signature, signature
from typing import Any

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import LEASES, NODE_PLACEMENTS, NODE_POLICIES, NODES, Resource
from criproxy.agent.kubernetes.request import ApiError, NotFound, Object, Unreachable
from criproxy.agent.objects.placement import RolloutState
from criproxy.agent.rollout.situation import Pace
from criproxy.agent.rollout.trial import Followed, Rollout
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from lab.apiserver.fields import merged
from lab.apiserver.objects import Event, Objects, Refusal
from lab.apiserver.selectors import matcher
from lab.lives.virtual import VirtualLoop
from tests.agent.rollout.daemon_model import DaemonModel
from tests.node.world import RecordingLog

LATENCY_S = 0.01
WRITE_S = 1.0
"""How long a NodePlacement waits until it is written."""
PACE = Pace(begin_within_s=1.0, requests_per_s=50.0)
NAMESPACE = "criproxy"


@dataclass
class Fuse:
    """Kills an agent at one of its next requests, before or after that takes effect."""

    requests: int
    before: bool


@dataclass
class Network:
    """What is between one agent and the others."""

    fuse: Fuse | None = None
    api_down: bool = False
    answers_lost: bool = False
    """Requests take effect, and their answers do not arrive."""
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Verbs and plurals."""

    async def point(self, *, before: bool) -> None:
        """Let time pass, and kill the agent, if it is to be killed here."""
        await asyncio.sleep(LATENCY_S)
        if self.fuse and self.fuse.before == before:
            self.fuse.requests -= 1
            if self.fuse.requests < 0:
                self.fuse = None
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)


class StoreClient:
    """An `ApiClient` on the objects themselves."""

    def __init__(self, cluster: "Cluster", network: Network) -> None:
        self._cluster, self.objects, self.network = cluster, cluster.objects, network

    async def _request(self, verb: str, resource: Resource, effect: Callable[[], Any]) -> Any:  # noqa: ANN401 (JSON)
        self._cluster.requests += 1
        await self.network.point(before=True)
        if self.network.api_down:
            raise Unreachable("the API server does not answer")
        if (verb, resource.plural) in self.network.forbidden:
            raise ApiError(f"{verb} {resource.plural}: forbidden", 403)
        try:
            found = deepcopy(effect())
        except Refusal as error:
            raise ApiError.of(error.message, error.code) from error
        finally:
            await self.network.point(before=False)
        if self.network.answers_lost or self.network.api_down:
            raise Unreachable("the answer is lost")
        return found

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, metadata_only: bool = False
    ) -> Object | None:
        """Get."""
        del metadata_only
        with suppress(NotFound):
            return dict(await self._request("get", resource, lambda: self.objects.get(resource, name, namespace)))
        return None

    async def count(self, resource: Resource, *, label_selector: str = "", limit: int = 500) -> int:
        """Count."""
        del limit
        fits = matcher(label_selector, "")
        return int(await self._request("list", resource, lambda: sum(map(fits, self.objects.all(resource)))))

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create."""
        return dict(await self._request("create", resource, lambda: self.objects.create(resource, obj)))

    async def replace(self, resource: Resource, obj: Object) -> Object:
        """Replace."""
        metadata = obj["metadata"]
        where = (metadata["name"], metadata.get("namespace", ""))
        new = deepcopy(obj)
        effect = lambda: self.objects.update(resource, *where, lambda _: new)  # noqa: E731
        return dict(await self._request("update", resource, effect))

    async def merge_patch(
        self, resource: Resource, name: str, body: Object, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        """Patch."""
        change = lambda before: merged(before, body)  # noqa: E731
        effect = lambda: self.objects.update(resource, name, namespace, change, subresource=subresource)  # noqa: E731
        return dict(await self._request("patch", resource, effect))


class StoreWatch(Changes):
    """A `Watched` on the objects themselves, whose events come a moment later."""

    def __init__(self, cluster: "Cluster", network: Network, resource: Resource, name: str = "") -> None:
        super().__init__()
        self._cluster, self._network, self.resource, self._name = cluster, network, resource, name
        self.objects: Mapping[str, Object] = {}
        self.known, self.served, self.problem = False, True, ""

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await asyncio.sleep(LATENCY_S)
            seen = self._cluster.version
            before = (self.objects, self.known, self.problem)
            self.problem = "the API server does not answer" if self._network.api_down else ""
            if not self.problem:
                found = {each["metadata"]["name"]: each for each in self._cluster.objects.all(self.resource)}
                wanted = {name: each for name, each in found.items() if self._name in ("", name)}
                same = self.objects.keys() == wanted.keys() and all(
                    each is self.objects[name] for name, each in wanted.items()
                )
                self.objects = self.objects if same else wanted
                self.known = True
            if before != (self.objects, self.known, self.problem):
                self.notify()
            await self._cluster.changed(seen)


class StoreView(Changes):
    """A `NodeView` of a model of the daemon; what it says is up to a second old."""

    def __init__(self, daemon: DaemonModel, network: Network) -> None:
        super().__init__()
        self._daemon, self._network = daemon, network
        self.node_name = daemon.name
        self.last: Mapping[str, Any] | None = None
        self.problem = "the daemon has not answered yet"

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            seen = self._daemon.version
            if self._daemon.up:
                self.last, self.problem = self._daemon.view(), ""
            else:
                self.problem = "no daemon"
            self.notify()
            await self._daemon.changed(seen)
            await asyncio.sleep(1.0)

    async def ask(self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Any:  # noqa: ANN401
        """Ask the daemon."""
        del timeout_s
        await self._network.point(before=True)
        if not self._daemon.up:
            raise CriproxyError("no daemon")
        try:
            answer = self._daemon.answer(command, arguments or {})
        finally:
            await self._network.point(before=False)
        if not self._daemon.up:
            raise CriproxyError("the daemon has gone")
        return answer


class Agent:
    """The rollout of one agent, and what writes its state into the NodePlacement."""

    def __init__(self, cluster: "Cluster", daemon: DaemonModel) -> None:
        self.network, self.troubles, self.name = Network(), Troubles(RecordingLog()), daemon.name
        self._cluster, self._client = cluster, StoreClient(cluster, self.network)
        view = StoreView(daemon, self.network)
        watches = [
            StoreWatch(cluster, self.network, NODE_POLICIES),
            StoreWatch(cluster, self.network, NODES, daemon.name),
            StoreWatch(cluster, self.network, NODE_PLACEMENTS, daemon.name),
        ]
        self.rollout = Rollout(
            self._client,  # type: ignore[arg-type]  # with the methods that it needs
            view,  # type: ignore[arg-type]  # as much of it as a rollout needs
            Followed(*watches),  # type: ignore[arg-type]
            namespace=NAMESPACE,
            troubles=self.troubles,
            log=RecordingLog(),
            pace=cluster.pace,
        )
        parts = (view.run, *(each.run for each in watches), self.rollout.run, self._publish)
        self._tasks = [asyncio.ensure_future(part()) for part in parts]

    @property
    def said(self) -> str:
        """What it cannot do."""
        return "; ".join(self.troubles.sentences())

    @property
    def alive(self) -> bool:
        """Whether it was not killed; raise what one of its parts has raised."""
        for each in self._tasks:
            if each.done() and not each.cancelled():
                each.result()
        if any(each.done() for each in self._tasks):
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """End it at once."""
        for each in self._tasks:
            each.cancel()

    async def _publish(self) -> None:
        written: RolloutState | None = None
        while True:
            seen, state = self.rollout.version, self.rollout.state
            if state is not None and state != written:
                await asyncio.sleep(WRITE_S)
                try:
                    await self._write(state)
                    written = state
                except (ApiError, Unreachable):
                    continue
            else:
                await self.rollout.changed(seen)

    async def _write(self, state: RolloutState) -> None:
        said = {"policy": state.policy_name, "generation": state.generation, "hash": state.hash}
        body = {"status": {"rollout": {**said, "phase": state.phase, "message": state.message}}}
        if await self._client.get(NODE_PLACEMENTS, self.name) is None:
            await self._client.create(NODE_PLACEMENTS, {"metadata": {"name": self.name}})
        await self._client.merge_patch(NODE_PLACEMENTS, self.name, body, subresource="status")


class Cluster(Changes):
    """Nodes `n0`, `n1`, …, each with an agent."""

    def __init__(self, nodes: int, pace: Pace = PACE) -> None:
        super().__init__()
        self.pace = pace
        self.requests = 0
        """Requests of all agents, without watches."""
        self.objects = Objects(self._happened)
        self.daemons = {f"n{number}": DaemonModel(f"n{number}") for number in range(nodes)}
        for name in self.daemons:
            self.add_node(name)
        self.agents: dict[str, list[Agent]] = {}
        for name in self.daemons:
            self.start_agent(name)

    def _happened(self, _: Event) -> None:
        self.notify()

    def add_node(self, name: str) -> None:
        """Register a node."""
        labels = {"kubernetes.io/hostname": name, "pool": "gpu"}
        self.objects.create(NODES, {"metadata": {"name": name, "labels": labels}})

    def start_agent(self, name: str) -> Agent:
        """Start one, maybe beside another one."""
        agent = Agent(self, self.daemons[name])
        self.agents.setdefault(name, []).append(agent)
        return agent

    def state(self, name: str) -> RolloutState | None:
        """What the agent of a node says."""
        return self.agents[name][0].rollout.state

    def policy(self, name: str = "p") -> Object:
        """A NodePolicy."""
        return self.objects.get(NODE_POLICIES, name)

    def put_policy(self, obj: Object) -> None:
        """Create or change a NodePolicy."""
        name = obj["metadata"]["name"]
        if any(each["metadata"]["name"] == name for each in self.objects.all(NODE_POLICIES)):
            self.objects.update(NODE_POLICIES, name, "", lambda before: {**before, "spec": deepcopy(obj["spec"])})
        else:
            self.objects.create(NODE_POLICIES, obj)

    @property
    def has_policy(self) -> bool:
        """Whether there is a NodePolicy."""
        return bool(self.objects.all(NODE_POLICIES))

    def register_nodes(self) -> None:
        """Register the nodes that are not."""
        there = {each["metadata"]["name"] for each in self.objects.all(NODES)}
        for name in self.daemons.keys() - there:
            self.add_node(name)

    def delete_policy(self, name: str = "p") -> None:
        """Delete a NodePolicy, and what it owns."""
        uid = self.objects.delete(NODE_POLICIES, name)["metadata"]["uid"]
        for lease in self.objects.all(LEASES):
            if any(owner["uid"] == uid for owner in lease["metadata"].get("ownerReferences", ())):
                self.objects.delete(LEASES, lease["metadata"]["name"], NAMESPACE)

    def holders(self) -> set[str]:
        """The nodes that have a turn."""
        return {each["spec"]["holderIdentity"] for each in self.objects.all(LEASES) if "holderIdentity" in each["spec"]}

    def trying(self) -> set[str]:
        """The nodes that try a NodePolicy."""
        return {name for name, each in self.daemons.items() if each.trial}

    async def close(self) -> None:
        """End everything."""
        for agents in self.agents.values():
            for each in agents:
                each.kill()
        for daemon in self.daemons.values():
            daemon.stop()
        await asyncio.sleep(0)


def played(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a scene on a cluster of three nodes; at no moment more nodes than two try a policy."""

    async def whole(**parameters: object) -> None:
        cluster = Cluster(3)
        await asyncio.sleep(5)
        try:
            await scene(cluster, **parameters)
            assert all(each.alive for agents in cluster.agents.values() for each in agents)
        finally:
            await cluster.close()

    @wraps(scene)
    def test(**parameters: object) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(whole(**parameters))

    _, *others = signature(scene).parameters.values()
    test.__signature__ = Signature(others)  # type: ignore[attr-defined]
    return test


async def settled(cluster: Cluster, holds: Callable[[], bool], limit_s: float = 20_000) -> None:
    """Wait until it holds; meanwhile never more than two nodes try."""
    waited_s = 0.0
    while not holds():
        assert len(cluster.trying()) <= 2
        await asyncio.sleep(0.5)
        waited_s += 0.5
        assert waited_s < limit_s, {name: cluster.state(name) for name in cluster.daemons}
