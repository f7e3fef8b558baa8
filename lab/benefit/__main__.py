"""``make benefit``: what users gain from criproxy, measured with real work in real containers.

Exit status: 3 if the machine was too noisy, so that the report is marked unusable; 1 if it could not be measured.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from criproxy.host.machine import discover
from lab.bench.processes import StartError
from lab.benefit import cost, pages, report, rounds
from lab.benefit.cases import DEFAULT, FULL, MANAGERS, QUICK, Manager, Plan, chosen, for_machine
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import Equipment
from lab.benefit.pods import Node, SilentError, wait_for_peers
from lab.benefit.samples import Bench
from lab.containerd.containerd import ContainerdError, PrivateContainerd, available
from lab.provenance import ROOT
from tests.runtimes.debian import FetchError

UNUSABLE = 3
_console = Console(width=max(Console().width, 132))
_errors = Console(stderr=True)


def _peers(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    peers = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not (name and separator and path) or name in {each.name for each in MANAGERS}:
            raise click.BadParameter(f"{value!r} is not NAME=SOCKET with a name that is not taken")
        peers[name] = Path(path)
    return peers


@click.command()
@click.option("--quick", is_flag=True, help="Seconds: shows that it works, and reports no figures.")
@click.option("--full", is_flag=True, help="All workloads beside all neighbours, all managers: hours.")
@click.option("--case", "words", multiple=True, help="Only cases whose names begin so.")
@click.option("--peer", "peers", multiple=True, callback=_peers, metavar="NAME=SOCKET", help="Another proxy, too.")
@click.option("--rounds", type=click.IntRange(2), help="Instead of seven.")
@click.option("--seconds", type=click.FloatRange(0.1, 15), help="How long each measurement takes.")
@click.option("--seed", default=1, show_default=True, help="Of the order and of the load.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the report here.")
@click.option("--write-docs", is_flag=True, help="Measure nothing: write the figures of the reports into the pages.")
@click.option(
    "--agree", type=click.Path(path_type=Path, exists=True), help="Name figures that differ from this report."
)
def main(
    path: Path | None,
    agree: Path | None,
    words: tuple[str, ...],
    peers: dict[str, Path],
    *,
    quick: bool,
    full: bool,
    write_docs: bool,
    **changes: Any,  # noqa: ANN401 (fields of Plan)
) -> None:
    """Measure what users gain, and write the report into docs/benefit (or to the file of --json), with pictures.

    Start peers when this says so: in front of the runtime that it has started by then.
    """
    if write_docs:
        pages.write(pages.reports())
        return
    path = path or (None if quick else pages.FOLDER / f"{'full' if full else 'report'}.json")
    plan = replace(QUICK if quick else FULL if full else DEFAULT, **{k: value for k, value in changes.items() if value})
    try:
        made = _measured(plan, words, peers)
    except (ContainerdError, FetchError, SilentError, StartError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error}: {error.stderr}") from error
    report.show(_console, made)
    if path:
        _write(path, made)
    if agree:
        _console.print("disagree:", report.disagreements(json.loads(agree.read_text()), made) or "nothing")
    sys.exit(0 if made["usable"] or not plan.has_figures else UNUSABLE)


def _measured(plan: Plan, words: tuple[str, ...], peers: dict[str, Path]) -> dict[str, Any]:
    if problem := available():
        raise ContainerdError(f"no private containerd here: {problem}")
    equipment, machine = Equipment(), discover()
    if plan.has_figures:
        equipment.make(_errors.print)
    cases = chosen(for_machine(plan, len(machine.cpus), len(machine.mems)), words)
    left_out = equipment.missing({case.workload.needs for case in cases} - {""})
    for need, why in left_out.items():
        _errors.print(f"without {need}: {why}")
    added = tuple(Manager(name, f"the proxy {name}") for name in peers)
    possible = [case for case in cases if case.workload.needs not in left_out]
    plan = replace(plan, cases=tuple(replace(case, managers=(*case.managers, *added)) for case in possible))
    with PrivateContainerd() as daemon, tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        wait_for_peers(daemon.socket, peers, ROOT / "build/benefit.sock", _errors.print)
        cgroups = NodeCgroups(daemon.cgroups.root)
        bench = Bench(Node(cgroups, equipment, Path(folder)), daemon.socket, peers)
        run = rounds.run(plan, bench, _errors)
        made = report.build(plan, run, equipment, cgroups, left_out)
        extent = cost.Extent() if plan.has_figures else cost.QUICK
        made["cost"] = cost.Cost(daemon.socket, daemon.cgroups, peers, extent).measure(_errors.print)
        made["simulated"] = cost.simulate(Path(folder)) if plan.has_figures else {}
    return made


def _write(path: Path, made: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.dump(made))
    if made["cases"]:
        pages.draw(Equipment(), path)
    _errors.print(f"written: {path}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
