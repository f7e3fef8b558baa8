"""What the agents write into the status of a NodePolicy: how a rollout begins, and on which nodes it failed."""

import asyncio
import time
from dataclasses import dataclass, replace

from criproxy.agent.kubernetes.client import NODE_POLICIES, NODES, ApiClient
from criproxy.agent.kubernetes.request import Conflict, NotFound
from criproxy.agent.objects.node_policy import MAX_FAILURES, Failure, NodePolicy, Object, RolloutStatus, Status
from criproxy.agent.rollout.choose import failures_of, has_begun, is_recorded, why_stopped
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import rfc3339
from criproxy.process.tasks import Backoff

ATTEMPTS = 6
"""To write a failure, while other nodes write theirs."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
MOST_CHARACTERS = 300
"""Of why a policy failed on a node."""


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes the status of NodePolicies. All methods raise `ApiError` and `Unreachable`."""

    client: ApiClient

    async def begin(self, policy: NodePolicy) -> Object | None:
        """Write how many nodes may try *policy* at once; return the NodePolicy, None if it was deleted meanwhile.

        If another node has begun the rollout, or the NodePolicy has changed, nothing is written.
        """
        nodes = await self.client.count(NODES, label_selector=policy.spec.node_selector.query())
        rollout = RolloutStatus(
            generation=policy.generation,
            hash=policy.hash,
            nodes=nodes,
            slots=policy.spec.rollout.slots(nodes),
            begun=rfc3339(time.time()),
        )
        status = policy.status.model_copy(update={"rollout": rollout, "stopped": False, "message": ""})
        try:
            return await self._write(policy, status)
        except (NotFound, Conflict):
            return await self.client.get(NODE_POLICIES, policy.name)

    async def record(self, policy: NodePolicy, node: str, text: str) -> Object | None:
        """Write that *policy* has failed on *node*; return the NodePolicy, None if it was deleted meanwhile.

        Nothing is written if its spec has changed, or the failure need not be recorded.
        """
        pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, least=0.0)
        for attempt in range(ATTEMPTS):
            found = await self.client.get(NODE_POLICIES, policy.name)
            if found is None:
                return None
            now = NodePolicy.read(found)
            if (now.generation, now.hash) != (policy.generation, policy.hash) or is_recorded(now, node):
                return found
            try:
                return await self._write(now, with_failure(now, node, text, rfc3339(time.time())))
            except Conflict:
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(pauses.pause_s())
        raise AssertionError("the last attempt returns or raises")

    async def _write(self, policy: NodePolicy, status: Status) -> Object:
        body = {"metadata": {"resourceVersion": policy.resource_version}, "status": status.as_object()}
        return await self.client.merge_patch(NODE_POLICIES, policy.name, body, subresource="status")


def with_failure(policy: NodePolicy, node: str, text: str, at: str) -> Status:
    """Return the status of *policy* with one more failure of the present spec; those of earlier ones go first."""
    text = bounded_text(text, MOST_CHARACTERS)
    failure = Failure(node=node, generation=policy.generation, hash=policy.hash, at=at, text=text)
    present = [*failures_of(policy), failure]
    earlier = [each for each in policy.status.failures if each not in present]
    failures = [*earlier, *present][-MAX_FAILURES:]
    status = policy.status.model_copy(update={"failures": failures, "stopped": False, "message": ""})
    why = why_stopped(replace(policy, status=status))
    message = why or f"{node}: {text}; the rollout goes on"
    return status.model_copy(update={"stopped": bool(why) and has_begun(policy), "message": message})
