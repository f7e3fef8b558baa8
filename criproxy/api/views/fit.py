"""Whether a container would fit, as values that JSON can say: what `criproxy fit` shows; docs/status.md."""

from criproxy.api.views import candidates
from criproxy.api.views.moved import moved
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.text.notices import Values
from criproxy.placement.answers.fit import Fit
from criproxy.placement.decision import Decision


def to_values(found: Fit) -> Values:
    """Whether it fits; where, and who would move for it; else why not, and who would have to leave."""
    choice = candidates.values(found.choice, "") if found.choice else None
    result = found.result
    if not isinstance(result, Decision):
        return {"fits": False, "refusal": str(result), **_place(found, None), "why": [], "moved": [], "choice": choice}
    own = [reason.text for reason in result.reasons if reason.key == found.container.key]
    moving = list(moved(found.before, result))
    return {"fits": True, "refusal": "", **_place(found, result), "why": own, "moved": moving, "choice": choice}


def _place(found: Fit, decision: Decision | None) -> Values:
    """Its place; empty sets where it would have none."""
    grant = decision.grant if decision else None
    cpus = grant.cpus if grant else NO_CPUS
    return {
        "placed": grant is not None,
        "cpus": format_cpuset(cpus),
        "exclusive_cpus": format_cpuset(grant.exclusive) if grant else "",
        "mems": format_cpuset(grant.mems) if grant else "",
        "numa_nodes": format_cpuset(found.before.topology.nodes_of(cpus)),
        "pool": grant.pool if grant else "",
    }
