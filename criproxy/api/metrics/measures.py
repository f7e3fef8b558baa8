"""The values of the controller's metrics: one pass over the containers for each request."""

from collections import Counter
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from criproxy.api.views.shortfalls import undersized
from criproxy.api.views.status_check import WELL, Found
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.node.settings import OnError
from criproxy.placement.answers.shortfalls import shortfall, unplaced
from criproxy.placement.policies.api import Policy, free_of
from criproxy.process.failures import KINDS

if TYPE_CHECKING:  # prometheus_client is loaded only for metrics
    from criproxy.api.metrics.controller_metrics import ControllerValues


def measure(controller: Controller, found: Found = WELL, last_call_s: float | None = None) -> "ControllerValues":
    """Return the values of all metrics in `api.metrics.controller_metrics`.

    *found* is what is wrong, and *last_call_s* when a client called, in seconds since the epoch; None: it never did.
    """
    from criproxy.api.metrics.controller_metrics import ControllerValues

    loaded, trial = controller.context.in_force.loaded, controller.context.in_force.trial
    context, devices, now_s = controller.context, controller.devices, monotonic()
    plugin = controller.device_plugin
    state, counters, node = context.state, context.counters, context.state.node
    ages_s = [now_s - began_s for began_s in controller.reconciler.misplaced_since_s()]
    states = Counter(container.state.value for container in node.containers.values())
    open_incidents = [each for each in node.incidents.values() if not each.ended]
    failing_since_s = context.persister.failing_since_s
    return ControllerValues(
        counters=counters,
        fallbacks=_with(counters.fallbacks, *(way.value for way in OnError)),
        failures=_with(context.failures.counts, *KINDS),
        unpromoted=_unpromoted(node, state.policy),
        undersized=sum(1 for _ in undersized(node)),
        misplaced=len(ages_s),
        misplaced_age_s=max(ages_s, default=0.0),
        containers={state.value: states[state.value] for state in ContainerState},
        cpus=_cpus(node, state.policy),
        store_current=failing_since_s is None,
        store_failing_s=0.0 if failing_since_s is None else now_s - failing_since_s,
        resync_age_s=None if counters.last_resync_s is None else now_s - counters.last_resync_s,
        device_cards={name: len(stock.cards) for name, stock in devices.stocks.items()},
        device_cards_given=devices.cards_given(),
        device_ids=(ids := plugin.ids()),
        device_ids_given=devices.ids_given(ids),
        device_plugin_up=plugin.runs if plugin.should_run else None,
        unhealthy_cards=Counter(each.device_class for each in open_incidents if not each.excess),
        over_quota=Counter((each.device_class, each.excess.quantity.value) for each in open_incidents if each.excess),
        config_problem=context.in_force.problem is not None,
        released=bool(node.released),
        ready=found.not_ready is None,
        problems=found.counts(),
        runtime_up=found.runtime_answers,
        kubelet_last_call_s=last_call_s,
        policy_file=(context.settings.policy_name, loaded.file, loaded.hash),
        config_loaded_s=loaded.at_s,
        try_remaining_s=trial.left_s if trial else 0.0,
    )


def _unpromoted(node: Node, policy: Policy) -> int:
    """Return how many containers wait for a place; ask the policy only about those that have some exclusive CPUs."""
    sharing = {*unplaced(node)}
    others = (key for key, each in node.containers.items() if each.missed and key not in sharing)
    return len(sharing) + sum(1 for key in others if shortfall(node, policy, key))


def _with(counted: Mapping[str, int], *words: str) -> Mapping[str, int]:
    """Return *counted* with 0 for missing *words*: Prometheus shows no increase for a series that did not exist."""
    return {**dict.fromkeys(words, 0), **counted}


def _cpus(node: Node, policy: Policy) -> dict[str, dict[int, int]]:
    kinds = {"exclusive": node.exclusive_cpus, "shared": node.shared_cpus, "free": free_of(policy, node).cpus}
    return {kind: {numa.id: len(numa.cpus & cpus) for numa in node.topology.nodes} for kind, cpus in kinds.items()}
