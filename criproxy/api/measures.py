"""The controller in numbers, for metrics: one pass over the containers for each request."""

from collections import Counter
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from criproxy.control.controller import Controller
from criproxy.control.counters import DECISION_BUCKETS_S
from criproxy.control.failures import KINDS
from criproxy.control.settings import OnError
from criproxy.errors import StatusCode
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.policy.api import Policy
from criproxy.policy.options import options_of
from criproxy.views.shortfalls import shortfall, undersized, unplaced
from criproxy.views.status import free_cpus

if TYPE_CHECKING:  # prometheus_client is loaded only for metrics
    from criproxy.observe.placing import Placing

_ASKED = [(source, outcome) for source in ("podresources", "checkpoint") for outcome in ("failed", "late")]
"""What is exported of the kubelet before it has happened."""


def measure(controller: Controller) -> "Placing":
    """Everything that `observe.placing` shows."""
    from criproxy.observe.placing import Placing

    context, now_s = controller.context, monotonic()
    state, counters, node = context.state, context.counters, context.state.node
    ages_s = [now_s - began_s for began_s in controller.reconciler.misplaced_since_s()]
    states = Counter(container.state.value for container in node.containers.values())
    return Placing(
        decisions=counters.decisions,
        decision_bounds_s=DECISION_BUCKETS_S,
        decision_counts=counters.decision_times.counts,
        decision_total_s=counters.decision_times.total_s,
        refusals=_with(counters.refusals, StatusCode.RESOURCE_EXHAUSTED.name, StatusCode.UNAVAILABLE.name),
        fallbacks=_with(counters.fallbacks, *(way.value for way in OnError)),
        resizes_refused=counters.resizes_refused,
        promotions=counters.promotions,
        unpromoted=_unpromoted(node, state.policy),
        undersized=sum(1 for _ in undersized(node)),
        policy_failures=counters.policy_failures,
        policy_faults=counters.policy_faults,
        failures=_with(context.failures.counts, *KINDS),
        updates={"sent": counters.updates_sent, "failed": counters.updates_failed, "lost": counters.updates_lost},
        updates_in_flight=counters.updates_in_flight,
        misplaced=len(ages_s),
        misplaced_age_s=max(ages_s, default=0.0),
        drift={"found": counters.drift_found, "repaired": counters.drift_repaired},
        exits=_with(counters.exits, "events", "lists", "cgroups"),
        unknown=states[ContainerState.UNKNOWN.value],
        inquiries=counters.unknown_outcomes,
        containers={state.value: states[state.value] for state in ContainerState},
        cpus=_cpus(node, state.policy),
        resyncs={"ok": counters.resyncs, "failed": counters.resync_failures},
        resync_age_s=None if counters.last_resync_s is None else now_s - counters.last_resync_s,
        adoptions=counters.adoptions,
        conflicts_repaired=counters.conflicts_repaired,
        reloads={"ok": counters.reloads_ok, "failed": counters.reloads_failed},
        config_problem=context.in_force.problem is not None,
        released=bool(node.released),
        ready=controller.ready,
        **_of_store(controller, now_s),
        **_of_devices(controller),
    )


def _of_store(controller: Controller, now_s: float) -> dict[str, Any]:
    since_s = controller.context.persister.failing_since_s
    return {
        "store_failures": controller.context.counters.store_failures,
        "store_current": since_s is None,
        "store_failing_s": 0.0 if since_s is None else now_s - since_s,
    }


def _of_devices(controller: Controller) -> dict[str, Any]:
    counters, devices = controller.context.counters, controller.devices
    return {
        "device_evidence": {**dict.fromkeys(_ASKED, 0), **counters.device_evidence},
        "device_allocations": dict(counters.device_allocations),
        "device_cards": {name: len(stock.cards) for name, stock in devices.stocks.items()},
        "device_cards_given": devices.cards_given(),
        "devices": {(kind or "all", word): count for (kind, word), count in counters.devices.items()},
    }


def _unpromoted(node: Node, policy: Policy) -> int:
    """How many came without being placed; asks the policy only about containers that have some exclusive CPUs."""
    sharing = {*unplaced(node)}
    others = (key for key, each in node.containers.items() if each.missed and key not in sharing)
    return len(sharing) + sum(1 for key in others if shortfall(node, policy, key))


def _with(counted: Mapping[str, int], *words: str) -> Mapping[str, int]:
    """*counted* with a 0 for those of *words* that never came: Prometheus sees no increase of what was not there."""
    return {**dict.fromkeys(words, 0), **counted}


def _cpus(node: Node, policy: Policy) -> dict[str, dict[int, int]]:
    free = free_cpus(node, policy, options_of(policy).reserved(node.topology))
    kinds = {"exclusive": node.exclusive_cpus, "shared": node.shared_cpus, "free": free}
    return {kind: {numa.id: len(numa.cpus & cpus) for numa in node.topology.nodes} for kind, cpus in kinds.items()}
