"""Objects that the agent writes when the node changes: its NodePlacement and its NodeResourceTopology."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from criproxy.agent.changes import Changes, any_changed
from criproxy.agent.kubernetes.client import NODES, ApiClient
from criproxy.agent.kubernetes.request import Conflict, NotFound, Object
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.objects.placement import status_of, status_without_daemon
from criproxy.agent.objects.topology import topology_of
from criproxy.agent.rollout.trial import Rollout
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.model.text.notices import rfc3339
from criproxy.process.tasks import Backoff, wait_at_most

VOLATILE = frozenset({"lastCall", "observedAt"})
"""Fields of a status that are written with others, but are no reason to write."""
_MOST_VERSIONS = 16
"""Resource versions of our own writes that a watch may still show."""
_CONTEST = 3
"""So many changes by others, each soon after ours, are a contest."""
_TWO = "do two agents have the same --node-name?"
_OWN = {"nodeplacements": "criproxy schema --crds | kubectl apply -f -"}
"""Plural of a resource that the agent needs → how to install it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When an object is written."""

    settle_s: tuple[float, float] = (0.5, 2.5)
    """How long after a change: more changes follow soon, and not all nodes write at the same time."""
    least_s: float = 5.0
    """Between two writes."""
    refresh_s: float = 600.0
    """After this time, it is written without a change: somebody may want to know whether the node still reports."""
    silent_s: float = 10.0
    """How long the daemon may not answer before that is written: a restart is nothing to report."""
    look_s: float = 15.0
    """After this time, what was not known is looked at again."""
    contested_s: float = 60.0
    """Between two writes while somebody else changes the object again and again, such as an agent of the same name."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 50.0
    """Between attempts that fail: an API server that is back has the object within a minute."""


PACE = Pace()


@dataclass(slots=True, repr=False)
class Publisher:
    """Writes one object whenever it differs from what was written last, and when the API server has lost or changed it.

    Args:
        client: of the API server.
        make: returns the object as it should be, with its name and owner; None while that is not known, which leaves
            it as it is. It raises CriproxyError if there is a reason that people should know.
        own: follows the object.
        sources: what the object depends on, *own* among it.
        troubles: told why the object cannot be written.
        subresource: where most of the object is; the rest of it is written only if it changes.
        force: whether to take over fields that others have written.
        needed: whether it is a trouble that the API server does not have the resource.
        pace: when it is written.
    """

    client: ApiClient
    make: Callable[[], Object | None]
    own: Watched
    sources: Sequence[Changes]
    troubles: Troubles
    _: KW_ONLY
    subresource: str = ""
    force: bool = True
    needed: bool = True
    pace: Pace = PACE
    _written: Object | None = None
    """What the API server has, as far as we know, without `VOLATILE`; None: that is not known."""
    _frame: Object | None = None
    """The same without the subresource."""
    _versions: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_VERSIONS))
    """Of the object after our writes."""
    _compared: int = -1
    """The state of the watch that we know."""
    _contests: deque[float] = field(default_factory=lambda: deque(maxlen=_CONTEST))
    """When others have changed what we had written."""
    _refresh_at_s: float = 0.0
    _earliest_s: float = 0.0
    _failures: int = 0

    async def run(self) -> None:
        """Write for ever."""
        pauses = Backoff(self.pace.first_pause_s, self.pace.longest_pause_s, least=0.0)
        while True:
            seen = [each.version for each in self.sources]
            try:
                again_s = await self._attempt()
            except CriproxyError as error:
                self._failed(error)
                await asyncio.sleep(pauses.pause_s())
                continue
            self._failures = 0
            pauses.reset()
            await wait_at_most(again_s, any_changed(self.sources, seen))
            settle_s = random.uniform(*self.pace.settle_s)
            await asyncio.sleep(max(settle_s, self._earliest_s - _now_s()))

    async def _attempt(self) -> float | None:
        """Write the object if necessary; return after which time to look again without a change.

        Raises:
            CriproxyError: it could not be written.
        """
        self._compare()
        if not self.own.served:
            install = _OWN.get(self.own.resource.plural)
            hint = f"; install it with: {install}" if install else ""
            self._say(f"the API server has no {self.own.resource.plural}{hint}" if self.needed else "")
            return None
        try:
            obj = self.make()
        except CriproxyError as error:
            self._say(str(error))
            return None
        if obj is None:
            return self.pace.look_s
        now_s = _now_s()
        if now_s >= self._refresh_at_s or (_essence(obj) != self._written and not self._is_shown(obj)):
            await self._write(obj)
            now_s = _now_s()
            self._refresh_at_s = now_s + self.pace.refresh_s * random.uniform(0.9, 1.1)
            self._earliest_s = now_s + (self.pace.contested_s if self._is_contested() else self.pace.least_s)
        self._written = _essence(obj)
        kind = self.own.resource.kind
        self._say(f"another program writes this node's {kind}, too: {_TWO}" if self._is_contested() else "")
        return self._refresh_at_s - now_s

    def _compare(self) -> None:
        """Find out whether somebody else has changed or deleted the object since we looked last."""
        if self.own.version == self._compared or self.own.problem:
            return
        self._compared = self.own.version
        shown = next((each["metadata"].get("resourceVersion") for each in self.own.objects.values()), None)
        if shown not in self._versions:
            if shown is not None and self._written is not None:
                self._contests.append(_now_s())
            self._written = self._frame = None

    def _is_shown(self, obj: Object) -> bool:
        """Whether the API server already has all of *obj*, whoever has written it."""
        shown = next(iter(self.own.objects.values()), {})
        has = {
            key: {name: shown[key].get(name) for name in obj[key]} for key in obj if isinstance(shown.get(key), dict)
        }
        return self.own.known and not self.own.problem and _essence(has) == _essence(obj)

    def _is_contested(self) -> bool:
        whole = len(self._contests) == _CONTEST
        return whole and _now_s() - self._contests[0] < 2 * _CONTEST * self.pace.contested_s

    async def _write(self, obj: Object) -> None:
        resource = self.own.resource
        if not self.subresource:
            self._note(await self.client.apply(resource, obj, force=self.force))
            return
        frame = {"metadata": obj["metadata"]}
        if self._frame != frame:
            self._note(await self.client.apply(resource, frame, force=self.force))
            self._frame = frame
        try:
            self._note(await self.client.apply(resource, obj, subresource=self.subresource, force=self.force))
        except NotFound:
            self._frame = None
            raise

    def _note(self, answer: Object) -> None:
        self._versions.append(str((answer.get("metadata") or {}).get("resourceVersion")))

    def _failed(self, error: CriproxyError) -> None:
        """Tell why the object cannot be written, unless the API server may only be away for a moment."""
        self._failures += 1
        kind = self.own.resource.kind
        if isinstance(error, Conflict) and not self.force:
            self._say(f"another program writes this node's {kind}, and the agent does not overwrite it: {error}")
        elif self._failures > 1:
            self._say(f"this node's {kind} cannot be written: {error}")

    def _say(self, sentence: str) -> None:
        self.troubles.set(self.own.resource.plural, sentence)


def placement_publisher(
    client: ApiClient,
    view: NodeView,
    node: Watched,
    own: Watched,
    rollout: Rollout,
    troubles: Troubles,
    pace: Pace = PACE,
) -> Publisher:
    """What writes the NodePlacement.

    Args:
        client: of the API server.
        view: the daemon's answers.
        node: follows the Node of this machine.
        own: follows the NodePlacement.
        rollout: has the state of the NodePolicy on this node; the object is not written while that is None.
        troubles: told why it cannot be written; what is wrong of it is a problem of the node.
        pace: when it is written.
    """

    def make() -> Object | None:
        metadata = owned(view.node_name, node)
        if own.problem and not own.known:
            raise CriproxyError(f"the NodePlacement {view.node_name} cannot be read: {own.problem}")
        if metadata is None or not own.known or (view.problem and view.silent_s < pace.silent_s):
            return None
        if view.last is None:
            before = own.objects.get(view.node_name) or {}
            status = status_without_daemon(before.get("status") or {}, view.problem)
        elif rollout.state is None:
            return None
        else:
            status = status_of(view.last, rollout.state, view.problem, troubles.sentences(wrong=True))
        return {"metadata": metadata, "status": status | {"observedAt": rfc3339(time.time())}}

    sources = (own, view, node, rollout, troubles)
    return Publisher(client, make, own, sources, troubles, subresource="status", pace=pace)


def topology_publisher(  # noqa: PLR0913 (each is another part of the agent)
    client: ApiClient,
    view: NodeView,
    node: Watched,
    own: Watched,
    troubles: Troubles,
    *,
    policy: str = "single-numa-node",
    scope: str = "container",
    pace: Pace = PACE,
) -> Publisher:
    """What writes the NodeResourceTopology, where its definition is installed; arguments as above and of `topology_of`.

    While the daemon does not answer, the object stays as it is.
    """

    def make() -> Object | None:
        if view.last is None or view.problem:
            return None
        metadata, made = owned(view.node_name, node), topology_of(view.last, policy, scope)
        return None if metadata is None or made is None else {"metadata": metadata, **made}

    return Publisher(client, make, own, (own, view, node), troubles, force=False, needed=False, pace=pace)


def owned(name: str, node: Watched) -> Object | None:
    """The metadata of an object that goes with the Node; None before the API server was asked.

    Raises:
        CriproxyError: the Node is not known.
    """
    if (found := node.objects.get(name)) is not None:
        return {"name": name, "ownerReferences": [NODES.owner(name, found["metadata"]["uid"])]}
    if node.known:
        raise CriproxyError(f"the cluster has no Node {name}; is the option --node-name right?")
    if node.problem:
        raise CriproxyError(f"the Node {name} cannot be read: {node.problem}")
    return None


def _essence(obj: Object) -> Object:
    status = obj.get("status")
    if not isinstance(status, dict):
        return obj
    return {**obj, "status": {key: value for key, value in status.items() if key not in VOLATILE}}


def _now_s() -> float:
    return asyncio.get_running_loop().time()
