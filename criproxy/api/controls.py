"""What classes do beside a place: the controls service for `status`, a container for `explain`, and the notices."""

from collections.abc import Iterator

from criproxy import __version__
from criproxy.model.controls import DEFAULTS, ContainerControls
from criproxy.model.grant import Applied
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import Notice, Values, difference, timestamp
from criproxy.model.text.plain import to_plain
from criproxy.model.workload import Container
from criproxy.node.controller import Controller
from criproxy.node.reconcile.controls_client import ServiceState
from criproxy.node.reconcile.throttling import Observed

MAX_TROUBLES = 20
"""How many notices there are about what the service cannot apply."""
MAX_CHARS = 500


def to_values(controller: Controller) -> Values | None:
    """Return the part ``controls`` of `status`; None while the service has nothing of ours, and is not asked."""
    client, desired = controller.controls, controller.desired_controls
    if client.state is ServiceState.UNUSED:
        return None
    layout, answer = to_plain(desired.layout), client.answer
    return {
        "state": client.state.value,
        "problem": client.problem,
        "socket": client.socket,
        "version": client.version,
        "generation": client.generation,
        "acknowledged": answer.generation,
        "pending": answer.pending or client.is_behind,
        "containers": len(desired.containers),
        "unplaced": len(desired.unplaced),
        "late_starts": client.late_starts,
        "drift": answer.drift,
        "troubles": [{"what": _title(controller, each.what), "text": each.text} for each in answer.troubles],
        "troubles_omitted": answer.troubles_left_out,
        "cpus": layout.get("cpus", {}),
        "irqs": layout.get("irqs"),
    }


async def of_container(controller: Controller, container: Container | None) -> Values | None:
    """Return the part ``controls`` of `explain`; None for a container without classes."""
    node, client, desired = controller.node, controller.controls, controller.desired_controls
    grant = node.grants.get(container.key) if container else None
    if container is None or grant is None or not (grant.controls.classes or grant.controls.values):
        return None
    key, applied = container.key, node.applied.get(container.key)
    sent = desired.containers.get(key)
    return {
        "classes": dict(grant.controls.classes),
        "files": [
            {"file": file, "desired": value, "applied": _applied(applied, file)}
            for file in DEFAULTS
            if (value := grant.controls.value(file)) is not None
        ],
        "service": to_plain(sent) if sent else None,
        "service_state": _state(controller, key, sent),
        "troubles": [each.text for each in client.answer.troubles if each.what == key],
        "throttling": _throttling(await controller.throttling.of(key)),
    }


def _throttling(observed: Observed | None) -> Values | None:
    """Return how a container was throttled; None if it is not observed: it has no CPU limit, or does not run."""
    if observed is None:
        return None
    now, pod, shares = observed.now, observed.pod, observed.shares
    return {
        "since": timestamp(observed.since_s),
        "lifted": observed.lifted,
        "limited": {"seconds": round(shares[False].seconds, 3), "throttled_s": _seconds(shares[False].throttled_us)},
        "unlimited": {"seconds": round(shares[True].seconds, 3), "throttled_s": _seconds(shares[True].throttled_us)},
        "bursts": now.bursts if now else None,
        "burst_s": _seconds(now.burst_us) if now else None,
        "pod": {
            "quota_us": pod.quota.quota_us if pod.quota else None,
            "period_us": pod.quota.period_us if pod.quota else None,
            "throttled_s": _seconds(pod.throttling.throttled_us) if pod.throttling else None,
        }
        if pod
        else None,
    }


def _seconds(time_us: int | None) -> float | None:
    return None if time_us is None else round(time_us / 1e6, 6)


def _applied(applied: Applied | None, file: str) -> str | None:
    value: str | None = getattr(applied, file.replace(".", "_"), None)
    return value


def _state(controller: Controller, key: str, sent: ContainerControls | None) -> str:
    """Return whether the service has set what it should: none, unknown, pending, failed or applied."""
    desired, answer = controller.desired_controls, controller.controls.answer
    if key in desired.unplaced:
        return "unknown"
    if sent is None:
        return "none"
    if desired.is_due(key):
        return "pending"
    return "failed" if any(each.what == key for each in answer.troubles) else "applied"


def _title(controller: Controller, what: str) -> str:
    container = controller.node.containers.get(what)
    return container.title if container else what


def notices(controller: Controller) -> Iterator[Notice]:
    """Yield what is wrong with the service, and what it could not apply."""
    client = controller.controls
    if client.state is ServiceState.UNUSED:
        return
    desired, is_over = controller.desired_controls, controller.desired_controls.parts is None
    if client.problem:
        text = "what classes set outside of CRI is not applied"
        if is_over:
            text = "what classes have changed on this machine may not be put back yet"
        elif desired.is_nothing:
            text = "no class needs criproxy controls now, but what classes have set before may still be there"
        text = f"{text}: {client.problem}"
        yield Notice("controls", text, wrong=False) if is_over or desired.is_nothing else Notice("controls", text)
        return
    if compared := difference(__version__, client.version) if client.version else "":
        text = f"criproxy controls is version {client.version}, {compared} than the daemon ({__version__})"
        yield Notice("controls", f"{text}: restart criproxy-controls.service", wrong=False)
    troubles = client.answer.troubles
    what = "what classes have changed is not put back" if is_over else "a class is not fully applied"
    for each in troubles[:MAX_TROUBLES]:
        yield Notice("controls", f"{what}: {_title(controller, each.what)}: {bounded_text(each.text, MAX_CHARS)}")
    if left := len(troubles[MAX_TROUBLES:]) + client.answer.troubles_left_out:
        yield Notice("controls", f"{left} more settings of classes are not applied, for similar reasons")
