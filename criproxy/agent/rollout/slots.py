"""The turns of a rollout: Leases, each with one node at a time, so that not more nodes than allowed try a policy.

A turn lasts as long as a try can, and is not renewed: a node that loses the API server, or its agent, does not thereby
let others begin, and its try ends in time in any case. Whether a turn has expired is judged by this node's own
monotonic clock, from when it first saw the Lease as it is; times in a Lease are for people.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from criproxy.agent.kubernetes.client import LEASES, NODE_POLICIES, ApiClient
from criproxy.agent.kubernetes.request import Conflict
from criproxy.agent.objects.node_policy import NodePolicy, Object
from criproxy.agent.rollout.choose import is_recorded
from criproxy.agent.rollout.situation import Pace, Turn
from criproxy.model.text.sources import LONGEST_TRY_S

GENERATION, HASH = "criproxy.io/generation", "criproxy.io/hash"
"""Annotations of a Lease: what is tried in the turn."""
_LONGEST_S = LONGEST_TRY_S + 3600
"""Of a turn, whatever a Lease says."""
CANDIDATES = 4
"""Turns that one node looks at, one at each look, so that every free turn is soon seen by a node that waits."""
_LONGEST_NAME = 220
"""Of a NodePolicy in the name of a Lease, which may have 253 characters."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease as it was seen first."""

    version: tuple[str, str]
    """Its uid and resource version."""
    at_s: float


@dataclass(slots=True, repr=False)
class Turns:
    """Takes and gives up turns for one node.

    Args:
        client: of the API server.
        namespace: of the Leases.
        node: this node's name.
        pace: how long turns last beyond a try, and how often all nodes together may look for one.
    """

    client: ApiClient
    namespace: str
    node: str
    pace: Pace
    _held: str = ""
    """The Lease that this node has taken; empty: none that it knows of."""
    _knows: bool = False
    """Whether there is none but that one: at the start of the agent, there may be one from before."""
    _seen: dict[str, _Seen] = field(default_factory=dict)
    """By Lease."""

    def forget(self) -> None:
        """Forget since when turns have lasted: while the API server did not answer, they may have been prolonged."""
        self._seen.clear()

    async def take(self, policy: NodePolicy, excused: str = "") -> Turn:
        """Take this node's turn, or prolong it; the rollout of *policy* has begun.

        Args:
            policy: what is to be tried.
            excused: a node that need not say how its try ended, because it is gone.

        Raises:
            ApiError, Unreachable: it is unknown whether this node has it.
        """
        names = lease_names(policy, self.node)
        if self._held and self._held not in names:
            await self._give_up(self._held)
        await self._find(names)
        name = self._held or random.choice(names)
        self._seen = {each: seen for each, seen in self._seen.items() if each in names}
        now_s = asyncio.get_running_loop().time()
        lease = await self.client.get(LEASES, name, self.namespace)
        spec = (lease or {}).get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if lease is not None and holder not in ("", self.node):
            left_s = self._left_s(name, lease, now_s)
            if left_s > 0:
                return Turn(holder=holder, look_at_s=now_s + min(left_s, self._pause_s(policy)))
            if _is_for(lease, policy) and holder != excused and not is_recorded(policy, holder):
                return Turn(missing=holder, look_at_s=now_s)
        lasts_s = policy.spec.rollout.try_s + self.pace.keep_before_s + self.pace.spare_s
        try:
            await self._write(self._mine(policy, name, lease, lasts_s))
        except Conflict:  # another node was faster
            return Turn(look_at_s=now_s + self._pause_s(policy))
        self._held = name
        return Turn(until_s=now_s + lasts_s, taken_for=(policy.generation, policy.hash))

    async def leave(self, policy: NodePolicy | None, *, is_over: bool) -> Turn:
        """Give up the turn.

        Args:
            policy: whose turn this node may have from before the agent started.
            is_over: whether all know how the try in it ended, if there was one. If not, a turn for the present spec
                of *policy* is kept.

        Raises:
            ApiError, Unreachable: this node may still have it.
        """
        if policy is not None:
            await self._find(lease_names(policy, self.node))
        if self._held:
            await self._give_up(self._held, None if is_over else policy)
        return Turn()

    async def _find(self, names: Sequence[str]) -> None:
        """Find the turn that this node has from before the agent started."""
        for name in names if not (self._held or self._knows) else ():
            lease = await self.client.get(LEASES, name, self.namespace)
            if lease and (lease.get("spec") or {}).get("holderIdentity") == self.node:
                self._held = name
                break
        self._knows = True

    async def _give_up(self, name: str, unless_for: NodePolicy | None = None) -> None:
        lease = await self.client.get(LEASES, name, self.namespace)
        if lease is not None and unless_for is not None and _is_for(lease, unless_for):
            return
        spec = (lease or {}).get("spec") or {}
        if lease is not None and spec.get("holderIdentity") == self.node:
            without = {key: value for key, value in spec.items() if key != "holderIdentity"}
            await self.client.replace(LEASES, {**lease, "spec": {**without, "renewTime": _now()}})
        self._held = ""

    def _left_s(self, name: str, lease: Object, now_s: float) -> float:
        """How long another node has it at least."""
        metadata = lease["metadata"]
        version = (str(metadata.get("uid")), str(metadata.get("resourceVersion")))
        seen = self._seen.get(name)
        if seen is None or seen.version != version:
            self._seen[name] = seen = _Seen(version, now_s)
        lasts_s = lease["spec"].get("leaseDurationSeconds")
        return seen.at_s + min(max(lasts_s if isinstance(lasts_s, int) else _LONGEST_S, 1), _LONGEST_S) - now_s

    def _pause_s(self, policy: NodePolicy) -> float:
        """Return a time until the next look, of which all nodes together make not more than `Pace` says."""
        nodes = policy.status.rollout.nodes if policy.status.rollout else 1
        return random.uniform(0.5, 1.5) * max(self.pace.look_s, nodes / self.pace.requests_per_s)

    async def _write(self, lease: Object) -> None:
        if "resourceVersion" in lease["metadata"]:
            await self.client.replace(LEASES, lease)
        else:
            await self.client.create(LEASES, lease)

    def _mine(self, policy: NodePolicy, name: str, lease: Object | None, lasts_s: float) -> Object:
        before: dict[str, Any] = (lease or {}).get("spec") or {}
        changes = int(before.get("leaseTransitions") or 0) + (before.get("holderIdentity") != self.node)
        kept = {"metadata": {"name": name, "namespace": self.namespace}, **(lease or {})}
        annotations = {GENERATION: str(policy.generation), HASH: policy.hash}
        owners = [NODE_POLICIES.owner(policy.name, policy.uid)]
        metadata = {**kept["metadata"], "annotations": annotations, "ownerReferences": owners}
        spec = {
            "holderIdentity": self.node,
            "leaseDurationSeconds": max(1, round(lasts_s)),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": changes,
        }
        return {**kept, "metadata": metadata, "spec": spec}


def _is_for(lease: Object, policy: NodePolicy) -> bool:
    """Whether the present spec of *policy* is tried in the turn."""
    said = lease["metadata"].get("annotations") or {}
    return (said.get(GENERATION), said.get(HASH)) == (str(policy.generation), policy.hash)


def lease_names(policy: NodePolicy, node: str) -> tuple[str, ...]:
    """Return the Leases at which *node* looks: all, or of many some that its name chooses."""
    slots = max(1, policy.status.rollout.slots if policy.status.rollout else 1)
    numbers: Iterable[int] = range(slots)
    if slots > CANDIDATES:
        digest = sha256(node.encode()).digest()
        drawn = (int.from_bytes(digest[at : at + 4], "big") % slots for at in range(0, 4 * CANDIDATES, 4))
        numbers = sorted({*drawn})
    name = policy.name
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:8]}"
    return tuple(f"criproxy-rollout-{name}-{number}" for number in numbers)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
