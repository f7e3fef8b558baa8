"""Checks the answers of an external policy before they are used, so that it cannot break the node."""

from dataclasses import dataclass

from criproxy.errors import Fault
from criproxy.model.cpuset import numbered
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node, without
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Explains, Policy

_NAMED = 3
"""How many violations an error names; the length of a status is limited."""


class PolicyFault(Fault):
    """A policy returned a change that violates an invariant, which the text names. The node is unchanged.

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

    def place(self, node: Node, container: Container) -> Change:
        """Return the policy's answer.

        Raises:
            Refused: the policy refuses the container.
            PolicyFault: the answer violates an invariant that *node* satisfies.
        """
        change = self.policy.place(self.options.within(node), container)
        others = node if container.key in change.grants else node.replace(grants=without(node.grants, (container.key,)))
        if broken := self._broken(others, change):
            raise PolicyFault(
                self._not_used(f"{container.title} cannot be placed: the policy {self.name!r} is faulty: {broken}")
            )
        return change

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """Return the candidates that the policy reports; None if it reports none."""
        if not isinstance(self.policy, Explains):
            return None
        return self.policy.candidates(self.options.within(node), container)

    def release(self, node: Node, left: Grant) -> Change:
        """Return the policy's answer; if it fails or violates an invariant, move no other container."""
        try:
            change = self.policy.release(self.options.within(node), left)
            broken = self._broken(node, change)
        except Exception as error:  # noqa: BLE001 (the container is gone, even if external code fails)
            change, broken = Change({}), repr(error)
        if not broken:
            return change
        text = f"a container ended, and no other container moves: the policy {self.name!r} is faulty: {broken}"
        return Change({}, (self._not_used(text),))

    def _not_used(self, text: str) -> str:
        if self.faults is not None:
            self.faults.append(text)
        return text

    def _broken(self, node: Node, change: Change) -> str:
        """Return the violations that *node* has only after the *change*; empty if there are none."""
        reserved, after = self.options.reserved(node.topology), node.replace(grants={**node.grants, **change.grants})
        found = violations(after, reserved, grants_only=True)
        if found:
            known = set(violations(node, reserved, grants_only=True))
            found = [text for text in found if text not in known]
        if taken := (after.owned_cpus - node.owned_cpus) & node.watched_cpus:
            found.append(
                f"{numbered('CPU', taken)} {are(len(taken))} exclusive, and containers run there "
                "that criproxy does not move"
            )
        return "; ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
