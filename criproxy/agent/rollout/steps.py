"""The steps of a rollout on this node: what `decide` chooses is asked of the daemon and of the API server."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, NODE_POLICIES, NODES, ApiClient
from criproxy.agent.kubernetes.request import Conflict, NotFound
from criproxy.agent.node_view import NodeView
from criproxy.agent.objects.node_policy import NodePolicy, Object, RolloutStatus, Status
from criproxy.agent.objects.placement import Phase, RolloutState
from criproxy.agent.rollout.choose import is_recorded, with_failure
from criproxy.agent.rollout.situation import Action, Expected, Pace, Situation, Step, Turn, Verdict
from criproxy.agent.rollout.slots import Turns
from criproxy.agent.rollout.waiting import ENDED
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import rfc3339
from criproxy.model.text.sources import LONGEST_TRY_S, NODE_POLICY
from criproxy.process.logger import Log
from criproxy.process.tasks import Backoff

MOST_CHARACTERS = 500
ATTEMPTS = 6
"""To write a failure, while other nodes write theirs."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
Answer = Verdict | Turn | Expected | None


@dataclass(frozen=True, slots=True)
class Steps:
    """Takes steps for one node.

    Args:
        client: of the API server.
        daemon: carries out what a step asks of it.
        turns: of this node.
        use: gets each NodePolicy that was read or written, or None if it was deleted, by its name.
        pace: times.
        log: a structlog logger.
    """

    client: ApiClient
    daemon: NodeView
    turns: Turns
    use: Callable[[str, Object | None], None]
    pace: Pace
    log: Log

    async def take(self, step: Step, now: Situation) -> Answer:
        """Take *step*, chosen in the situation *now*; return what is known then.

        Raises:
            CriproxyError: it has failed, or it is unknown whether it has.
        """
        steps: Mapping[Action, Callable[[Step, Situation], Awaitable[Answer]]] = {
            Action.CHECK: self._check,
            Action.BEGIN: self._begin,
            Action.TAKE: self._take,
            Action.CONFIRM: self._confirm,
            Action.TRY: self._try,
            Action.KEEP: self._keep,
            Action.BACK: self._back,
            Action.TO_FILE: self._to_file,
            Action.RECORD: self._record,
            Action.LEAVE: self._leave,
        }
        try:
            return await steps[step.action](step, now)
        except CriproxyError:
            self.turns.forget()
            raise

    async def _check(self, _: Step, now: Situation) -> Verdict:
        policy, daemon = _policy(now), now.daemon
        assert daemon is not None
        found = await self.daemon.ask("reload-dry-run", _file(policy))
        mistakes = [] if found["accepted"] else found["mistakes"] or ["the daemon does not say why"]
        return Verdict(
            about=(policy.hash, daemon.hash, daemon.instance),
            until_s=now_s() + self.pace.again_s,
            refusal=bounded_text("; ".join(map(str, mistakes)), MOST_CHARACTERS),
            is_same=bool(found["same"]),
        )

    async def _begin(self, _: Step, now: Situation) -> None:
        policy = _policy(now)
        self.use(policy.name, await self._begun(policy))

    async def _begun(self, policy: NodePolicy) -> Object | None:
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

    async def _write(self, policy: NodePolicy, status: Status) -> Object:
        body = {"metadata": {"resourceVersion": policy.resource_version}, "status": status.as_object()}
        return await self.client.merge_patch(NODE_POLICIES, policy.name, body, subresource="status")

    async def _take(self, step: Step, now: Situation) -> Turn:
        return await self.turns.take(_policy(now), step.memory.turn.excused)

    async def _confirm(self, step: Step, now: Situation) -> Turn:
        policy = _policy(now)
        self.use(policy.name, await self.client.get(NODE_POLICIES, policy.name))
        return replace(step.memory.turn, confirmed=(policy.generation, policy.hash))

    async def _try(self, _: Step, now: Situation) -> Expected:
        policy = _policy(now)
        time_s = min(policy.spec.rollout.try_s + self.pace.keep_before_s, LONGEST_TRY_S)
        self.log.info("rollout: a NodePolicy is tried", policy=policy.name, hash=policy.hash, for_s=time_s)
        await self.daemon.ask("reload-try", {**_file(policy), "time_s": time_s})
        return self._expected(policy.hash, is_trying=True)

    async def _keep(self, _: Step, now: Situation) -> Expected:
        assert now.daemon is not None
        await self.daemon.ask("reload-keep", {"hash": now.daemon.hash})
        return self._expected(now.daemon.hash, is_trying=False)

    async def _back(self, _: Step, now: Situation) -> Expected:
        assert now.daemon is not None
        await self.daemon.ask("reload-back", {"hash": now.daemon.hash})
        return self._expected("", is_trying=False)

    async def _to_file(self, _: Step, __: Situation) -> Expected:
        await self.daemon.ask("reload")
        return replace(self._expected("", is_trying=False), is_file=True)

    def _expected(self, hash_: str, *, is_trying: bool) -> Expected:
        return Expected(hash_, is_trying, now_s() + self.pace.settle_s)

    async def _record(self, step: Step, now: Situation) -> Turn | None:
        policy = _policy(now)
        if step.about != now.node and await self._is_excused(policy, step.about):
            return replace(step.memory.turn, excused=step.about)
        self.use(policy.name, await self._recorded(policy, step.about, step.text))
        return None

    async def _recorded(self, policy: NodePolicy, node: str, text: str) -> Object | None:
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

    async def _is_excused(self, policy: NodePolicy, node: str) -> bool:
        """Whether a node need not give up its turn: it does not exist any more, or has kept the policy."""
        said = said_by(await self.client.get(NODE_PLACEMENTS, node))
        if (said.phase, said.generation, said.hash) == ("Applied", policy.generation, policy.hash):
            return True
        return await self.client.get(NODES, node, metadata_only=True) is None

    async def _leave(self, step: Step, now: Situation) -> Turn:
        is_over = step.memory.turn.until_s > 0 or step.memory.state.phase in ENDED
        return await self.turns.leave(now.choice.policy if now.choice else None, is_over=is_over)


def now_s() -> float:
    """Return the time on the monotonic clock of the event loop."""
    return asyncio.get_running_loop().time()


def said_by(placement: Object | None) -> RolloutState:
    """Return what this node had written before the agent started; nothing is said by what cannot be read."""
    said = ((placement or {}).get("status") or {}).get("rollout") or {}
    generation = said.get("generation")
    phase: Phase | None = next((each for each in get_args(Phase) if each == said.get("phase")), None)
    if not isinstance(generation, int) or phase is None:
        return RolloutState()
    texts = {key: str(said.get(key) or "") for key in ("policy", "hash", "message")}
    return RolloutState(texts["policy"], generation, texts["hash"], phase, texts["message"])


def _policy(now: Situation) -> NodePolicy:
    assert now.choice is not None
    assert now.choice.policy is not None
    return now.choice.policy


def _file(policy: NodePolicy) -> dict[str, str]:
    """Return a policy as the daemon takes it."""
    return {"text": policy.text, "source": NODE_POLICY + policy.name}
