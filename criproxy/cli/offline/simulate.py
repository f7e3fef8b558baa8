"""``criproxy simulate``: runs scenarios of pods on simulated machines through a policy, and checks expectations."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from criproxy.cli.options import PathOption
from criproxy.cli.render.console import print_lines
from criproxy.model.text.bounded import printable

if TYPE_CHECKING:
    from criproxy.model.cpuset import CpuSet
    from criproxy.model.machine.hardware import HugePages
    from criproxy.model.machine.topology import Topology
    from criproxy.simulate.scenario.runner import Instead, Result
    from criproxy.simulate.scenario.vectors import Contents, Vector

F = TypeVar("F", bound=Callable[..., None])

EXISTING = click.Path(exists=True, path_type=Path)


def machine_options(command: F) -> F:
    """Add the options for `chosen_machine` to *command*."""
    shape = click.option(
        "--machine",
        metavar="SHAPE",
        help="Use a machine such as 2s/4n/16c/2t: 2 sockets, 4 NUMA nodes, 16 cores, 2 threads per core.",
    )
    copy = click.option(
        "--host-root",
        type=EXISTING,
        metavar="DIR|TAR",
        help="Use the machine whose /sys and /proc are in this directory or archive.",
    )
    return shape(copy(command))


def chosen_machine(machine: str | None, host_root: Path | None) -> "Topology | None":
    """Return the machine that the options select; None without options.

    Raises:
        UsageError: the options select two machines, or an invalid one.
    """
    from criproxy.errors import UsageError
    from criproxy.simulate.hosts import of_host, shaped

    if machine is not None and host_root:
        raise UsageError("--machine and --host-root both select a machine: use one of them")
    return shaped(machine) if machine is not None else of_host(host_root).topology if host_root else None


def cards_chosen(machine: str | None, host_root: Path | None) -> "Sequence[CpuSet]":
    """Return the closest NUMA nodes of each accelerator of the selected machine; a shape has none."""
    from criproxy.simulate.hosts import cards_of, of_host

    return cards_of(of_host(host_root)) if host_root else ()


def pages_chosen(machine: str | None, host_root: Path | None) -> "tuple[HugePages, ...]":
    """Return the huge pages of the selected machine; a shape has none."""
    from criproxy.simulate.hosts import of_host

    return of_host(host_root).hugepages if host_root else ()


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the cases of the file with a prefix, for the shell; none if the file is invalid."""
    from criproxy.errors import UsageError
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
@machine_options
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
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
    **machine: Any,  # noqa: ANN401 (click has checked them)
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
    topology = chosen_machine(**machine)
    if load:
        from criproxy.cli.offline.simulate_load import Question, compare

        _refuse(file is not None, "give either a scenario FILE or --load")
        _refuse(explain, "--explain is for a scenario FILE: a load has too many decisions to show")
        compare(Question(load, policies, topology, cards_chosen(**machine)), output)
        return
    _refuse(len(policies) > 1, "several policies are compared with --load; a scenario FILE takes one")
    if file is None:
        raise click.UsageError("Missing argument 'FILE', or --load.", ctx)
    instead = _instead(policies, topology, pages_chosen(**machine))
    ctx.exit(_cases(file, ids, instead, output, verbose=verbose, explain=explain))


def _refuse(wrong: bool, text: str) -> None:
    from criproxy.errors import UsageError

    if wrong:
        raise UsageError(text)


def _cases(
    file: Path,
    ids: tuple[str, ...],
    instead: "Instead",
    output: str,
    *,
    verbose: bool,
    explain: bool,
) -> int:
    """Run and print cases; return the exit status."""
    from criproxy.simulate.scenario.runner import runs
    from criproxy.simulate.scenario.vectors import examine

    contents = examine(file, ids)
    for mistake in contents.all_mistakes:
        print_lines(mistake.located(file), err=True)
    results = _results(runs(contents.vectors, instead), instead)
    if output == "json":
        _print_json(results, contents, verbose=verbose, explain=explain)
    else:
        _print(results, contents, verbose=verbose, explain=explain)
    return 2 if contents.all_mistakes else int(any(result.failure for result in results))


def _instead(policies: tuple[Path, ...], topology: "Topology | None", huge_pages: "tuple[HugePages, ...]") -> "Instead":
    """Replace the machine and the policy of all cases by those that the options select."""
    import os

    from criproxy.config.load import load
    from criproxy.errors import ConfigError, UsageError
    from criproxy.simulate.scenario.runner import Instead

    if not policies:
        return Instead(topology, huge_pages=huge_pages)
    policy, host = policies[0], os.uname().nodename
    try:
        settings = load(policy, host)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    rules = (settings.options.rules,)
    return Instead(topology, lambda _, __, machine: load(policy, host, topology=machine), huge_pages, rules)


def _results(cases: "list[tuple[Vector, str]]", instead: "Instead") -> "list[Result]":
    from criproxy.cli.render.console import watched
    from criproxy.simulate.scenario.runner import run

    return [run(vector, rules, instead) for vector, rules in watched(cases, "Running scenarios")]


def _print(results: "list[Result]", contents: "Contents", *, verbose: bool, explain: bool) -> None:
    from criproxy.cli.offline.simulate_explain import show_choices
    from criproxy.simulate.scenario.runner import line, reasons, summary

    width = max((len(result.vector.id) for result in results), default=0)
    for result in results:
        click.secho(printable(line(result, width)), fg="red" if result.failure else None)
        for reason in reasons(result) if verbose else ():
            print_lines(reason)
        if explain:
            show_choices(result)
    unread = f", {len(contents.wrong)} not read: see above" if contents.wrong else ""
    click.echo(f"{summary(results)}{unread}")


def _print_json(results: "list[Result]", contents: "Contents", *, verbose: bool, explain: bool) -> None:
    import json

    from criproxy.cli.offline.simulate_explain import choices
    from criproxy.simulate.scenario.runner import as_json

    failed = sum(1 for result in results if result.failure)
    explained = [{"choices": list(choices(result))} if explain else {} for result in results]
    cases = [as_json(result, verbose=verbose) | more for result, more in zip(results, explained, strict=True)]
    mistakes = [{"line": each.line, "column": each.column, "text": each.sentence} for each in contents.all_mistakes]
    ok = not failed and not mistakes
    click.echo(json.dumps({"ok": ok, "failed": failed, "mistakes": mistakes, "cases": cases}))
