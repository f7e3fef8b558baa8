"""``make bench``: what criproxy adds to calls, in one interleaved run of all ways to the same runtime."""

import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from lab.bench import classes, devices, engine, report, rows, unusual
from lab.bench.plan import Bench, Findings, Settings
from lab.bench.processes import StartError, choose, started
from lab.bench.report import figures_of
from lab.figures import Figure, table

_console = Console(width=max(Console().width, 132))
_errors = Console(stderr=True)


def _peers(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    peers = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not (name and separator) or not Path(path).is_socket():
            raise click.BadParameter(f"{value!r} is not NAME=SOCKET with the path of a unix socket")
        peers[name] = Path(path)
    return peers


def _numbers(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    words = value.split(",")
    if not all(word.isdigit() for word in words) or sorted(words, key=int) != words:
        raise click.BadParameter(f"{value!r} is no ascending list of numbers such as 0,100,1000")
    return tuple(int(word) for word in words)


@click.command()
@click.option("--runtime", "asked", default="auto", metavar="NAME|SOCKET", help="containerd, embedded or auto: both.")
@click.option("--peer", "peers", multiple=True, callback=_peers, metavar="NAME=SOCKET", help="Another proxy before it.")
@click.option("--runs", default=3, type=click.IntRange(1), show_default=True, help="The worst run counts.")
@click.option("--known", default="0,100,1000", callback=_numbers, show_default=True, help="Containers that exist.")
@click.option("--classes", "only_classes", is_flag=True, help="Only what classes cost.")
@click.option("--quick", is_flag=True, help="Few calls: shows that it works, measures little.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here.")
@click.option("--check", is_flag=True, help="Exit with 1 if a bar is missed.")
def main(
    asked: str,
    json_path: Path | None,
    *,
    only_classes: bool,
    quick: bool,
    check: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Measure what criproxy adds to calls, and show it beside the bars.

    Peers must stand before the same runtime: start it first (python -m lab.emulator --socket PATH), then the
    peers, then this with --runtime PATH.
    """
    settings = Settings(**options)
    if quick:
        settings = replace(settings, effort=rows.QUICK, starts=1)
    all_findings: list[Findings] = []
    steps: list[Figure] = []
    try:
        runtimes = [] if only_classes else choose(asked)
        known = classes.FEW if quick else classes.KNOWN
        _errors.print(f"classes: {known} containers, {classes.IRQS} interrupts, {settings.runs} runs")
        of_classes = classes.measure(settings.effort, settings.runs, known)
        _console.print(table(f"Classes, with {known} containers and {classes.IRQS} interrupts: medians", of_classes))
        if runtimes:
            repeats = 2 if quick else 500
            steps += [*engine.measure(repeats), *unusual.measure(repeats), *devices.measure(repeats)]
            title = "Steps of the engine and creates on 384 CPUs: CPU time, but for whole creates"
            _console.print(table(title, steps))
        for name in runtimes:
            with (
                tempfile.TemporaryDirectory(prefix="criproxy-bench-") as folder,
                started(name, Path(folder)) as runtime,
            ):
                all_findings.append(Bench(runtime, settings, Path(folder), _errors.print).measure())
            report.show(_console, all_findings[-1])
        if json_path:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text(json.dumps(report.as_json(all_findings, steps, of_classes), indent=1) + "\n")
    except (ValueError, StartError) as error:
        raise click.ClickException(str(error)) from error
    figures = [*steps, *of_classes, *(figure for findings in all_findings for figure in figures_of(findings))]
    sys.exit(int(check and not all(figure.ok for figure in figures)))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
