"""Whether the policy in force still gets what its file names: a machine may lose CPUs, at a reboot or while it runs."""

from criproxy.model.machine.topology import Topology
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy


class Fit:
    """What the machine lacks; computed once for each policy and machine, in the thread that asks."""

    def __init__(self) -> None:
        self._known: tuple[Policy, Topology, tuple[str, ...]] | None = None

    def lacking(self, policy: Policy, topology: Topology) -> tuple[str, ...]:
        """Sentences on what *policy* asks for and *topology* lacks, or on a failure of the policy itself."""
        known = self._known
        if known is None or known[0] is not policy or known[1] is not topology:
            self._known = known = (policy, topology, tuple(_lacking(policy, topology)))
        return known[2]


def _lacking(policy: Policy, topology: Topology) -> list[str]:
    from criproxy.config.reading.validation_errors import dotted

    try:
        found = list(options_of(policy).misfits(topology))
    except Exception as error:  # noqa: BLE001 (a policy of another package may raise anything)
        return [f"the policy failed to compare its options with the machine: {error!r}"]
    head = "the machine lacks something that the policy file names"
    return [f"{head}: {dotted(path)}: {text}" for path, text in found]
