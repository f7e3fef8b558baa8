"""The texts that `status` and `explain` have in common, from the values of an answer."""

from __future__ import annotations

import time
from calendar import timegm
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import NOTE, TROUBLE
from criproxy.cli.render.topology_words import count
from criproxy.model.text.amounts import format_bytes, format_milli, format_seconds
from criproxy.model.text.bounded import bounded

P = ParamSpec("P")


def renders(
    parts: Callable[Concatenate[Values, P], Iterator[rich.RenderableType]],
) -> Callable[Concatenate[Values, P], rich.RenderableType]:
    """Return a function that renders what *parts* yields of an answer, or the ``error`` of `repeated_output`."""

    @wraps(parts)
    def render(values: Values, /, *args: P.args, **kwargs: P.kwargs) -> rich.RenderableType:
        if "error" in (safe := bounded(values)):
            return rich.Text(f"{safe['error']}; trying again", style=TROUBLE)
        return rich.Group(*parts(safe, *args, **kwargs))

    return render


def title_of(values: Values, more: str = "") -> rich.Text:
    """Render the source of the answer, since when it has been running, and *more*."""
    if values["source"] != "daemon":
        return rich.Text("criproxy: the daemon does not answer", style=TROUBLE)
    up = ago(values["started"])
    host = f" on {values['host']}" if values.get("host") else ""  # missing in answers of earlier versions
    return rich.Text(
        f"criproxy {values['version']}{host}, process {values['pid']}, up {up}{more}; {values['time'][:19]}Z"
    )


def notices_of(values: Values) -> Iterator[rich.Text]:
    """Render the notices about the node."""
    for notice in values["notices"]:
        if notice["wrong"]:
            yield rich.Text(f"WRONG: {notice['text']}", style=TROUBLE)
        else:
            yield rich.Text(f"Note: {notice['text']}", style=NOTE)


def exclusivity(row: Values) -> str:
    """Return whether the CPUs of *row* are exclusive, all or some of them."""
    if not (owned := row["exclusive_cpus"]):
        return "shared"
    return "exclusive" if owned == row["cpus"] else f"of which {owned} are exclusive"


def vgpu_size(quota: Values) -> str:
    """Return the quotas of a vGPU; empty without one."""
    sizes = [f"{quota['memory_mib']} MiB"] if quota["memory_mib"] else []
    return " and ".join([*sizes, *([f"{quota['cores_percent']} % of the cores"] if quota["cores_percent"] else [])])


def first_lines(rows: Sequence[Values], most: int, line: Callable[[Values], str]) -> Iterator[str]:
    """Yield a line for each container, with its title, at most *most*, and how many more there are."""
    for row in rows[:most]:
        yield f"{short_title(row)}: {line(row)}"
    if (more := len(rows) - most) > 0:
        yield f"… and {count(more, 'more container')}"


def move(row: Values) -> str:
    """Return from where to where a container would move."""
    memory = f", memory of {row['from_mems'] or 'unknown'} → {row['mems']}"
    return f"CPUs {row['from_cpus'] or 'unknown'} → {row['cpus']}{memory if row['from_mems'] != row['mems'] else ''}"


Values = dict[str, Any]
MOST_NAME = 63
"""The maximum length of a name in a cell: Kubernetes allows no longer names of namespaces and containers."""
_NAMES = ("namespace", "pod", "container")
QOS = {"Guaranteed": "Guar", "Burstable": "Burst", "BestEffort": "Best"}


def title(row: Values) -> str:
    """Return NAMESPACE/POD/CONTAINER, without missing parts."""
    parts = (row["namespace"], row["pod"], row["container"])
    return "/".join(part for part in parts if part) or row["id"]


def short_title(row: Values) -> str:
    """Return the title for a cell of a table, with each part shortened: the longest name determines the width."""
    return title({key: short(value) if key in _NAMES else value for key, value in row.items()})


def short(name: str) -> str:
    """Return *name*, without its middle if it is too long for a cell: related names often differ only at the end."""
    if len(name) <= MOST_NAME:
        return name
    begin = MOST_NAME * 2 // 3
    return f"{name[:begin]}…{name[begin + 1 - MOST_NAME :]}"


def cpu(row: Values) -> str:
    """Return request and limit of CPU, such as ``250m/1`` or ``2``; ``-`` for none; or the total of the pod."""
    if total := row.get("pod_cpu_milli"):  # missing in answers of earlier versions
        return f"{format_milli(total)} by pod"
    request = _request(row)
    limit = format_milli(row["cpu_limit_milli"]) if row["cpu_limit_milli"] is not None else "-"
    return request if request == limit else f"{request}/{limit}"


def memory(row: Values) -> str:
    """Return the memory limit; ``-`` for none."""
    limit = row["memory_limit_bytes"]
    return format_bytes(limit) if limit else "-"


def _request(row: Values) -> str:
    low, high = row["cpu_request_milli"]
    if not low:  # 0, 1 and 2 milli-CPU have the same shares, and are almost nothing
        return "-"
    return format_milli(low) if low == high else f"≥{format_milli(low)}"


def ago(stamp: str, now_s: float | None = None) -> str:
    """Return how long ago a time in an answer was, such as ``3 h 12 min``."""
    return format_seconds(passed_s(stamp, now_s))


def passed_s(stamp: str, now_s: float | None = None) -> float:
    """Return the same in seconds."""
    return max(0.0, (time.time() if now_s is None else now_s) - seconds(stamp))


def clock(stamp: str) -> str:
    """Return the local time of day of a time in an answer."""
    return time.strftime("%H:%M:%S", time.localtime(seconds(stamp)))


def seconds(stamp: str) -> float:
    """Convert a time in an answer to seconds since the epoch."""
    return timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) + float(f"0{stamp[19:].rstrip('Z') or '.0'}")
