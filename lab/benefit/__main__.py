"""``make benefit``: what users gain from criproxy, measured with real work in real containers.

Exit status: 3 if the machine was too noisy, so that the report is marked unusable; 1 if it could not be measured.
"""

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
from lab.benefit import pages, report, rounds
from lab.benefit.cases import DEFAULT, QUICK, Plan
from lab.benefit.cgroups import NodeCgroups
from lab.benefit.equipment import Equipment
from lab.benefit.pods import Node, SilentError
from lab.benefit.samples import Bench
from lab.benefit.simulated import simulate
from lab.containerd.containerd import ContainerdError, PrivateContainerd, available
from tests.runtimes.debian import FetchError

UNUSABLE = 3
_console = Console(width=max(Console().width, 132))
_errors = Console(stderr=True)


@click.command()
@click.option("--quick", is_flag=True, help="Seconds: shows that it works, and reports no figures.")
@click.option("--case", "words", multiple=True, help="Only cases whose names begin so.")
@click.option("--rounds", type=click.IntRange(2), help="Instead of seven.")
@click.option("--seconds", type=click.FloatRange(0.1, 15), help="How long each measurement takes.")
@click.option("--seed", default=1, show_default=True, help="Of the order and of the load.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the report here.")
@click.option("--write-docs", is_flag=True, help="Measure nothing: write the figures of the reports into the pages.")
def main(path: Path | None, words: tuple[str, ...], *, quick: bool, write_docs: bool, **changes: Any) -> None:  # noqa: ANN401
    """Measure what users gain, and write the report into docs/benefit (or to the file of --json), with a picture."""
    if write_docs:
        pages.write(pages.reports())
        return
    path = path or (None if quick else pages.FOLDER / "report.json")
    plan = replace(QUICK if quick else DEFAULT, **{name: value for name, value in changes.items() if value})
    try:
        made = _measured(plan, words)
    except (ContainerdError, FetchError, SilentError, StartError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error}: {error.stderr}") from error
    report.show(_console, made)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report.dump(made))
        if made["cases"]:
            pages.draw(Equipment(), path)
        _errors.print(f"written: {path}")
    sys.exit(0 if made["usable"] or not plan.has_figures else UNUSABLE)


def _measured(plan: Plan, words: tuple[str, ...]) -> dict[str, Any]:
    if problem := available():
        raise ContainerdError(f"no private containerd here: {problem}")
    equipment = Equipment()
    if plan.has_figures:
        equipment.make(_errors.print)
    cases = plan.chosen(words, len(discover().mems))
    left_out = equipment.missing({case.workload.needs for case in cases} - {""})
    for need, why in left_out.items():
        _errors.print(f"without {need}: {why}")
    plan = replace(plan, cases=tuple(case for case in cases if case.workload.needs not in left_out))
    with PrivateContainerd() as daemon, tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        cgroups = NodeCgroups(daemon.cgroups.root)
        run = rounds.run(plan, Bench(Node(cgroups, equipment, Path(folder)), daemon.socket), _errors.print)
        made = report.build(plan, run, equipment, cgroups, left_out)
        made["simulated"] = simulate(Path(folder)) if plan.has_figures else {}
    return made


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
