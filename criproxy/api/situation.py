"""Collects the input of the views: the node, and the state of the controller, at one moment."""

from collections.abc import Sequence
from functools import partial

from criproxy.api.notices import ControllerNotices
from criproxy.api.views.situation import Situation
from criproxy.model.machine.topology import Topology
from criproxy.model.text.notices import Notice
from criproxy.node.controller import Controller
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy


class Situations:
    """Takes snapshots of a controller on the event loop; any thread may format the snapshots."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._fit = Fit()
        self._notices = ControllerNotices(controller)

    def now(self, beside: Sequence[Notice] = ()) -> Situation:
        """Return the present situation, with the notices *beside* in addition to those of the controller."""
        controller = self.controller
        state, node = controller.context.state, controller.node
        return Situation(
            node=node,
            policy=controller.context.settings.policy_name,
            follows=controller.policy_switch.active,
            reserved=options_of(state.policy).reserved(node.topology),
            reserved_later=controller.policy_switch.reserved_later,
            troubles=controller.reconciler.troubles(),
            starting=controller.context.in_flight.sent(),
            notices=(*beside, *self._notices.now()),
            refusals=state.refusals(),
            refusals_omitted=state.refusals_omitted(),
            lacking=partial(self._fit.lacking, state.policy, node.topology),
            resizes=controller.refused_resizes.pending(node),
            placer=state.policy,
        )

    def blockers(self, key: str) -> list[str]:
        """Return the names of the containers that still use CPUs granted to the container *key*."""
        controller = self.controller
        return [controller.node.containers[other].title for other in controller.reconciler.blockers(key)]


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
