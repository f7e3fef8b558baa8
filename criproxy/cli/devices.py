"""``criproxy devices``: the accelerators of this machine, how far they are from each other, and who was given which."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from criproxy.cli.asking import Places, places_options
from criproxy.cli.place import Place
from criproxy.cli.watching import Render, Values, show_answer, watch_options
from criproxy.devices.cards import Card
from criproxy.devices.links import Peers

_NVIDIA_ID = "GPU-"


@click.command(short_help="Show the GPUs and NPUs of this machine, and the containers that have them.")
@watch_options
@click.option(
    "--config",
    type=Place(),
    metavar="FILE|DIR",
    help="Policy file with the device classes, used if no daemon answers.  [default: /etc/criproxy/policy.yaml]",
)
@places_options
def command(
    *,
    watch: bool,
    interval_s: float,
    output: str,
    config: Path | None,
    **places: Any,  # noqa: ANN401 (click has checked them)
) -> None:
    """Show the cards of each device class, the links between them, and the containers that have them.

    The command asks the daemon. If no daemon answers, it reads this machine and the state that the daemon left on disk.
    The evidence for each allocation is in brackets: annotation, podresources, checkpoint, cdi, nodes. Links between
    cards have the same names as in nvidia-smi. The command gets NVLinks and MIG devices from NVML.
    """
    ask = partial(_ask, Places(**places), config)
    show_answer(ask, output, _renderer, watch=watch, interval_s=interval_s)


def _renderer() -> Render:
    from criproxy.cli.render.devices import render

    return render


def _ask(places: Places, config: Path | None) -> Values:
    values = places.devices(config)
    if any(card["id"].startswith(_NVIDIA_ID) for kind in values["classes"] for card in kind["cards"]):
        told, problem = _nvml()
        add_peers(values, told)
        if problem:
            values["notices"].append({"kind": "nvml", "wrong": False, "text": problem})
    return values


@cache
def _nvml() -> tuple[Mapping[str, Peers], str]:
    """What NVML tells, or why it does not; asked once, since it may take seconds."""
    from criproxy.discovery.nvml import NoNvml, ask_nvml

    try:
        return ask_nvml(), ""
    except NoNvml as error:
        return {}, f"links between GPUs are those of the PCI bus, and MIG devices are unknown: {error}"


def add_peers(values: Values, told: Mapping[str, Peers]) -> None:
    """Complete an answer of `Places.devices` by what a driver tells of cards, by their ids."""
    from criproxy.views.devices import links_between

    for kind in values["classes"]:
        rows = kind["cards"]
        if not any(row["id"] in told for row in rows):
            continue
        kind["links"] = links_between([_card(row) for row in rows], told)
        for row in rows:
            if row["id"] in told:  # else the device plugin may have told
                row["parts"] = list(told[row["id"]].parts)
        kind["elsewhere"] = [held for held in kind["elsewhere"] if not _has_parts(rows, held)]


def _has_parts(rows: list[Values], held: Values) -> bool:
    """Whether all that a container was given are parts of cards here, which are told so."""
    owners = [row for row in rows if set(row["parts"]) & set(held["ids"])]
    for row in owners:
        if held not in row["containers"]:
            row["containers"].append(held)
    found = {part for row in owners for part in (*row["parts"], row["id"])}
    return bool(held["ids"]) and found.issuperset(held["ids"])


def _card(row: Values) -> Card:
    return Card(
        number=row["number"],
        id=row["id"],
        pci=row["pci_address"],
        bridges=tuple(row["pci_bridges"]),
        numa_node=-1 if row["numa_node"] is None else row["numa_node"],
    )
