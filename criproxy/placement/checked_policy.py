"""Checks the layouts of an external policy before they are used, so that it cannot break the node."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from criproxy.errors import Fault
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Explains, Policy
from criproxy.placement.policies.candidates import Candidates

_NAMED = 3
"""How many violations an error names; the length of a status is limited."""


class PolicyFault(Fault):
    """A policy returned a layout that violates an invariant, which the text names. The node is unchanged.

    Like an exception in a policy, this is a failure: the option `onError` decides about the call, not the policy.
    """


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """Passes all calls to another policy, checks its answers, and does not use invalid ones."""

    policy: Policy
    """The external policy."""
    name: str
    """The name in the policy file, for errors."""
    options: Options
    """The common options of the policy: available and reserved CPUs."""
    faults: list[str] | None = None
    """Receives a sentence for each answer that is not used; None: they are not listed."""

    def listing(self, faults: list[str]) -> "CheckedPolicy":
        """Return the same policy, which adds unused answers to *faults*."""
        return replace(self, faults=faults)

    def place(self, node: Node, container: Container) -> Layout:
        """Return the policy's layout.

        Raises:
            Refused: the policy refuses the container.
            PolicyFault: the layout violates an invariant that *node* satisfies.
        """
        layout = self.policy.place(self.options.within(node), container)
        if broken := self._broken(node, layout, node.grants):
            raise PolicyFault(
                self._not_used(f"{container.title} cannot be placed: the policy {self.name!r} is faulty: {broken}")
            )
        return layout

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """Return the candidates that the policy reports; None if it reports none."""
        if not isinstance(self.policy, Explains):
            return None
        return self.policy.candidates(self.options.within(node), container)

    def release(self, node: Node, key: str) -> Layout:
        """Return the policy's layout; if it fails or violates an invariant, leave all other grants unchanged."""
        kept = {other: grant for other, grant in node.grants.items() if other != key}
        try:
            layout = self.policy.release(self.options.within(node), key)
            broken = self._broken(node, layout, kept)
        except Exception as error:  # noqa: BLE001 (the container is gone, even if external code fails)
            layout, broken = Layout(kept), repr(error)
        if not broken:
            return layout
        text = f"{key} ended, and no other container moves: the policy {self.name!r} is faulty: {broken}"
        text = self._not_used(text)
        return Layout(kept, (text,))

    def _not_used(self, text: str) -> str:
        if self.faults is not None:
            self.faults.append(text)
        return text

    def _broken(self, node: Node, layout: Layout, before: Mapping[str, Grant]) -> str:
        """Return the violations of *layout* that the grants *before* do not have; empty if there are none."""
        reserved = self.options.reserved(node.topology)
        found = violations(node.replace(grants=layout.grants), reserved, grants_only=True)
        if found:
            known = set(violations(node.replace(grants=before), reserved, grants_only=True))
            found = [text for text in found if text not in known]
        if taken := (_owned(layout.grants) - _owned(before)) & node.watched_cpus:
            found.append(
                f"{numbered('CPU', taken)} {are(len(taken))} exclusive, and containers run there "
                "that criproxy does not move"
            )
        if lost := before.keys() - layout.grants.keys():
            found.append(f"{len(lost)} other containers have no place any more")
        return "; ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def _owned(grants: Mapping[str, Grant]) -> CpuSet:
    return NO_CPUS.union(*(grant.exclusive for grant in grants.values() if grant.exclusive))
