"""What the controls service is to apply: the node and the classes of its policy file → `Desired`.

`use_of` and `controls_of` look at one container, and `layout` at what all containers use, so that a change of one
container does not need a pass over all of them.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from criproxy.model.controls import ContainerControls, Controls, Desired, IrqClaim, Irqs
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.remembered import remembered
from criproxy.model.workload import Container
from criproxy.placement.options.class_rules import EXCLUSIVE, IDLE, RESERVED, SHARED, ClassParts, named_part

_SINK, _AWAY = "sink", "away"


class Use(NamedTuple):
    """On which CPUs a container may run, and which classes count there; thousands of containers have few of them."""

    cpus: CpuSet
    """All of them."""
    own: CpuSet
    """Those on which its classes count: its exclusive CPUs or, without any, those of its pool."""
    is_exclusive: bool
    cpu_class: str = ""
    """Empty: it has none that sets anything on CPUs."""
    irq_class: str = ""


def use_of(grant: Grant, parts: ClassParts) -> Use:
    """Return how the container with *grant* uses CPUs."""
    classes = _classes_of_cpus(grant.controls, parts)
    if grant.exclusive:
        return Use(grant.cpus, grant.exclusive, True, *classes)
    return Use(grant.cpus, grant.home or grant.cpus, False, *classes)


@remembered(64)  # of thousands of containers
def _classes_of_cpus(controls: Controls, parts: ClassParts) -> tuple[str, str]:
    return _effective(controls.class_of("cpu"), controls.class_of("irq"), parts)


def _effective(cpu: str, irq: str, parts: ClassParts) -> tuple[str, str]:
    """Return these classes of CPUs and interrupts, where they set something."""
    return cpu if cpu and parts.tuning(cpu) else "", irq if irq and parts.irq(irq) else ""


def controls_of(container: Container, grant: Grant, parts: ClassParts, cgroup: str) -> ContainerControls | None:
    """Return what the service applies to *container*; None if nothing.

    Args:
        container: has the CPU limit.
        grant: names its classes.
        parts: what these are.
        cgroup: as `ContainerControls.cgroup`.
    """
    controls, quota = grant.controls, container.asked_quota
    burst = parts.bursts.get(named_part(controls.class_of("cpu")))
    found = ContainerControls(
        cgroup=cgroup,
        scheduling=parts.scheduling.get(controls.class_of("scheduling")),
        block_io=parts.block_io.get(controls.class_of("blockIO")),
        rdt_class=controls.class_of("rdt") if parts.rdt else "",
        burst_us=quota.quota_us * burst // 10_000 if burst and quota else None,
    )
    return None if found == ContainerControls(cgroup=cgroup) else found


def layout(
    node: Node, parts: ClassParts, uses: Collection[Use], reserved: CpuSet, empty: Mapping[str, CpuSet]
) -> Desired:
    """Return what is desired for CPUs and interrupts, without containers.

    Args:
        node: has the exclusive CPUs.
        parts: what the classes are.
        uses: of all containers that are not preserved, each once.
        reserved: the reserved CPUs.
        empty: the CPUs of pools without containers, by name.
    """
    uses = [*uses, *_of_pools(empty, parts)]
    cpus = {name: ids for name, ids in _cpus_by_class(node, parts, uses, reserved).items() if ids}
    tunings = {name: tuning for name in cpus if (tuning := parts.tuning(name))}
    return Desired(
        tunings=tunings,
        cpus={name: format_cpuset(cpus[name]) for name in sorted(tunings)},
        rdt=parts.rdt,
        irqs=_irqs(node, parts, uses),
    )


def _of_pools(empty: Mapping[str, CpuSet], parts: ClassParts) -> Iterator[Use]:
    """Yield how the CPUs of pools without containers count: as if there were some, if the pool has a class."""
    for pool, ids in empty.items():
        classes = _effective(parts.of_pool("cpu", pool), parts.of_pool("irq", pool), parts)
        if any(classes):
            yield Use(NO_CPUS, ids, False, *classes)


def _cpus_by_class(node: Node, parts: ClassParts, uses: Collection[Use], reserved: CpuSet) -> dict[str, CpuSet]:
    """Return the CPUs of each class; none is in two of them."""
    if not parts.roles and not any(use.cpu_class for use in uses):
        return {}
    exclusive, left = node.exclusive_cpus, node.topology.cpus
    used = NO_CPUS.union(*(use.cpus for use in uses))
    roles = (RESERVED, reserved), (EXCLUSIVE, exclusive), (SHARED, used), (IDLE, left)
    found: dict[str, CpuSet] = {}
    for name, ids in (*_agreed(uses, exclusive).items(), *((parts.roles.get(role, ""), ids) for role, ids in roles)):
        found[name] = found.get(name, NO_CPUS) | (ids & left)
        left -= ids
    return found


def _agreed(uses: Collection[Use], exclusive: CpuSet) -> dict[str, CpuSet]:
    """Return, by the containers' own classes, the CPUs on which all containers that may run there have that class."""
    found: dict[str, CpuSet] = {}
    for use in uses:
        ids = use.own if use.is_exclusive else use.own - exclusive
        found[use.cpu_class] = found.get(use.cpu_class, NO_CPUS) | ids
    # Each pod may have a class of its own, by an annotation: no set is compared with all others.
    classes = Counter(cpu for ids in found.values() for cpu in ids)
    return {name: frozenset(cpu for cpu in ids if classes[cpu] == 1) for name, ids in sorted(found.items()) if name}


def _irqs(node: Node, parts: ClassParts, uses: Collection[Use]) -> Irqs | None:
    """Return where interrupts go; None if no class is about them."""
    with_class = [(use, rule) for use in uses if use.irq_class and (rule := parts.irq(use.irq_class))]
    if not parts.irqs and not with_class:
        return None
    online = node.topology.online_cpus
    shy = {use for use, rule in with_class if rule.mode == _AWAY}
    shared = NO_CPUS.union(*(use.own for use in uses if not use.is_exclusive and use not in shy))
    away = node.exclusive_cpus | (NO_CPUS.union(*(use.own for use in shy)) - shared)
    sinks = NO_CPUS.union(*(use.own for use, rule in with_class if rule.mode == _SINK))
    claims: dict[tuple[str, ...], CpuSet] = {}
    for use, rule in sorted(with_class, key=lambda each: (each[0].irq_class, min(each[0].own, default=0))):
        if rule.claim:
            claims[rule.claim] = claims.get(rule.claim, NO_CPUS) | use.own
    return Irqs(
        cpus=format_cpuset(sinks or online - away or online),  # an interrupt has to go somewhere
        claims=tuple(IrqClaim(names=names, cpus=format_cpuset(ids)) for names, ids in claims.items()),
        controllable=parts.controllable,
    )
