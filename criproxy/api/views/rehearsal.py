"""What a configuration would do, as values that JSON can say: `criproxy reload --dry-run`; docs/rollout.md."""

from criproxy.api.views.moved import by_name, identity, moved
from criproxy.model.cpuset import format_cpuset
from criproxy.model.text.notices import Values
from criproxy.placement.answers.rehearsal import Rehearsal

NOTHING: Values = {"ends_release": False, "exclusive_cpus": "", "moved": [], "refused": [], "changes": []}
"""What a file does that cannot come into force."""


def to_values(found: Rehearsal) -> Values:
    """Who would move, who would have no place, and which CPUs would be exclusive then."""
    after, refused = found.decision.node, sorted(found.refused, key=lambda each: by_name(each[0]))
    return {
        "ends_release": bool(found.before.released and not after.released),
        "exclusive_cpus": format_cpuset(after.exclusive_cpus),
        "moved": list(moved(found.before, found.decision)),
        "refused": [{**identity(container), "text": text} for container, text in refused],
    }
