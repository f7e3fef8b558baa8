"""``make benefit``: what users gain from criproxy, measured with real work in real containers.

Exit status: 3 if the machine was too noisy, so that the report is marked unusable; 1 if it could not be measured.
"""

import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from criproxy.emulator.containerd import ContainerdError, PrivateContainerd, available
from tests.rigs.bench.processes import StartError
from tests.rigs.benefit import cost, numa, pages, report, rounds
from tests.rigs.benefit.cases import DEFAULT, FULL, MANAGERS, NEIGHBOURS, QUICK, Case, Manager, Plan, chosen
from tests.rigs.benefit.cgroups import NodeCgroups
from tests.rigs.benefit.equipment import ROOT, Equipment, cache_directory
from tests.rigs.benefit.pods import Image, Node, SilentError
from tests.rigs.benefit.samples import Bench
from tests.runtimes.debian import FetchError

UNUSABLE = 3
REPORT = ROOT / "docs/benefit/report.json"
_NEEDS = ("tensorflow", "torch", "numpy", "redis")
_console = Console(width=max(Console().width, 132))
_errors = Console(stderr=True)


def _peers(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    peers = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not (name and separator) or not Path(path).is_socket() or name in {each.name for each in MANAGERS}:
            raise click.BadParameter(f"{value!r} is not NAME=SOCKET with a new name and the path of a unix socket")
        peers[name] = Path(path)
    return peers


@click.command()
@click.option("--quick", is_flag=True, help="Seconds: shows that it works, and reports no figures.")
@click.option("--full", is_flag=True, help="All workloads beside all neighbours under all managers: hours.")
@click.option("--case", "words", multiple=True, help="Only cases whose names begin so; with --full for all cases.")
@click.option("--manager", "managers", multiple=True, help="Only these managers; the first of a case is compared with.")
@click.option("--peer", "peers", multiple=True, callback=_peers, metavar="NAME=SOCKET", help="Another proxy before it.")
@click.option("--runtime", type=click.Path(path_type=Path, exists=True), help="A runtime that runs, for peers.")
@click.option("--rounds", type=click.IntRange(2), help="Instead of seven.")
@click.option("--seconds", type=click.FloatRange(0.1, 15), help="How long each measurement takes.")
@click.option("--seed", default=1, show_default=True, help="Of the order and of the load.")
@click.option("--no-cost", is_flag=True, help="Leave out what criproxy itself takes, and the simulations.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the report here.")
@click.option("--write-docs", is_flag=True, help="Measure nothing: write the figures of the report into the pages.")
@click.option(
    "--agree", type=click.Path(path_type=Path, exists=True), help="Name figures that differ from this report."
)
def main(path: Path | None, agree: Path | None, *, quick: bool, full: bool, write_docs: bool, **options: Any) -> None:  # noqa: ANN401
    """Measure what users gain, and write docs/benefit/report.json and its pictures (or the file of --json)."""
    try:
        if write_docs:
            pages.write(json.loads((path or REPORT).read_text()))
            return
        plan = _plan(QUICK if quick else FULL if full else DEFAULT, **options)
        made = _measured(plan, options["peers"], options["runtime"], costs=not options["no_cost"], quick=quick)
    except (ContainerdError, FetchError, SilentError, StartError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    report.show(_console, made)
    if plan.has_figures or path:
        _write(path or REPORT, made)
    if agree:
        _console.print("disagree:", report.agree(json.loads(agree.read_text()), made) or "nothing")
    sys.exit(0 if made["usable"] or not plan.has_figures else UNUSABLE)


def _plan(
    plan: Plan, *, words: tuple[str, ...], managers: tuple[str, ...], peers: dict[str, Path], seed: int, **options: Any
) -> Plan:  # noqa: ANN401
    changes = {name: options[name] for name in ("rounds", "seconds") if options[name]}
    cases = chosen(plan, words, managers)
    added = tuple(Manager(name, f"the proxy {name}") for name in peers)
    cases = tuple(Case(case.workload, case.neighbours, (*case.managers, *added)) for case in cases)
    return replace(plan, cases=cases, seed=seed, **changes)


def _measured(plan: Plan, peers: dict[str, Path], runtime: Path | None, *, costs: bool, quick: bool) -> dict[str, Any]:
    if problem := available():
        raise ContainerdError(f"no private containerd here: {problem}")
    equipment = Equipment(cache_directory())
    if plan.has_figures:
        equipment.make(_errors.print)
    left_out = report.workloads_left_out(plan, equipment, _NEEDS)
    for need, why in left_out.items():
        _errors.print(f"without {need}: {why}")
    plan = rounds.without(plan, set(left_out))
    with PrivateContainerd() as daemon, tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        cgroups = NodeCgroups(daemon.cgroups)
        directory = Path(folder)
        bench = Bench(Node(cgroups, Image(equipment), directory), daemon.socket, peers)
        run = rounds.run(plan, bench, _errors)
        made = report.build(plan, run, equipment, cgroups, left_out)
        if costs:
            extent = cost.QUICK if quick else cost.Extent()
            made["cost"] = cost.Cost(daemon.socket, daemon.cgroups, peers, extent).measure(_errors.print)
            made["simulated"] = {} if quick else numa.simulate(directory)
    return made


def _write(path: Path, made: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n")
    if made["cases"]:
        pages.draw(Equipment(cache_directory()), path)
    _errors.print(f"written: {path}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
