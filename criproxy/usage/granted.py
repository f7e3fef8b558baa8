"""What containers have been given of cards, as the node knows it."""

from collections.abc import Collection, Iterable, Iterator

from criproxy.devices.holdings import Facts, Holdings, allocated_of, ids_of, quota_of, source_of
from criproxy.devices.vgpus import card_of_vgpu
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.usage.values import Grant


def grants_of(node: Node, holdings: Holdings, kinds: Collection[str]) -> Iterator[tuple[Container, Grant]]:
    """Each container with what it was given of each class, also of those that have exited.

    Args:
        node: who is there.
        holdings: what was found when they were created.
        kinds: the names of the classes.
    """
    for container in node.containers.values():
        facts = holdings.of(container)
        for kind in kinds if facts else ():
            if facts and source_of(facts, kind):
                pod = node.pods.get(container.pod)
                yield container, _grant(container, pod.uid if pod else "", facts, kind)


def _grant(container: Container, pod_uid: str, facts: Facts, kind: str) -> Grant:
    shares = allocated_of(facts, kind)
    ids = tuple(one for share in shares for one in share["ids"])
    return Grant(
        container_id=container.key,
        namespace=container.namespace,
        pod=container.pod_name,
        container=container.name,
        pod_uid=pod_uid,
        kind=kind,
        resource=shares[0]["resource"] if shares else "",
        ids=ids,
        cards=_cards(ids_of(facts, kind)),
        quota=quota_of(facts, kind),
    )


def _cards(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(card_of_vgpu(each) for each in ids))
