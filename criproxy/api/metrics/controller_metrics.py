"""The metrics about the controller, the containers and the node. docs/monitoring.md explains them.

Labels are bounded: kinds of events, gRPC codes, states, and the NUMA nodes of one machine.
"""

from operator import attrgetter
from time import monotonic, time

from criproxy.api.metrics.moment import Metric, MetricTable, Moment, Numbers, with_words
from criproxy.api.views.shortfalls import undersized
from criproxy.api.views.status import totals
from criproxy.node.reconcile.controls_client import ServiceState
from criproxy.node.settings import OnError
from criproxy.placement.answers.shortfalls import shortfall, unplaced, unplaced_since
from criproxy.placement.policies.api import free_of
from criproxy.process.failures import KINDS
from criproxy.process.http.metrics import counter

COUNTS = {
    "resizes_refused": "Refused resizes; the kubelet repeats each of them every second.",
    "promotions": "Containers that got CPUs, a place or a size that they had lacked.",
    "policy_failures": "Events for which the policy raised an unexpected exception.",
    "policy_faults": "Layouts from a policy that broke an invariant and were not used.",
    "store_failures": "Writes to the state database that failed or took too long.",
    "pod_file_failures": "Failed attempts to write the files of pods with cards.",
    "inquiries": "Calls without an answer about which criproxy asked the runtime.",
    "adoptions": "Running containers that criproxy adopted, because it had not placed them.",
    "conflicts_repaired": "Exclusive CPUs on which criproxy found a second container.",
}
"""Field of `Counters`, which is also the name of its metric → help."""
METRICS = MetricTable({name: Metric(counter, text, attrgetter(f"counters.{name}")) for name, text in COUNTS.items()})


@METRICS.counter("event")
def decisions(now: Moment) -> Numbers:
    """Changes of the node's state, by the kind of event that caused them."""
    return now.counters.decisions


@METRICS.counter("code")
def refusals(now: Moment) -> Numbers:
    """Calls from the kubelet that criproxy refused, by gRPC status code."""
    return with_words(now.counters.refusals, ("RESOURCE_EXHAUSTED", "UNAVAILABLE"))


@METRICS.counter("way")
def fallbacks(now: Moment) -> Numbers:
    """Held calls in which criproxy itself failed, by what it did with them."""
    return with_words(now.counters.fallbacks, [way.value for way in OnError])


@METRICS.counter("kind")
def failures(now: Moment) -> Numbers:
    """Failures of criproxy itself: calls, watchers, policies, reports, database rows."""
    return with_words(now.controller.context.failures.counts, KINDS)


@METRICS.counter("outcome")
def updates(now: Moment) -> Numbers:
    """Updates to other containers: sent, and how many of these failed or were lost."""
    return {"sent": now.counters.updates_sent, "failed": now.counters.updates_failed, "lost": now.counters.updates_lost}


@METRICS.counter("outcome")
def drift(now: Moment) -> Numbers:
    """Cpusets changed by another program: found, and how many of these were repaired immediately."""
    return {"found": now.counters.drift_found, "repaired": now.counters.drift_repaired}


@METRICS.counter("seen")
def exits(now: Moment) -> Numbers:
    """Containers that ended without a call, by what reported them."""
    return with_words(now.counters.exits, ("events", "lists", "cgroups"))


@METRICS.counter("outcome")
def resyncs(now: Moment) -> Numbers:
    """Comparisons with the containers that the runtime lists."""
    return {"ok": now.counters.resyncs, "failed": now.counters.resync_failures}


@METRICS.counter("outcome")
def config_reloads(now: Moment) -> Numbers:
    """Reloads of the configuration: ok, or failed, in which case the old one stays."""
    return {"ok": now.counters.reloads_ok, "failed": now.counters.reloads_failed}


@METRICS.counter("how")
def config_tries_ended(now: Moment) -> Numbers:
    """Tries of a configuration that have ended, by what ended them."""
    return with_words(now.counters.tries_ended, ("kept", "time", "file", "asked"))


@METRICS.counter()
def unplaced_seconds(now: Moment) -> float:
    """How long containers have run without having been placed, in sum, with those that still do."""
    running = unplaced_since(now.node.containers, now.node.containers).values()
    return now.counters.unplaced_s + sum(max(0.0, time() - since_s) for since_s in running)


@METRICS.counter()
def late_starts(now: Moment) -> float:
    """Containers that started before the controls service had set their class."""
    return now.controller.controls.late_starts


@METRICS.counter()
def controls_drift(now: Moment) -> float:
    """Files and threads that other programs had changed, and the controls service has repaired, since its start."""
    return now.controller.controls.answer.drift


@METRICS.gauge()
def controls_up(now: Moment) -> float | None:
    """1 while the controls service answers, else 0; absent while no class needs it."""
    state = now.controller.controls.state
    return None if state is ServiceState.UNUSED else state is ServiceState.ANSWERS


@METRICS.gauge()
def controls_troubles(now: Moment) -> float:
    """Settings of classes that the controls service could not apply."""
    answer = now.controller.controls.answer
    return len(answer.troubles) + answer.troubles_left_out


@METRICS.gauge()
def misplaced_containers(now: Moment) -> float:
    """Containers that do not have their grant yet."""
    return totals(now.node)["not_in_place"]  # type: ignore[no-any-return]


@METRICS.gauge()
def misplaced_age_seconds(now: Moment) -> float:
    """For how long a misplaced container is being updated at the most; 0 if none is, as while updates are held."""
    return max((monotonic() - began_s for began_s in now.controller.reconciler.misplaced_since_s()), default=0.0)


@METRICS.gauge()
def unpromoted_containers(now: Moment) -> float:
    """Containers that share CPUs only until they can be placed."""
    policy, node = now.controller.context.state.policy, now.node
    sharing = {*unplaced(node)}
    others = (key for key, each in node.containers.items() if each.missed and key not in sharing)
    return len(sharing) + sum(1 for key in others if shortfall(node, policy, key))


@METRICS.gauge()
def undersized_containers(now: Moment) -> float:
    """Containers without room for the size that they should have."""
    return sum(1 for _ in undersized(now.node))


@METRICS.gauge()
def store_current(now: Moment) -> float:
    """1 while the state on disk is up to date, else 0."""
    return now.controller.context.persister.failing_since_s is None


@METRICS.gauge()
def store_failing_seconds(now: Moment) -> float:
    """How long the state on disk has been out of date; 0 if it is not."""
    since_s = now.controller.context.persister.failing_since_s
    return 0.0 if since_s is None else monotonic() - since_s


@METRICS.gauge()
def resync_age_seconds(now: Moment) -> float | None:
    """How long ago criproxy last asked which containers are running."""
    last_s = now.counters.last_resync_s
    return None if last_s is None else monotonic() - last_s


@METRICS.gauge()
def config_problem(now: Moment) -> float:
    """1 while the configuration in effect is not the one in the file, else 0."""
    return now.controller.context.in_force.problem is not None


@METRICS.gauge()
def config_loaded_timestamp_seconds(now: Moment) -> float:
    """When the configuration in effect was loaded, in seconds since the epoch."""
    return now.controller.context.in_force.loaded.at_s


@METRICS.gauge()
def config_try_remaining_seconds(now: Moment) -> float:
    """Time until the former configuration comes back; 0 if none is being tried, negative if it cannot come back."""
    trial = now.controller.context.in_force.trial
    return trial.remaining_s if trial else 0.0


@METRICS.gauge()
def released(now: Moment) -> float:
    """1 while the node is released and no container is placed, else 0."""
    return bool(now.node.released)


@METRICS.gauge()
def ready(now: Moment) -> float:
    """1 if /readyz answers with 200, 0 while it answers with 503."""
    return now.found.not_ready is None


@METRICS.gauge()
def runtime_up(now: Moment) -> float:
    """1 if the runtime answered when criproxy last asked it, else 0."""
    return now.found.runtime_answers


@METRICS.gauge()
def kubelet_last_call_timestamp_seconds(now: Moment) -> float | None:
    """When a client last called or connected, in seconds since the epoch; absent if none did."""
    return now.last_call_s


@METRICS.gauge()
def updates_in_flight(now: Moment) -> float:
    """Updates to other containers that the runtime has not answered yet."""
    return now.counters.updates_in_flight


@METRICS.gauge()
def unknown_containers(now: Moment) -> float:
    """Containers for which it is unknown whether they exist or run."""
    return now.states["unknown"]


@METRICS.gauge("policy", "file", "hash")
def config_info(now: Moment) -> Numbers:
    """Always 1; the policy, its file and the hash of the file are labels. Equal files have the same hash."""
    context = now.controller.context
    return {(context.settings.policy_name, context.in_force.loaded.file, context.in_force.loaded.hash): 1}


@METRICS.gauge("kind")
def problems(now: Moment) -> Numbers:
    """What criproxy status --check finds wrong, by kind."""
    return now.found.counts()


@METRICS.gauge("state")
def containers(now: Moment) -> Numbers:
    """Known containers by state."""
    return now.states


@METRICS.gauge("numa_node")
def exclusive_cpus(now: Moment) -> Numbers:
    """Exclusive CPUs."""
    return now.by_node(now.node.exclusive_cpus)


@METRICS.gauge("numa_node")
def shared_cpus(now: Moment) -> Numbers:
    """Shared CPUs: pods may use them, and they are not exclusive."""
    return now.by_node(now.node.shared_cpus)


@METRICS.gauge("numa_node")
def free_cpus(now: Moment) -> Numbers:
    """Shared CPUs that can become exclusive: not reserved, isolated, in a balloon or in a used pool."""
    return now.by_node(free_of(now.controller.context.state.policy, now.node).cpus)


@METRICS.gauge()
def node_cpu_utilization_ratio(now: Moment) -> float | None:
    """Share of the node's CPU time that is busy, 0 to 1."""
    return now.controller.node_use.cpu_ratio()


@METRICS.gauge()
def node_memory_utilization_ratio(now: Moment) -> float | None:
    """Share of the node's memory that is in use, 0 to 1."""
    return now.controller.node_use.memory_ratio()
