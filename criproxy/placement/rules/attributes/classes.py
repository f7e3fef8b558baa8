"""What the classes of containers set through the runtime, under every policy.

Policies ignore it; classes do not depend on CPUs. A container's classes are looked up when it is placed, when its pool
changes, and for all containers when the policy file changes; others keep what they have. A file that classes have set
once stays in `Controls.values`, with its default if no class sets it any more: so it is put back, and stays so whatever
the runtime remembers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from criproxy.errors import Refused
from criproxy.model.controls import DEFAULTS, IDLE, NATURAL, NO_CONTROLS, SWAP, WEIGHT, Controls, as_shown
from criproxy.model.grant import CpuQuota, Grant, Reason
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Explained, Node, changed_keys, with_changes
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.options import class_rules
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.class_rules import ClassRules, ExplainedControls, lifts_quota
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.rules.attributes.quota import owns_all

_IDLE = "1"
_NO_REASONS: tuple[str, ...] = ()


def classes_of(policy: Policy) -> ClassRules | None:
    """Return the classes of the policy file; None without any, and under a policy that leaves containers alone."""
    return None if isinstance(policy, NonePolicy | Fallback) else class_rules.classes_of(policy)


def carried(node: Node, grants: Mapping[str, Grant]) -> dict[str, Grant]:
    """Return those of the new *grants*, made from *node*, that lack what the containers have of their classes."""
    if not node.controlled_keys:
        return {}
    kept = ((key, node.grants[key], grants[key]) for key in node.controlled_keys & grants.keys())
    return {key: _with(old, new, old.controls) for key, old, new in kept if new.controls != old.controls}


def classified(
    node: Node, grants: Mapping[str, Grant], placed: Container, policy: Policy
) -> tuple[Mapping[str, Grant], tuple[Reason, ...]]:
    """Return the *grants* of all containers, made from those of *node*, with what their classes set, and why.

    Args:
        node: the node before.
        grants: after a container was placed.
        placed: that container.
        policy: has the classes.
    """
    classes = classes_of(policy)
    if classes is None and not node.controlled_keys:
        return grants, ()
    found, reasons = dict[str, Grant](), tuple[Reason, ...]()
    for key in {*changed_keys(node.grants, grants), placed.key}:
        old, new = node.grants.get(key), grants.get(key)
        if new is None or key not in node.containers:
            continue
        if key == placed.key or (old is not None and old.pool != new.pool):
            container = placed if key == placed.key else node.containers[key]
            controls, why = _looked_up(node, container, old, new, policy)
            reasons += tuple([Reason(key, each) for each in why]) if key == placed.key else ()
        else:
            controls = old.controls if old else NO_CONTROLS
        if controls != new.controls:
            found[key] = _with(old, new, controls)
    if (mine := found.get(placed.key, grants.get(placed.key))) and _is_to_be_lifted(placed, mine):
        found[placed.key] = _with(node.grants.get(placed.key), replace(mine, quota=CpuQuota.LIFTED), mine.controls)
    return (with_changes(grants, found), reasons) if found else (grants, reasons)


def _is_to_be_lifted(container: Container, grant: Grant) -> bool:
    """Whether an annotation lifts the CFS quota of *container*, which runs on exclusive CPUs only."""
    if grant.quota is CpuQuota.LIFTED or not lifts_quota(grant.controls):
        return False
    return owns_all(grant) and container.asked_quota is not None


def reclassified(before: Node, after: Node, policy: Policy, keys: Iterable[str] | None = None) -> Explained:
    """Return the node *after* with the controls of all containers looked up, and why those of some change.

    Args:
        before: the node whose controls are applied, or about to be.
        after: may have grants from another time.
        policy: has the classes.
        keys: of the containers to look up; None: all.
    """
    if classes_of(policy) is None and not before.controlled_keys and not after.controlled_keys:
        return after, ()
    found, reasons = dict[str, Grant](), list[Reason]()
    for key in after.grants if keys is None else keys:
        old, new, container = before.grants.get(key), after.grants.get(key), after.containers.get(key)
        if new is None or container is None or container.state is ContainerState.EXITED:
            continue
        controls, why = _looked_up(after, container, old, new, policy)
        if controls != new.controls:
            found[key] = _with(old, new, controls)
        if controls != (old.controls if old else NO_CONTROLS):
            reasons += [Reason(key, each) for each in why]
    return (after.replace(grants=with_changes(after.grants, found)) if found else after), tuple(reasons)


def put_back(controls: Controls, container: Container, topology: Topology) -> Controls:
    """Return the *controls* of *container* without any class: each file that was set has its default."""
    return _settled(NO_CONTROLS, controls, container, topology)[0] if controls.values else NO_CONTROLS


def _with(old: Grant | None, new: Grant, controls: Controls) -> Grant:
    made = replace(new, controls=controls)
    return old if old is not None and old == made else made


def _looked_up(node: Node, container: Container, old: Grant | None, new: Grant, policy: Policy) -> ExplainedControls:
    """Return the controls of *container*, and why; what is unknown stays as it was."""
    had, classes = old.controls if old else NO_CONTROLS, classes_of(policy)
    is_new = old is None and container.state is ContainerState.CREATING
    if isinstance(policy, Fallback):
        found, why = new.controls, _NO_REASONS
    elif classes is None:
        found, why = NO_CONTROLS, _NO_REASONS
    else:
        try:
            wishes = Wishes(node, container, options_of(policy))
            found, why = classes.controls_of(wishes, "" if new.is_preserved else new.pool)
        except Refused:
            if is_new:
                raise
            return had, ()
    if not found.values and not had.values and not new.controls.values:
        return (_shared(found) if found.classes else NO_CONTROLS), why
    files = {*dict(new.controls.values), *dict(had.values)}
    known = Controls(tuple((file, had.value(file) or "") for file in sorted(files)))
    controls, more = _settled(found, known, container, node.topology, is_new=is_new)
    return controls, (*why, *more)


def _settled(
    wanted: Controls, had: Controls, container: Container, topology: Topology, *, is_new: bool = False
) -> ExplainedControls:
    """Return the *wanted* controls as far as they can be set, with the defaults of all other files of *had*.

    The kernel refuses a weight for a group with ``cpu.idle``, and runc writes one at each update, from the shares that
    it was given at the create. So a container can only begin its life idle: then it is given no shares.
    """
    values = {file: as_shown(file, value) for file, value in wanted.values}
    sentences = list[str]()
    if lacks := [file for file in values if not topology.has_file(file)]:
        sentences.append(f"{container.title}: this machine has no {' and no '.join(lacks)}")
    if values.get(IDLE) == _IDLE and not is_new and had.value(IDLE) != _IDLE:
        del values[IDLE]
        sentences.append(f"{container.title} becomes idle (cpu.idle) when it is created again")
    for file in dict(had.values).keys() - values.keys():
        values[file] = _default(file, container)
    if values.get(IDLE) == _IDLE:
        values.pop(WEIGHT, None)
    elif had.value(IDLE) == _IDLE:
        values.setdefault(WEIGHT, NATURAL)
    may_set = {file for file in values if topology.has_file(file)} - set(container.kubelet_files)
    if theirs := [file for file in values if file in container.kubelet_files]:
        sentences.append(f"{container.title}: the kubelet sets {' and '.join(theirs)} itself, so its class does not")
    kept = tuple(sorted((file, value) for file, value in values.items() if file in may_set))
    return _shared(Controls(kept, wanted.classes)), tuple(sentences)


def _default(file: str, container: Container) -> str:
    """Return the content of *file* without a class; runtimes give no swap to a container with a memory limit."""
    return "0" if file == SWAP and container.memory_limit_bytes else DEFAULTS[file]


@lru_cache(maxsize=4096)
def _shared(controls: Controls) -> Controls:
    """Return one object for all equal controls."""
    return controls
