"""Follows the node: what the controls service is to apply, and what of that it does not have yet.

A change of the node costs as much as it changes: the few containers that differ are looked at. CPUs and interrupts are
computed anew only when something changes that counts for them, and not before the service is told.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from criproxy.cri import translate
from criproxy.model.controls import NOTHING_DESIRED, ContainerControls, Desired
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import changed_keys
from criproxy.model.text.plain import to_plain
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.placement.answers.desired_controls import Use, controls_of, layout, use_of
from criproxy.placement.options.class_rules import ClassParts, classes_of
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import empty_pools_of
from criproxy.placement.policies.none import NonePolicy

_SLICE = ".slice"


@dataclass(slots=True)
class _UseCounts:
    """How containers use CPUs."""

    counts: Counter[Use] = field(default_factory=Counter)
    _of: dict[str, Use] = field(default_factory=dict)
    """By id."""

    def put(self, key: str, use: Use | None) -> bool:
        """Take the *use* of a container, None without any; return whether a use is new, or has none any more."""
        before = self._of.pop(key, None)
        if use is not None:
            self._of[key] = use
        if use == before:
            return False
        if use is not None:
            self.counts[use] += 1
        if before is not None:
            self.counts[before] -= 1
            if not self.counts[before]:
                del self.counts[before]
                return True
        return use is not None and self.counts[use] == 1


@dataclass(slots=True)
class ControlsMap:
    """What is desired now."""

    context: Context
    is_known: Callable[[], bool]
    """Whether the node shows what runs."""
    parts: ClassParts | None = None
    """The classes in force; None without any, and while nothing is to be applied."""
    containers: dict[str, ContainerControls] = field(default_factory=dict)
    """By id."""
    unplaced: set[str] = field(default_factory=set)
    """Containers with such a class whose cgroup is not known."""
    layout: Desired = NOTHING_DESIRED
    """CPUs and interrupts, as they were computed last."""
    _cgroups: dict[str, str] = field(default_factory=dict)
    """Of containers that have, or had, such a class."""
    _around_id: dict[bool, tuple[str, str]] = field(default_factory=dict)
    """Whether the cgroup of a pod is a slice → what the runtime puts before and behind the id, to name a container's
    cgroup: it need not be asked each time."""
    _unsent: set[str] = field(default_factory=set)
    _sent: set[str] = field(default_factory=set)
    """Those that the service has, or may have, and has not confirmed."""
    _uses: _UseCounts = field(default_factory=_UseCounts)
    _is_layout_due: bool = False
    _grants: Mapping[str, Grant] = field(default_factory=dict)
    """Of the node that was looked at last, as are the next three."""
    _containers: Mapping[str, Container] = field(default_factory=dict)
    _exclusive: CpuSet = NO_CPUS
    _topology: Topology | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the node shows what is desired: what runs is known, and a new policy file has decided."""
        return self.is_known() and (bool(self.context.state.node.released) or not self.context.is_before_change)

    def update(self) -> bool:
        """Look at the node, and return whether there is something to tell the service."""
        parts = self._parts_now()
        if parts is not self.parts and self.is_settled:
            self._begin(parts)
        if self.parts is not None:
            self._follow(self.parts)
        return self._has_unsent

    @property
    def has_changes(self) -> bool:
        """Whether something was not sent yet, or not confirmed."""
        return self._has_unsent or bool(self._sent or self.unplaced)

    @property
    def _has_unsent(self) -> bool:
        return bool(self._unsent) or self._is_layout_due

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is desired of the service, although the policy file has classes."""
        return not (self.containers or self.unplaced) and self.layout == NOTHING_DESIRED

    def is_due(self, key: str) -> bool:
        """Whether the service has not confirmed yet what is desired for a container."""
        return key in self._unsent or key in self._sent or key in self.unplaced

    def known_cgroup(self, key: str) -> str:
        """Return the cgroup of a container, which may not be there before its start; empty if it must be asked for."""
        if group := self.context.cgroups.groups.get(key):
            return group.below
        parent = self._parent(key)
        around = self._around_id.get(parent.endswith(_SLICE))
        return f"{parent}/{around[0]}{key}{around[1]}" if parent and around else ""

    def set_cgroup(self, key: str, cgroup: str) -> None:
        """Take the *cgroup* that the runtime reports for a container of `unplaced`; empty if it knows none."""
        self.unplaced.discard(key)
        grant, container = self._grants.get(key), self.context.state.node.containers.get(key)
        if not cgroup or grant is None or container is None or self.parts is None:
            return
        parent, (before, _, behind) = self._parent(key), cgroup.partition(key)
        if parent and before.startswith(f"{parent}/") and "/" not in behind:
            self._around_id[parent.endswith(_SLICE)] = before.removeprefix(f"{parent}/"), behind
        self._cgroups[key] = cgroup
        self._update_controls(container, grant, self.parts)

    def _parent(self, key: str) -> str:
        """Return the cgroup of the pod of a container; empty if it is not known."""
        node = self.context.state.node
        container = node.containers.get(key)
        pod = node.pods.get(container.pod) if container else None
        return translate.cgroup_of_pod(pod.cgroup_parent) if pod else ""

    # ---------------------------------------------------------------- what is sent

    def take_all(self) -> Desired:
        """Return all that is desired; it counts as sent."""
        self._update_layout()
        self._sent = {*self._sent, *self._unsent, *self.containers}
        self._unsent = set()
        return replace(self.layout, containers={**self.containers})

    def take_changes(self) -> dict[str, Any]:
        """Return what has changed since the last of these two calls, as JSON; it counts as sent. Empty: nothing."""
        changed, self._unsent = self._unsent, set()
        self._sent |= changed
        found: dict[str, Any] = {}
        if changed:
            found["containers"] = {key: to_plain(self.containers[key]) for key in changed if key in self.containers}
            found["gone"] = [key for key in changed if key not in self.containers]
        if self._update_layout():
            found["layout"] = to_plain(self.layout)
        return found

    def confirm(self) -> None:
        """All that was sent is applied, as far as that is possible."""
        self._sent.clear()

    # ---------------------------------------------------------------- how it follows

    def _parts_now(self) -> ClassParts | None:
        state = self.context.state
        if state.node.released or isinstance(state.policy, NonePolicy):
            return None
        classes = classes_of(state.policy)
        return classes.desired_parts() if classes else None

    def _begin(self, parts: ClassParts | None) -> None:
        """Forget all that followed from other classes."""
        self.parts = parts
        self._unsent.update(self.containers)
        self.containers, self._grants, self._containers = {}, {}, {}
        self.unplaced.clear()
        self._uses, self._is_layout_due = _UseCounts(), True

    def _follow(self, parts: ClassParts) -> None:
        node = self.context.state.node
        changed = changed_keys(self._grants, node.grants)
        if parts.bursts:  # they depend on the CPU limit
            changed = {*changed, *changed_keys(self._containers, node.containers)}
        for key in changed:
            grant = node.grants.get(key)
            if self._uses.put(key, None if grant is None or grant.is_preserved else use_of(grant, parts)):
                self._is_layout_due = True
            container = node.containers.get(key)
            if grant is None or container is None or not container.has_id:
                self._drop(key)
                self._cgroups.pop(key, None)
            elif (grant.controls.classes or key in self.containers) and not self._has_only_moved(container, grant):
                self._update_controls(container, grant, parts)
        self._grants, self._containers = node.grants, node.containers
        exclusive, topology = node.exclusive_cpus, node.topology
        if exclusive != self._exclusive or topology is not self._topology:
            self._exclusive, self._topology, self._is_layout_due = exclusive, topology, True

    def _has_only_moved(self, container: Container, grant: Grant) -> bool:
        """Whether it was looked at before, and has only got other CPUs or memory: when an owner comes, many have."""
        before = self._grants.get(container.key)
        is_same = self._containers.get(container.key) is container
        return is_same and before is not None and before.controls is grant.controls

    def _update_controls(self, container: Container, grant: Grant, parts: ClassParts) -> None:
        key = container.key
        cgroup = self._cgroups.get(key) or self.known_cgroup(key)
        if not cgroup:
            if controls_of(container, grant, parts, ""):
                self.unplaced.add(key)
            return
        self._cgroups[key] = cgroup
        controls = controls_of(container, grant, parts, cgroup)
        if controls is None:
            self._drop(key)
        elif controls != self.containers.get(key):
            self.containers[key] = controls
            self._unsent.add(key)

    def _drop(self, key: str) -> None:
        self.unplaced.discard(key)
        if self.containers.pop(key, None) is not None:
            self._unsent.add(key)

    def _update_layout(self) -> bool:
        """Compute the layout if something may have changed it; return whether it is another one."""
        if not self._is_layout_due:
            return False
        self._is_layout_due = False
        state, before = self.context.state, self.layout
        if self.parts is None:
            self.layout = NOTHING_DESIRED
        else:
            reserved = options_of(state.policy).reserved(state.node.topology)
            empty = empty_pools_of(state.policy, state.node) if self.parts.pools else {}
            self.layout = layout(state.node, self.parts, self._uses.counts.keys(), reserved, empty)
        return self.layout != before
