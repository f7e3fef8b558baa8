"""What each container has been given of cards, as the daemon tells the watcher."""

from collections.abc import Iterator

from criproxy.devices.holdings import EVERY_CLASS, NOTHING, Facts, Holdings, alive, allocated_of, quota_of, words_of
from criproxy.devices.may_see import Word
from criproxy.devices.offers import card_of, unique
from criproxy.devices.rules import DeviceRules
from criproxy.devices.vgpu_profiles import is_vgpu
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.usage.values import Grant


def grants(node: Node, holdings: Holdings, rules: DeviceRules) -> Iterator[Grant]:
    """What all containers have that are there and have an id."""
    for container in alive(node):
        if container.has_id:
            yield from grants_of(node, container, holdings.of(container) or NOTHING, rules)


def grants_of(node: Node, container: Container, facts: Facts, rules: DeviceRules) -> Iterator[Grant]:
    """What one container has: an entry for each resource.

    Args:
        node: has its pod.
        container: who it is.
        facts: what was found at its create.
        rules: which classes there are, and who is exempt.
    """
    pod = node.pods.get(container.pod)
    exempt = rules.is_exempt_namespace(container.namespace) or Word.EXEMPT.value in words_of(facts, EVERY_CLASS)
    for kind in rules.classes:
        for share in allocated_of(facts, kind.name):
            yield Grant(
                container_id=container.key,
                namespace=container.namespace,
                pod=container.pod_name,
                container=container.name,
                pod_uid=pod.uid if pod else "",
                kind=kind.name,
                resource=share["resource"],
                ids=tuple(share["ids"]),
                cards=unique(card_of(each) for each in share["ids"]),
                quota=quota_of(facts, kind.name) if any(map(is_vgpu, share["ids"])) else None,
                exempt=exempt,
            )
