"""``criproxy simulate``: scenarios of pods on made-up machines, run through a policy and judged."""

from pathlib import Path

import click


@click.command(short_help="Run scenarios of pods through a policy, and tell which expectations hold.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.pass_context
def command(ctx: click.Context, file: Path, ids: tuple[str, ...]) -> None:
    """Run the cases of a scenario FILE, or those with an ID, and print a line for each.

    Exit status: 0 everything is as expected, 1 something is not, 2 the file cannot be used.
    """
    from criproxy.sim.scenario.report import line
    from criproxy.sim.scenario.runner import run
    from criproxy.sim.scenario.vectors import load

    failed = False
    for vector in load(file, ids):
        for rules in vector.rules:
            if vector.unit:
                continue
            result = run(vector, rules)
            failed |= bool(result.failure)
            click.echo(line(result))
    ctx.exit(int(failed))
