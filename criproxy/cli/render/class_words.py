"""Classes in words: what the controls service does, and what a container has of its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.model.cpuset import cpus_text

Values = Mapping[str, Any]
_SET = {
    "applied": "set",
    "pending": "not confirmed yet",
    "failed": "not set, see below",
    "unknown": "not set: its cgroup is not known yet",
}


def service_line(controls: Values) -> rich.Text:
    """Return one line about the service, from ``controls`` of `status`."""
    if controls["state"] != "answers":
        return rich.Text(f"Classes: {controls['problem'] or 'criproxy controls has not answered yet'}", TROUBLE)
    version = f"version {controls['version']}, " if controls["version"] else ""
    parts = [f"{version}{count(controls['containers'], 'container')}"]
    parts += [f"class {name} on {cpus_text(cpus)}" for name, cpus in controls["cpus"].items()]
    if irqs := controls["irqs"]:
        parts.append(f"interrupts on {cpus_text(irqs['cpus'])}")
    if controls["pending"]:
        parts.append("not all applied yet")
    if troubles := len(controls["troubles"]) + controls["troubles_omitted"]:
        parts.append(f"{count(troubles, 'setting')} cannot be applied")
    if controls["drift"]:
        parts.append(f"repaired {count(controls['drift'], 'change')} by others")
    return rich.Text(f"Classes: criproxy controls, {', '.join(parts)}", TROUBLE if troubles else "")


def container_lines(controls: Values) -> Iterator[str]:
    """Yield what a container has of its classes, from ``controls`` of `explain`."""
    by_name = sorted((name, kind) for kind, name in controls["classes"].items())
    for name, group in groupby(by_name, key=lambda each: each[0]):
        yield f"class {name} for {', '.join(kind for _, kind in group)}"
    for each in controls["files"]:
        wanted = each["desired"] or "as requested"
        has = "" if each["applied"] == each["desired"] else f", but has {each['applied'] or 'an unknown value'}"
        yield f"{each['file']}: {wanted}{has}"
    if controls["service"]:
        state = _SET.get(controls["service_state"], controls["service_state"])
        for kind, value in controls["service"].items():
            if kind != "cgroup":
                yield f"{kind.replace('_', ' ')}: {_words(value)} ({state})"
    yield from controls["troubles"]
    if throttling := controls.get("throttling"):  # missing in answers of earlier versions
        yield from _throttled(throttling)


def _throttled(throttling: Values) -> Iterator[str]:
    """Yield how a container was throttled, with its CPU limit and without."""
    parts = [f"{_time(throttling[key])} {word}" for key, word in (("limited", "in force"), ("unlimited", "lifted"))]
    now = "lifted" if throttling["lifted"] else "in force"
    yield f"CPU limit: {now}; throttled {', '.join(parts)}, since {throttling['since'][:19]}Z"
    if throttling["bursts"]:
        yield f"bursts: {count(throttling['bursts'], 'period')}, {throttling['burst_s']:g} s"
    if (pod := throttling["pod"]) is None:
        yield "CPU limit of its pod: unknown"
    elif pod["quota_us"] is not None:
        was = "unknown" if pod["throttled_s"] is None else f"{pod['throttled_s']:g} s"
        yield f"CPU limit of its pod: {pod['quota_us']} of {pod['period_us']} µs, always in force; throttled: {was}"


def _time(share: Values) -> str:
    throttled = "for an unknown time" if share["throttled_s"] is None else f"{share['throttled_s']:g} s"
    return f"{throttled} in {share['seconds']:g} s"


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_words(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_words, value))
    return str(value)
