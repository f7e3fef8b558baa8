"""``criproxy simulate``: runs scenarios of pods on simulated machines through a policy, and checks expectations."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from criproxy.cli.options import PathOption, format_option
from criproxy.errors import UsageError

EXISTING = click.Path(exists=True, path_type=Path)


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the cases of the file with a prefix, for the shell; none if the file is invalid."""
    from criproxy.simulate.scenario.vectors import load

    try:
        vectors = load(Path(context.params.get("file") or ""))
    except UsageError:
        return []
    return [CompletionItem(vector.id, help=vector.title) for vector in vectors if vector.id.startswith(incomplete)]


@click.command(short_help="Run scenarios of pods through a policy, and report expectations that do not hold.")
@click.argument("file", type=PathOption(), metavar="FILE", required=False)
@click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete)
@click.option(
    "--load", type=EXISTING, metavar="SPEC|TRACE", help="Simulate a load or a recorded trace instead of FILE."
)
@click.option(
    "--policy",
    "policies",
    type=EXISTING,
    multiple=True,
    metavar="FILE|DIR",
    help="Use this policy file instead of those in the cases; with --load, repeat it for each policy.",
)
@click.option(
    "--machine",
    metavar="SHAPE",
    help="Use a machine such as 2s/4n/16c/2t: 2 sockets, 4 NUMA nodes, 16 cores, 2 threads per core.",
)
@click.option(
    "--host-root",
    type=EXISTING,
    metavar="DIR|TAR",
    help="Use the machine whose /sys and /proc are in this directory or archive.",
)
@format_option
@click.option("-v", "--verbose", is_flag=True, help="Print the reasons for each decision.")
@click.option(
    "--explain", is_flag=True, help="Print the candidates of each decision, in the format of `criproxy explain`."
)
@click.pass_context
def command(  # noqa: PLR0913 (one for each option)
    ctx: click.Context,
    /,
    *,
    file: Path | None,
    ids: tuple[str, ...],
    load: Path | None,
    policies: tuple[Path, ...],
    output: str,
    verbose: bool,
    explain: bool,
    machine: str | None,
    host_root: Path | None,
) -> None:
    """Run the cases of a scenario FILE, or only those with the given IDs, and print one line for each.

    A line contains the result, the first expectation that does not hold, and the placement: each container with its
    CPUs (! means exclusive) and, after the letter m, the NUMA nodes of its memory. A case for the rules of both CRI-RM
    and nri-plugins runs once with the rules of each. With another policy or machine, expectations may fail, so look at
    the placement. docs/simulate.md explains the file.

    If a case contains an error, the command reports its line and runs the other cases.

    With --load, the command simulates several hours on a node, with the same pods for each --policy, and compares the
    policies in a table.

    Exit status: 0 all expectations hold, 1 one does not, 2 the file or the command line is invalid.
    """
    from criproxy.simulate.hosts import cards_of, of_host, shaped

    _refuse(
        machine is not None and host_root is not None,
        "--machine and --host-root both select a machine: use one of them",
    )
    host = of_host(host_root) if host_root else None
    topology = shaped(machine) if machine is not None else host.topology if host else None
    if load:
        from criproxy.cli.offline.simulate_load import compare

        _refuse(file is not None, "give either a scenario FILE or --load")
        _refuse(explain, "--explain is for a scenario FILE: a load has too many decisions to show")
        compare(load, policies, output, topology, cards_of(host) if host else ())
        return
    _refuse(len(policies) > 1, "several policies are compared with --load; a scenario FILE takes one")
    if file is None:
        raise click.UsageError("Missing argument 'FILE', or --load.", ctx)
    from criproxy.cli.offline.simulate_cases import run_cases, with_policy
    from criproxy.simulate.scenario.runner import Instead

    instead = Instead(topology, huge_pages=host.hugepages if host else ())
    instead = with_policy(instead, policies[0]) if policies else instead
    ctx.exit(run_cases(file, ids, instead, output, verbose=verbose, explain=explain))


def _refuse(wrong: bool, text: str) -> None:
    if wrong:
        raise UsageError(text)
