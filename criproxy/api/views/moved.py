"""The containers that would move by a decision, as values that JSON can say."""

from collections.abc import Iterator

from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.text.notices import Values
from criproxy.model.workload import Container
from criproxy.placement.decision import Decision


def moved(before: Node, decision: Decision) -> Iterator[Values]:
    """Yield the containers that would get other CPUs or other memory than on the node *before*, ordered by name."""
    for update in sorted(decision.moving(before), key=lambda update: by_name(before.containers[update.key])):
        container, had = before.containers[update.key], before.grants.get(update.key)
        yield {
            **identity(container),
            "from_cpus": format_cpuset(had.cpus) if had else "",
            "cpus": format_cpuset(update.grant.cpus),
            "from_mems": format_cpuset(had.mems) if had else "",
            "mems": format_cpuset(update.grant.mems),
        }


def by_name(container: Container) -> tuple[str, str, str]:
    """Return by what containers are sorted for people."""
    return container.namespace, container.pod_name, container.name


def identity(container: Container) -> Values:
    """Return the keys that say which container it is."""
    return {
        "id": container.key if container.has_id else "",
        "namespace": container.namespace,
        "pod": container.pod_name,
        "container": container.name,
    }
