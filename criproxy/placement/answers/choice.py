"""The alternatives of a decision: the candidates that the policy compared, and containers that would have to leave."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from criproxy.errors import NotEnough
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.text.plain import to_plain
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.answers.leavers import Leavers, leavers
from criproxy.placement.answers.shortfalls import shortfall
from criproxy.placement.decision import Decision, Step
from criproxy.placement.engine import placing
from criproxy.placement.events import ContainerCreating, ContainerResized, Event
from criproxy.placement.policies.api import Policy, candidates_of
from criproxy.placement.records.history import Entry
from criproxy.placement.rules.pipeline import shown_for

MAX_ROWS, MAX_FACTS = 12, 3_500
"""Limits for one decision: candidates, and names of containers that would have to leave; and characters in total."""


class Decided(Enum):
    """The kind of a decision."""

    PLACED = "placed"
    REFUSED = "refused"
    RESIZED = "resized"
    NOT_RESIZED = "resize refused"
    NOW = "now"
    """No decision: the candidates at this moment."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The alternatives of a decision."""

    decided: Decided
    candidates: Candidates | None = None
    leavers: Leavers | None = None

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values of at most `MAX_FACTS` characters."""
        for rows in range(MAX_ROWS, 0, -1):
            candidates, leaving = self.candidates, self.leavers
            kept = Choice(self.decided, candidates and candidates.first(rows), leaving and leaving.first(rows))
            facts: dict[str, Any] = to_plain(kept)
            if len(json.dumps(facts)) <= MAX_FACTS:
                return facts
        return to_plain(Choice(self.decided))  # type: ignore[no-any-return]


def chosen_for(step: Step) -> tuple[str, str] | None:
    """Return the container for which a policy may have chosen in this step, by names that repeated creates share.

    None if it did not choose. This is cheap; `considered` finds out whether it did.
    """
    event, before, refused = step.event, step.before, isinstance(step.result, NotEnough)
    if step.policy is None or not isinstance(event, ContainerCreating | ContainerResized):
        return None
    if not refused and not isinstance(step.result, Decision):
        return None
    if refused and isinstance(event, ContainerResized):
        had = before.containers.get(event.key)
        if had and had.desired and had.desired.sizes == event.sizes:
            return None  # the kubelet repeats it every second
    # `isinstance` with a protocol would take longer than the rest of this function.
    if before.released or not (refused or hasattr(step.policy, "candidates")):
        return None
    return (event.container.pod, event.container.name) if isinstance(event, ContainerCreating) else (event.key, "")


def considered(step: Step, *, search: bool = True) -> Entry | None:
    """Return the entry for the history; None if there was no choice. This is slow, and errors of the policy raise.

    With *search*, find the containers that would have to leave if the policy refused.
    """
    assert step.policy  # `chosen_for` has checked it
    result, event, policy = step.result, step.event, step.policy
    if isinstance(result, Decision) and isinstance(event, ContainerCreating):
        asked = result.asked
    else:
        asked = placing(step.before, event, policy)
    found = weighed(asked, event, policy, refused=isinstance(result, NotEnough), search=search)
    if found is None:
        return None
    about, choice = found
    return Entry(about, Kind.CONSIDERED, (f"what was compared: {choice.decided.value}",), choice.facts(), step.at_s)


def weighed(
    asked: tuple[Node, Container] | None, event: Event, policy: Policy, *, refused: bool, search: bool = True
) -> tuple[Container, Choice] | None:
    """Return the container and the alternatives of a decision; None if there was no choice.

    Args:
        asked: the node and the container before the decision, as from `engine.placing`.
        event: the event that was decided.
        policy: the policy that decided.
        refused: whether it refused.
        search: whether to find the containers that would have to leave, if it refused.
    """
    if asked is None:
        return None
    candidates = candidates_of(policy, *asked)
    leaving = leavers(*asked, policy) if refused and search else None
    if candidates is None and leaving is None:
        return None
    if isinstance(event, ContainerResized):
        decided = Decided.NOT_RESIZED if refused else Decided.RESIZED
    else:
        decided = Decided.REFUSED if refused else Decided.PLACED
    return asked[1], Choice(decided, candidates, leaving)


def choice_now(node: Node, policy: Policy, key: str) -> Choice | None:
    """Return the candidates if a placed container were placed again now; None if there would be no choice.

    Errors of the policy raise.
    """
    if node.released or key not in node.grants or key not in node.containers or shortfall(node, policy, key):
        return None  # for a shortfall, no candidates were compared
    seen = shown_for(node, node.containers[key], policy)
    candidates = candidates_of(policy, seen, node.containers[key]) if seen else None
    return Choice(Decided.NOW, candidates) if candidates else None
