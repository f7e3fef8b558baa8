"""``make benefit``: what users gain from criproxy, measured with real work in real containers.

Exit status: 3 if the machine was too noisy, so that the report is marked unusable; 1 if it could not be measured.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from criproxy.host.machine import discover
from lab.bench.processes import StartError
from lab.benefit import cost, numa, pages, report, rounds
from lab.benefit.cases import DEFAULT, FULL, MANAGERS, QUICK, Manager, Plan, chosen, for_machine
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import ROOT, Equipment, cache_directory
from lab.benefit.managers import wait_for_peers
from lab.benefit.pods import Image, Node, SilentError
from lab.benefit.samples import Bench
from lab.containerd.containerd import ContainerdError, PrivateContainerd, available
from tests.runtimes.debian import FetchError

UNUSABLE = 3
_NEEDS = ("tensorflow", "torch", "numpy", "redis")
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


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the plan."""

    words: tuple[str, ...]
    managers: tuple[str, ...]
    peers: dict[str, Path]
    rounds: int | None
    seconds: float | None
    seed: int
    no_cost: bool

    def apply(self, plan: Plan) -> Plan:
        """*plan* as these options change it; ValueError if nothing is left of it."""
        changes = {name: value for name in ("rounds", "seconds") if (value := getattr(self, name))}
        added = tuple(Manager(name, f"the proxy {name}") for name in self.peers)
        machine = discover()
        cases = chosen(for_machine(plan, len(machine.cpus), len(machine.mems)), self.words, self.managers)
        cases = tuple(replace(case, managers=(*case.managers, *added)) for case in cases)
        return replace(plan, cases=cases, seed=self.seed, **changes)


@click.command()
@click.option("--quick", is_flag=True, help="Seconds: shows that it works, and reports no figures.")
@click.option("--full", is_flag=True, help="All workloads beside all neighbours, all managers: hours.")
@click.option("--case", "words", multiple=True, help="Only cases whose names begin so.")
@click.option("--manager", "managers", multiple=True, help="Only these managers; the first of a case is compared with.")
@click.option("--peer", "peers", multiple=True, callback=_peers, metavar="NAME=SOCKET", help="Another proxy, too.")
@click.option("--rounds", type=click.IntRange(2), help="Instead of seven.")
@click.option("--seconds", type=click.FloatRange(0.1, 15), help="How long each measurement takes.")
@click.option("--seed", default=1, show_default=True, help="Of the order and of the load.")
@click.option("--no-cost", is_flag=True, help="Leave out what criproxy itself takes, and the simulations.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the report here.")
@click.option("--write-docs", is_flag=True, help="Measure nothing: write the figures of the reports into the pages.")
@click.option(
    "--agree", type=click.Path(path_type=Path, exists=True), help="Name figures that differ from this report."
)
def main(
    path: Path | None,
    agree: Path | None,
    *,
    quick: bool,
    full: bool,
    write_docs: bool,
    **words: Any,  # noqa: ANN401 (the fields of Options)
) -> None:
    """Measure what users gain, and write the report into docs/benefit (or to the file of --json), with pictures.

    Start peers when this says so: in front of the runtime that it has started by then.
    """
    if write_docs:
        pages.write(pages.reports())
        return
    path = path or (None if quick else pages.FOLDER / f"{'full' if full else 'report'}.json")
    options = Options(**words)
    try:
        plan = options.apply(QUICK if quick else FULL if full else DEFAULT)
        made = _measured(plan, options)
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


def _measured(plan: Plan, options: Options) -> dict[str, Any]:
    if problem := available():
        raise ContainerdError(f"no private containerd here: {problem}")
    equipment = Equipment(cache_directory())
    if plan.has_figures:
        equipment.make(_errors.print)
    left_out = report.left_out(plan, equipment, _NEEDS)
    for need, why in left_out.items():
        _errors.print(f"without {need}: {why}")
    plan = rounds.without(plan, set(left_out))
    with PrivateContainerd() as daemon, tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        wait_for_peers(daemon.socket, options.peers, ROOT / "build/benefit.sock", _errors.print)
        cgroups = NodeCgroups(daemon.cgroups)
        bench = Bench(Node(cgroups, Image(equipment), Path(folder)), daemon.socket, options.peers)
        run = rounds.run(plan, bench, _errors)
        made = report.build(plan, run, equipment, cgroups, left_out)
        if not options.no_cost:
            extent = cost.Extent() if plan.has_figures else cost.QUICK
            made["cost"] = cost.Cost(daemon.socket, daemon.cgroups, options.peers, extent).measure(_errors.print)
            made["simulated"] = numa.simulate(Path(folder)) if plan.has_figures else {}
    return made


def _write(path: Path, made: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.dump(made))
    if made["cases"]:
        pages.draw(Equipment(cache_directory()), path)
    _errors.print(f"written: {path}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
