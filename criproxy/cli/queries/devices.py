"""``criproxy devices``: the accelerators of this machine, their distances, and the containers that have them."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import NodeClient, places_options
from criproxy.cli.options.path_type import PathOption
from criproxy.cli.repeated_output import Render, Values, show_answer, watch_options
from criproxy.devices.classes.cards import Card
from criproxy.devices.classes.links import Peers

_NVIDIA_ID = "GPU-"


@click.command(short_help="Show the GPUs and NPUs of this machine, and the containers that have them.")
@watch_options
@click.option(
    "--config",
    type=PathOption(),
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
    ask = partial(_query, NodeClient(**places, config=config))
    show_answer(ask, output, _renderer, watch=watch, interval_s=interval_s)


def _renderer() -> Render:
    from criproxy.cli.tables.devices import render

    return render


def _query(places: NodeClient) -> Values:
    values = places.ask("devices")
    if any(card["id"].startswith(_NVIDIA_ID) for kind in values["classes"] for card in kind["cards"]):
        peers, problem = _nvml()
        add_peers(values, peers)
        if problem:
            values["notices"].append({"kind": "nvml", "wrong": False, "text": problem})
    return values


@cache
def _nvml() -> tuple[Mapping[str, Peers], str]:
    """Query NVML once, since it may take seconds; return its answer, or why there is none."""
    from criproxy.host.devices.nvml import NoNvml, ask_nvml

    try:
        return ask_nvml(), ""
    except NoNvml as error:
        return {}, f"links between GPUs are those of the PCI bus, and MIG devices are unknown: {error}"


def add_peers(values: Values, peers: Mapping[str, Peers]) -> None:
    """Add the driver's data about cards, by their ids, to an answer to `devices`."""
    from criproxy.api.views.devices.devices import links_between

    for kind in values["classes"]:
        rows = kind["cards"]
        if not any(row["id"] in peers for row in rows):
            continue
        kind["links"] = links_between([_card(row) for row in rows], peers)
        for row in rows:
            if row["id"] in peers:  # else the parts may be known from the device plugin
                row["parts"] = list(peers[row["id"]].parts)
        kind["elsewhere"] = [held for held in kind["elsewhere"] if not _has_parts(rows, held)]


def _has_parts(rows: list[Values], held: Values) -> bool:
    """Whether all ids of a container are cards in *rows* or their parts; add the container to these cards."""
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
