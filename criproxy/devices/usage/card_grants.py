"""The grants of cards that the daemon reports to the watcher: what each container has of which cards."""

from collections.abc import Iterator

from criproxy.devices.boundary import Word
from criproxy.devices.classes.offers import card_of, unique
from criproxy.devices.classes.vgpu_profiles import is_vgpu
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.holdings import EVERY_CLASS, NOTHING, Facts, Holdings, alive, allocated_of, quota_of, words_of
from criproxy.devices.usage.values import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container


def grants(node: Node, holdings: Holdings, rules: DeviceRules) -> Iterator[Grant]:
    """Yield the grants of all containers that exist and have an id."""
    for container in alive(node):
        if container.has_id:
            yield from grants_of(node, container, holdings.of(container) or NOTHING, rules)


def grants_of(node: Node, container: Container, facts: Facts, rules: DeviceRules) -> Iterator[Grant]:
    """Yield the grants of one container, one for each resource.

    Args:
        node: the node, with the container's pod.
        container: the container.
        facts: what was found when the container was created.
        rules: the device classes, and which containers are exempt.
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
