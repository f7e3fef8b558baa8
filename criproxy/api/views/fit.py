"""The command `fit` of the control socket: whether a described pod would fit on the node."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from criproxy.api.views import candidates
from criproxy.api.views.candidates import moved
from criproxy.api.views.situation import Situation
from criproxy.api.views.status_check import all_notices
from criproxy.errors import CriproxyError, Refused, UsageError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.planned import Amounts, ContainerPlan, PodPlan
from criproxy.model.resources import MAX_SHARES_MILLI, MOST_CPU_MILLI, MOST_MEMORY_BYTES
from criproxy.model.text.amounts import counted, format_bytes, format_milli
from criproxy.model.text.annotations import DOMAINS, policy_annotations
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import Values
from criproxy.model.workload import QosClass
from criproxy.placement.answers.rehearsal import Fit, fit
from criproxy.placement.decision import Decision

_QOS = {"guaranteed": QosClass.GUARANTEED, "burstable": QosClass.BURSTABLE}
KEY = "criproxy-fit"
"""The id of its sandbox and of its reservation: no runtime makes such an id."""
NAMES = {"namespace": "default", "pod": "fit", "container": "main"}
"""Its names, where a request has none."""
ASSUMED_MEMORY_BYTES = 100 << 20
"""The limit of a Guaranteed pod if a request has none: without a memory limit, it would not be Guaranteed."""


def read(arguments: Mapping[str, Any]) -> tuple[PodPlan, list[str]]:
    """Return the pod that *arguments* describe, and in sentences how it differs from them.

    A Burstable pod requests CPU and memory, and has no limits.

    Raises:
        UsageError: they are invalid.
    """
    qos = arguments.get("qos", "guaranteed")
    if not isinstance(qos, str) or qos not in _QOS:
        raise UsageError(f"qos: must be guaranteed or burstable, not {qos!r:.80}")
    annotations, limited, assumed = _texts(arguments, "annotations"), qos == "guaranteed", list[str]()
    if unread := annotations.keys() - policy_annotations(annotations).keys():
        name = bounded_text(min(unread), 200)
        raise UsageError(f"annotation {name!r}: no policy reads it; the domains are {', '.join(DOMAINS)}")
    milli = _amount(arguments, "cpu_milli", 1, MOST_CPU_MILLI)
    memory = _amount(arguments, "memory_bytes", 0, MOST_MEMORY_BYTES)
    if limited and not memory:
        memory = ASSUMED_MEMORY_BYTES
        has = f"a limit of {format_bytes(memory)}"
        assumed.append(f"a Guaranteed pod has a memory limit, and none was given: {has} is assumed")
    if not limited and milli > MAX_SHARES_MILLI:
        most = counted(MAX_SHARES_MILLI // 1000, "CPU")
        assumed.append(f"CRI messages contain no request above {most}, so the policy would see {most}")
    names = {**NAMES, **_texts(arguments, "names")}
    amounts = Amounts(milli, milli if limited else None, memory, memory if limited else None)
    plan = PodPlan(
        name=names["pod"],
        namespace=names["namespace"],
        qos=_QOS[qos],
        containers=(ContainerPlan(names["container"], amounts),),
        annotations=policy_annotations(annotations),
        labels=_texts(arguments, "labels"),
    )
    return plan, assumed


def collect(situation: Situation, arguments: Mapping[str, Any]) -> Values:
    """Return the answer of `fit`: what the policy would do with the pod of *arguments*, which `read` takes.

    This may be slow: it searches for containers whose removal would make room.

    Raises:
        UsageError: an argument is wrong.
        CriproxyError: the policy failed.
    """
    (plan, assumed), policy, node = read(arguments), situation.placer, situation.node
    assert policy is not None  # as in every daemon
    notices = [notice.to_json() for notice in all_notices(situation)]
    pod = plan.pod(KEY, plan.name)
    container = plan.containers[0].container(KEY, pod, node.topology.capacity_bytes)
    try:
        found = fit(node, policy, pod, container)
    except CriproxyError:
        raise
    except Exception as error:  # the policy may be an external one
        raise CriproxyError(f"the policy cannot say whether it fits: {error!r}") from error
    if text := _lacks(plan.containers[0].amounts, node.topology, is_placed=isinstance(found.result, Decision)):
        found = replace(found, result=Refused(f"container {container.title} {text}"), choice=None)
    return {"policy": situation.policy, "notices": notices, "assumed": assumed, **to_values(found)}


def _lacks(asked: Amounts, topology: Topology, *, is_placed: bool) -> str:
    """Return why the machine is too small for what a policy has placed, or even refuses; empty if it is not.

    Whatever the policy says: it sees the size as it is in CRI messages, which contain no request above 256 CPUs, and
    not every policy counts memory.
    """
    count, capacity_bytes = len(topology.cpus), topology.capacity_bytes
    milli, memory_bytes = asked.cpu_request_milli, asked.memory_request_bytes
    if milli > 1000 * count:
        asks = "1 CPU" if milli == 1000 else f"{format_milli(milli)} CPUs"
        return f"asks for {asks}, and the machine has {counted(count, 'CPU')} for pods"
    if not is_placed or not 0 < capacity_bytes < memory_bytes:
        return ""
    return f"asks for {format_bytes(memory_bytes)} of memory, and the machine has {format_bytes(capacity_bytes)}"


def _amount(arguments: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = arguments.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name}: must be a number from {least} to {most}, not {value!r:.80}")
    return value


def _texts(arguments: Mapping[str, Any], name: str) -> dict[str, str]:
    values = arguments.get(name, {})
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise UsageError(f"{name}: must be texts by name")
    return values


def to_values(found: Fit) -> Values:
    """Return whether it fits: its place and the containers that would move, or the refusal and what would make room."""
    choice = candidates.values(found.choice, "") if found.choice else None
    result = found.result
    if not isinstance(result, Decision):
        return {"fits": False, "refusal": str(result), **_place(found, None), "why": [], "moved": [], "choice": choice}
    own = [reason.text for reason in result.reasons if reason.key == found.container.key]
    moving = list(moved(found.before, result))
    return {"fits": True, "refusal": "", **_place(found, result), "why": own, "moved": moving, "choice": choice}


def _place(found: Fit, decision: Decision | None) -> Values:
    """Return its place; without a *decision* or a grant, the sets are empty."""
    grant = decision.grant if decision else None
    cpus = grant.cpus if grant else NO_CPUS
    return {
        "placed": grant is not None,
        "cpus": format_cpuset(cpus),
        "exclusive_cpus": format_cpuset(grant.exclusive) if grant else "",
        "mems": format_cpuset(grant.mems) if grant else "",
        "numa_nodes": format_cpuset(found.before.topology.nodes_of(cpus)),
        "pool": grant.pool if grant else "",
    }
