"""``criproxy simulate --load``: hours of a node by each of several policies, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from criproxy.model.topology import Topology
    from criproxy.sim.load import Load
    from criproxy.sim.load_run import Outcome


def compare(file: Path, policies: Sequence[Path], topology: "Topology | None", output: str, page: Path | None) -> None:
    """Play the load of *file* for each policy file, and tell how they did.

    Args:
        file: a specification or a trace.
        policies: at least one.
        topology: the machine; None takes that of the file.
        output: ``table`` or ``json``.
        page: where to write a page for a browser.

    Raises:
        UsageError: a file cannot be used.
    """
    from criproxy.errors import UsageError
    from criproxy.sim.loads import read_load

    if not policies:
        raise UsageError("give the policies to compare: --policy FILE, once for each")
    load = read_load(file, topology)
    outcomes = _outcomes(load, policies)
    if page:
        _write(page, load, outcomes)
    if output == "json":
        import json

        from criproxy.cli.load_measures import as_json

        click.echo(json.dumps(as_json(load, outcomes)))
    else:
        _print(load, outcomes)


def _outcomes(load: "Load", policies: Sequence[Path]) -> "list[Outcome]":
    import os

    from criproxy.cli.progress import watched
    from criproxy.config.load import load as load_policy
    from criproxy.errors import ConfigError, UsageError
    from criproxy.sim.load_run import Run

    try:
        built = [load_policy(path, os.uname().nodename, topology=load.topology).build_policy() for path in policies]
    except ConfigError as error:
        raise UsageError(str(error)) from error
    runs = [Run(name, policy, load) for name, policy in zip(names(policies), built, strict=True)]
    return [run.play(watched(load.events, f"Policy {run.name}")) for run in runs]


def names(policies: Sequence[Path]) -> list[str]:
    """What to call each: the name of its file where that is enough."""
    stems = [path.stem for path in policies]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, policies, strict=True)]


def _write(page: Path, load: "Load", outcomes: "list[Outcome]") -> None:
    from criproxy.cli.load_page import render
    from criproxy.errors import CriproxyError

    try:
        page.write_text(render(load, outcomes), encoding="utf-8")
    except OSError as error:
        raise CriproxyError(f"{page} cannot be written: {error.strerror}") from error


def _print(load: "Load", outcomes: "list[Outcome]") -> None:
    from rich.table import Table
    from rich.text import Text

    from criproxy.cli.console import show
    from criproxy.cli.load_measures import MEASURES, best

    click.echo(heading(load, outcomes))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for measure in MEASURES:
        winners = best(measure, outcomes)
        cells = [
            Text(measure.shown(measure.value(each)), style="bold green" if place in winners else "")
            for place, each in enumerate(outcomes)
        ]
        table.add_row(measure.title, *cells)
    show(table)


def heading(load: "Load", outcomes: "Sequence[Outcome]") -> str:
    """What was played, in a line."""
    machine = load.topology
    parts = [
        f"{load.name}: {outcomes[0].asked:,} containers in {load.duration_s / 3600:.3g} h",
        f"{len(machine.cpus)} CPUs on {len(machine.nodes)} NUMA nodes",
    ]
    if load.turned_away:
        parts.append(f"{load.turned_away:,} pods not sent as the node was full")
    return ", ".join(parts)
