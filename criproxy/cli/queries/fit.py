"""``criproxy fit``: would a pod fit on this node?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from criproxy.cli.client import Daemon, ask, control_socket_option
from criproxy.cli.options import CPU, SIZE, WholeNumber, format_option
from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render import words
from criproxy.cli.render.candidates import render_choices
from criproxy.cli.render.console import NOTE, TROUBLE, print_answer, section
from criproxy.model.cpuset import cpus_text
from criproxy.model.resources import MOST_CPU_MILLI, MOST_MEMORY_BYTES
from criproxy.model.text.amounts import format_bytes, format_milli
from criproxy.model.text.bounded import bounded, printable

Values = dict[str, Any]
MOST_CARDS = 100_000


def _pairs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = dict[str, str]()
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(printable(f"{value[:80]!r} must be KEY=VALUE"))
        pairs[key] = text
    return pairs


def _counts(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    counts = dict[str, int]()
    for resource, text in _pairs(context, option, values).items():
        if not (text.isascii() and text.isdigit() and 0 < int(text[:7]) <= MOST_CARDS and len(text) < 7):
            raise click.BadParameter(printable(f"{text[:80]!r} must be a number from 1 to {MOST_CARDS}"))
        counts[resource] = int(text)
    return counts


def _cpu(_context: click.Context, _option: click.Parameter, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= MOST_CPU_MILLI:
        most, given = format_milli(MOST_CPU_MILLI), format_milli(value) if value else 0
        raise click.BadParameter(f"must be from 1m to {most} CPUs, not {given}")
    return value


def _memory(_context: click.Context, _option: click.Parameter, value: int) -> int:
    if value > MOST_MEMORY_BYTES:
        raise click.BadParameter(f"must be at most {format_bytes(MOST_MEMORY_BYTES)}")
    return value


@click.command(short_help="Show whether a pod would fit on this node, and where.")
@click.option("--cpu", type=CPU, callback=_cpu, metavar="CPU", help="CPUs of the container, such as 8, 1.5 or 250m.")
@click.option(
    "--memory",
    type=SIZE,
    callback=_memory,
    metavar="SIZE",
    default="0",
    help="Memory of the container, such as 4Gi.  [default: 100Mi for a Guaranteed pod, else none]",
)
@click.option("--gpu", type=WholeNumber(1, MOST_CARDS), metavar="N", help="GPUs of the container.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    callback=_counts,
    metavar="RESOURCE=N",
    help="Cards or vGPUs of the container, such as nvidia.com/gpu=2; may be repeated.",
)
@click.option(
    "--qos",
    type=click.Choice(["guaranteed", "burstable"]),
    default="guaranteed",
    show_default=True,
    help="guaranteed: the limits of CPU and memory are equal to the requests. burstable: there are no limits.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@click.option("--pod", default="fit", show_default=True, help="Name of the pod, if the policy uses names.")
@click.option("--container", default="main", show_default=True, help="Name of the container.")
@click.option(
    "--annotation", "annotations", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Annotation of the pod."
)
@click.option("--label", "labels", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="Label of the pod.")
@format_option
@control_socket_option
def command(  # noqa: PLR0913 (one for each option)
    *,
    cpu: int | None,
    memory: int,
    gpu: int | None,
    devices: dict[str, int],
    qos: str,
    namespace: str,
    pod: str,
    container: str,
    annotations: dict[str, str],
    labels: dict[str, str],
    output: str,
    control_socket: Daemon,
) -> None:
    """Ask whether a pod with one container would fit on this node now; exit with status 1 if it would not.

    With --cpu, the policy decides. If the pod fits, the command shows its CPUs and NUMA nodes, and the containers that
    would move. If it does not fit, the command shows the policy's reason, and which containers would have to leave.
    With --gpu or --device, the command shows how many cards or vGPUs are free, and on which NUMA nodes. Nothing changes
    on the node. The command needs the daemon, because only the daemon knows the policy.
    """
    if cpu is None and gpu is None and not devices:
        raise click.UsageError("Missing option '--cpu', '--gpu' or '--device'.")
    placed: Values | None = None
    if cpu is not None:
        names = {"namespace": namespace, "pod": pod, "container": container}
        sizes = {"cpu_milli": cpu, "memory_bytes": memory, "qos": qos}
        placed = ask(control_socket, "fit", {**sizes, "names": names, "annotations": annotations, "labels": labels})
    found = _cards(control_socket, gpu, devices)
    fits = (placed is None or placed["fits"]) and all(each["fits"] for each in found)
    values = {**(placed or {}), "fits": fits, **({"devices": found} if found else {})}
    print_answer(values, output, lambda _: render(placed, found))
    raise SystemExit(int(not fits))


def _cards(control_socket: Daemon, gpu: int | None, devices: dict[str, int]) -> list[Values]:
    """Return for each resource whether the container would get so many."""
    if gpu is None and not devices:
        return []
    from criproxy.cli.render.free_cards import cards_of_container, gpu_resource

    answer = ask(control_socket, "devices")
    wanted = ({gpu_resource(answer): gpu} if gpu is not None else {}) | devices
    return cards_of_container(answer, wanted)


MOST_MOVED = 24
"""Containers that would move that are listed; on a large node most of them only give up a few shared CPUs."""


def render(values: Values | None, found: Sequence[Values] = ()) -> rich.RenderableType:
    """Render the whole answer first, and the details after it.

    Args:
        values: an answer of the control socket's `fit`; None: nobody asked about CPUs.
        found: answers of `cards_of_container`.
    """
    cards = [render_cards(each) for each in sorted(found, key=lambda each: bool(each["fits"]))]
    if values is None:
        return rich.Group(*cards)
    values = bounded(values)
    parts: list[rich.RenderableType] = [*words.notices_of(values)]
    if values["fits"] and (lacking := [each for each in found if not each["fits"]]):
        parts += [
            rich.Text(_without_cards(lacking), style=TROUBLE),
            *cards,
            _answer(values, "Without the cards, it would fit"),
        ]
    else:
        parts += [_answer(values), *cards]
    parts += [rich.Text(f"Note: {text}", style=NOTE) for text in values.get("assumed", ())]
    parts += section("Why it would run there", values["why"])
    parts += section("Containers that would move", [*words.first_lines(values["moved"], MOST_MOVED, words.move)])
    if values["choice"]:
        parts += render_choices([values["choice"]])
    return rich.Group(*parts)


def _without_cards(lacking: Sequence[Values]) -> str:
    """Return why a pod that would fit on the CPUs does not get its cards."""
    if refused := next((each["refused"] for each in lacking if each["refused"]), ""):
        return f"It does not fit: {refused}"
    is_known = any(each["free"] is not None for each in lacking)
    return "It does not fit: too few cards are free" if is_known else "It is unknown whether it fits"


def _answer(values: Values, fits: str = "It fits") -> rich.Text:
    if not values["fits"]:
        return rich.Text(f"It does not fit: {values['refusal']}", style=TROUBLE)
    if not values["placed"]:
        return rich.Text(f"{fits}: the policy leaves it alone, and it may run on all CPUs that are not exclusive")
    pool = f", pool {values['pool']}" if values["pool"] else ""
    memory = f", memory of {_nodes(values['mems'])}" if values["mems"] else ""
    on = f" on {_nodes(values['numa_nodes'])}" if values["numa_nodes"] else ""
    return rich.Text(f"{fits}: {cpus_text(values['cpus'])}{on}, {words.exclusivity(values)}{memory}{pool}")


def _nodes(text: str) -> str:
    return f"NUMA node {text}" if text.isdigit() else f"NUMA nodes {text}"


def render_cards(values: Values) -> rich.Text:
    """One of the answers of `cards_of_container`."""
    values = bounded(values)
    asked = f"{values['wanted']} {values['resource']}"
    fit, do = ("fits", "does") if values["wanted"] == 1 else ("fit", "do")
    if values["refused"]:
        return rich.Text(f"{asked} {do} not fit: {values['refused']}", style=TROUBLE)
    if values["free"] is None:
        return rich.Text(f"It is unknown whether {asked} {fit}: {values['unknown']}", style=TROUBLE)
    listed = ", ".join(f"{_where(each['numa_node'])}: {each['free']}" for each in values["free_by_numa_node"])
    free = f"{values['free']} free" + (f" ({listed})" if listed else "")
    if not values["fits"]:
        return rich.Text(f"{asked} {do} not fit: {free}", style=TROUBLE)
    nodes = ",".join(map(str, values["numa_nodes_with_room"]))
    whole = f"; enough on {_nodes(nodes)}" if nodes else ""
    return rich.Text(f"{asked} {fit}: {free}{whole}")


def _where(node: int | None) -> str:
    return "unknown NUMA node" if node is None else f"NUMA node {node}"
