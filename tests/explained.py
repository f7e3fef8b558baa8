"""What must be true of the candidates that a policy shows: that they tell how it really decides."""

from collections.abc import Iterator
from itertools import pairwise

from criproxy.errors import BadAnnotation, NotEnough
from criproxy.model.node import Node
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.engine import placing
from criproxy.placement.events import Event
from criproxy.placement.policies.api import Policy, candidates_of


def explanation_is_true(node: Node, event: Event, policy: Policy) -> Iterator[str]:
    """A sentence for each thing that the candidates of *event* say and that is not so."""
    asked = placing(node, event, policy)
    candidates = candidates_of(policy, *asked) if asked else None
    if asked is None or candidates is None:
        return
    try:
        layout = policy.place(*asked)
    except BadAnnotation:
        return
    except NotEnough:
        yield from _of_refusal(candidates)
    else:
        grant = layout.grants.get(asked[1].key)
        yield from _of_choice(candidates, grant.pool if grant else "")
    yield from _of_order(candidates)


def _of_refusal(candidates: Candidates) -> Iterator[str]:
    if candidates.chosen:
        yield f"{candidates.chosen} is said to be chosen, and the container was refused"
    for row in candidates.rows:
        if not row.lacks:
            yield f"{row.name} is said to have room, and the container was refused"


def _of_choice(candidates: Candidates, pool: str) -> Iterator[str]:
    fitting = [row.name for row in candidates.rows if not row.lacks]
    if candidates.rows and candidates.chosen not in [row.name for row in candidates.rows]:
        yield f"what was chosen, {candidates.chosen!r}, is none of the candidates"
    if fitting and candidates.chosen != fitting[0]:
        yield f"{fitting[0]} is said to be the best, and {candidates.chosen!r} to be chosen"
    if pool and candidates.chosen != pool:
        yield f"{candidates.chosen!r} is said to be chosen, and the container is in {pool}"


def _of_order(candidates: Candidates) -> Iterator[str]:
    names = [row.name for row in candidates.rows]
    if len(set(names)) < len(names):
        yield f"candidates have the same name: {names}"
    lacking = [bool(row.lacks) for row in candidates.rows]
    if lacking != sorted(lacking):
        yield "one without room comes before one with room"
    fitting = [row for row in candidates.rows if not row.lacks]
    for row in fitting:
        if len(row.values) != len(candidates.measures):
            yield f"{row.name} has {len(row.values)} values for {len(candidates.measures)} criteria"
    for better, worse in pairwise(fitting):
        if better.values > worse.values:
            yield f"{better.name} comes before {worse.name}, which is better"
