"""``kubectl criproxy nodes``: what the nodes report in their NodePlacement objects; no agent is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from criproxy.cli.kubectl.cluster import PAGE, Cluster, Object, Right
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import NOTE, TROUBLE, show, table
from criproxy.cli.render.words import passed_s
from criproxy.errors import CriproxyError
from criproxy.model.text.amounts import format_seconds
from criproxy.model.text.bounded import bounded, bounded_texts

GROUP, PLURAL = "criproxy.io", "nodeplacements"
OLD_S = 1200.0
"""Agents write at least every ten minutes: what is older than two of these may no longer hold."""
_GOOD = ("Applied", "Trying", "Waiting")
"""Phases in which nothing is wrong."""
_SAME_CHARACTERS = 100
"""A message that begins like this in a problem is told there; agents cut both."""
MOST_PROBLEMS = 3
"""Of each node, of which a cluster may have thousands; ``criproxy status --check`` has all."""


def print_nodes(cluster: Cluster, output: str) -> None:
    """Print what all nodes report.

    Raises:
        CriproxyError: it cannot be read, or no node reports.
    """
    right = Right("list", PLURAL, group=GROUP)
    found = cluster.items(f"/apis/{GROUP}/v1alpha1/{PLURAL}", right)
    if found is None:
        raise CriproxyError(f"this cluster does not know {PLURAL}.{GROUP}: criproxy's CRDs are not installed ({PAGE})")
    placements = sorted(found, key=lambda each: str(each["metadata"]["name"]))
    if output == "json":
        click.echo(json.dumps(placements))
        return
    if not placements:
        raise CriproxyError(f"no node reports: no agent of criproxy runs, or none may write {PLURAL}.{GROUP} ({PAGE})")
    show(render(placements))


def render(placements: Sequence[Object]) -> rich.RenderableType:
    """Render NodePlacement objects as a table, and below it the problems of each node."""
    found = table("NODE", "PHASE", "READY", "POLICY", "HASH", "EXCLUSIVE", "FREE", "SEEN", right=("EXCLUSIVE", "FREE"))
    lines = list[rich.Text]()
    for each in placements:
        name, status = bounded(each["metadata"]["name"]), bounded(each.get("status") or {})
        policy, cpus = status.get("policy") or {}, status.get("cpus") or {}
        seen_s = _seen_s(status.get("observedAt") or "")
        cells = [name, status.get("phase") or "-", status.get("ready") or "-", policy.get("name") or "-"]
        cells += [policy.get("hash") or "-", str(cpus.get("exclusive", "?")), str(cpus.get("free", "?"))]
        is_wrong = status.get("phase") not in _GOOD or status.get("ready") != "True" or bool(status.get("problems"))
        seen = "never" if seen_s is None else f"{format_seconds(seen_s)} ago"
        found.add_row(*cells, seen, style=TROUBLE if is_wrong else "")
        problems = bounded_texts(status.get("problems") or (), MOST_PROBLEMS)
        lines += [rich.Text(f"WRONG: {name}: {text}", style=TROUBLE) for text in problems]
        message = status.get("message") or ""
        if message and not any(message[:_SAME_CHARACTERS] in each for each in problems):
            lines.append(rich.Text(f"Note: {name}: {message}", style=NOTE))
        if seen_s is None or seen_s > OLD_S:
            lines.append(rich.Text(f"Note: {name}: its agent is silent: this may no longer hold", style=NOTE))
    return rich.Group(found, *([rich.Text(), *lines] if lines else []))


def _seen_s(stamp: str) -> float | None:
    """Return how long ago a time was, in seconds; None for what is no time."""
    try:
        return passed_s(stamp)
    except ValueError:
        return None
