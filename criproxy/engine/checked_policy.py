"""Keeps an external policy from breaking a node: its layouts are checked before they are used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from criproxy.engine.invariants import violations
from criproxy.errors import Fault
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.policy.api import Explains, Policy
from criproxy.policy.candidates import Candidates
from criproxy.policy.options import Options

_TOLD = 3
"""How many violations an error names; the status of a call has little room."""


class PolicyFault(Fault):
    """A policy answered with a layout that breaks an invariant; the text says which. The node is as before.

    A failure like that of a policy that raises: what becomes of the call says `onError`, not the policy.
    """


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """Passes everything to another policy, checks its answers, and does not use those that are wrong."""

    policy: Policy
    """The external policy."""
    name: str
    """As in the policy file, for errors."""
    options: Options
    """Those of the policy that every policy has: what it may use, and what is never exclusive."""
    faults: list[str] | None = None
    """Gets a sentence for each answer that is not used; None: they are not listed."""

    def listing(self, faults: list[str]) -> "CheckedPolicy":
        """The same, which lists in *faults* the answers that are not used."""
        return replace(self, faults=faults)

    def place(self, node: Node, container: Container) -> Layout:
        """The policy's layout.

        Raises:
            Refused: as the policy says.
            PolicyFault: the layout breaks an invariant that *node* keeps.
        """
        layout = self.policy.place(self.options.within(node), container)
        if broken := self._broken(node, layout, node.grants):
            raise PolicyFault(
                self._not_used(f"{container.title} cannot be placed: the policy {self.name!r} is wrong: {broken}")
            )
        return layout

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """What the policy says that it chose from; None where it says nothing."""
        if not isinstance(self.policy, Explains):
            return None
        return self.policy.candidates(self.options.within(node), container)

    def release(self, node: Node, key: str) -> Layout:
        """The policy's layout; where that fails or breaks an invariant, the places of all others as they are."""
        kept = {other: grant for other, grant in node.grants.items() if other != key}
        try:
            layout = self.policy.release(self.options.within(node), key)
            broken = self._broken(node, layout, kept)
        except Exception as error:  # noqa: BLE001 (whatever a stranger's code does, the container has gone)
            layout, broken = Layout(kept), repr(error)
        if not broken:
            return layout
        text = self._not_used(f"{key} ended, and no other container moves: the policy {self.name!r} is wrong: {broken}")
        return Layout(kept, (text,))

    def _not_used(self, text: str) -> str:
        if self.faults is not None:
            self.faults.append(text)
        return text

    def _broken(self, node: Node, layout: Layout, before: Mapping[str, Grant]) -> str:
        """What is wrong with *layout* and is not with the grants *before*; empty if nothing is."""
        reserved = self.options.reserved(node.topology)
        found = violations(node.replace(grants=layout.grants), reserved, grants_only=True)
        if found:
            known = set(violations(node.replace(grants=before), reserved, grants_only=True))
            found = [text for text in found if text not in known]
        if taken := (_owned(layout.grants) - _owned(before)) & node.watched_cpus:
            found.append(
                f"CPUs {format_cpuset(taken)} are exclusive, and containers run there that criproxy does not move"
            )
        if lost := before.keys() - layout.grants.keys():
            found.append(f"{len(lost)} other containers have no place any more")
        return "; ".join(found[:_TOLD]) + (f" and {len(found) - _TOLD} more" if len(found) > _TOLD else "")


def _owned(grants: Mapping[str, Grant]) -> CpuSet:
    return NO_CPUS.union(*(grant.exclusive for grant in grants.values() if grant.exclusive))
