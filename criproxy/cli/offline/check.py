"""``criproxy check``: whether the daemon would use a policy file on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from criproxy.cli.offline import check_plugin
from criproxy.cli.offline.check_invocation import invocation_of
from criproxy.cli.options import PathOption
from criproxy.cli.render.console import print_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from criproxy.config.load import Report
    from criproxy.devices.classes.cards import Card, Stock
    from criproxy.model.machine.topology import Topology


def _named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check the name of a host or group, if one is given."""
    if value is not None:
        from criproxy.config.files import why_no_name

        if wrong := why_no_name(value):
            raise click.BadParameter(wrong, ctx, param)
    return value


@click.command(short_help="Check a policy file by itself and against this machine.")
@click.argument("paths", nargs=-1, required=True, type=PathOption(), metavar="FILE|DIR...")
@click.option(
    "--host-root",
    type=PathOption(folder=True),
    default="/",
    show_default=True,
    help="Directory that contains /sys, /proc and the cgroup tree of the machine to check against.",
)
@click.option("--no-machine", is_flag=True, help="Check the files by themselves, not against this machine.")
@click.option(
    "--hostname",
    metavar="NAME",
    callback=_named,
    help="Check the file in DIR for the host with this name.  [default: this host's name]",
)
@click.option(
    "--group",
    metavar="LABEL",
    callback=_named,
    help="Check the file in DIR for this group of nodes.  [default: the content of /etc/criproxy/group]",
)
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    host_root: Path,
    no_machine: bool,
    hostname: str | None,
    group: str | None,
    output: str,
) -> None:
    """Report errors in policy files as FILE:LINE:COLUMN, or print the resulting options.

    In a directory, the command checks the file that this node would use: HOSTNAME.yaml, else group-GROUP.yaml, else
    default.yaml.

    If a policy file names a file of NVIDIA's device plugin, the command checks that file, too, with the flags and
    variables in /etc/default/criproxy-device-plugin and with NVIDIA's variables in its own environment.

    Exit status: 0 the daemon and the device plugin would accept all files, 1 they would not, 2 a usage error.
    """
    import os

    from criproxy.config.files import choose
    from criproxy.config.load import examine
    from criproxy.host.cgroup import host_reader

    root = None if no_machine else host_root
    topology = _machine(root) if root else None
    host = os.uname().nodename if hostname is None else hostname
    reader = host_reader(root) if root else None
    reports = [examine(choose(path, host, group), topology, reader) for path in paths]
    found = [_cards(report, root) for report in reports]
    how = invocation_of(root, os.environ)
    where = check_plugin.Place(host_root, has_machine=not no_machine, hostname=host, group=group, invocation=how)
    plugin = [check_plugin.check(report, where, stocks) for report, stocks in zip(reports, found, strict=True)]
    if output == "json":
        import json

        click.echo(json.dumps(check_plugin.with_plugin(_to_json(reports, topology, found, root), plugin), indent=2))
    else:
        texts = [
            check_plugin.with_plugin_lines(_to_text(report, topology, stocks, root), each)
            for report, stocks, each in zip(reports, found, plugin, strict=True)
        ]
        print_lines("\n\n".join(texts))
    ctx.exit(int(any(report.mistakes for report in reports) or any(each.wrong for each in plugin)))


def _machine(host_root: Path) -> "Topology":
    from criproxy.errors import CriproxyError
    from criproxy.host import discover

    try:
        return discover(host_root)
    except CriproxyError as error:
        raise CriproxyError(f"{error}; to check only the files, use --no-machine") from error


def _cards(report: "Report", host_root: Path | None) -> "Mapping[str, Stock] | None":
    """Return the machine's cards of each class in use; None if the file or the machine shows none."""
    options = report.settings.common.devices if report.settings else None
    if options is None or host_root is None:
        return None
    from criproxy.host.cards import find_cards_within

    return find_cards_within(options.rules().classes, host_root)


def _evidence(report: "Report", host_root: Path | None) -> "Mapping[str, str]":
    """Return the sources of the kubelet's allocations, and whether they exist; empty as with `_cards`."""
    options = report.settings.common.devices if report.settings else None
    if options is None or host_root is None:
        return {}
    paths = {"podresources": options.podresources.socket, "checkpoint": options.checkpoint}
    return {name: _there(host_root, path) for name, path in paths.items()}


def _there(host_root: Path, path: str) -> str:
    """Return a path below *host_root*, and what is wrong with it."""
    if not path:
        return "not asked"
    try:
        (host_root / path.lstrip("/")).stat()
    except OSError as error:
        return f"{path} ({error.strerror})"
    return path


def _to_text(
    report: "Report", topology: "Topology | None", stocks: "Mapping[str, Stock] | None", host_root: Path | None
) -> str:
    file = report.choice.file
    if report.settings is None:
        return "\n".join(mistake.located(file) for mistake in report.mistakes)
    from criproxy.model.cpuset import numbered

    where = (
        f"pods may use {numbered('CPU', topology.cpus)}" if topology is not None else "not checked against a machine"
    )
    lines = [f"{file}: OK ({report.choice.reason}; {where})"]
    values, explicit = report.settings.values(), report.settings.explicit()
    width = max(map(len, values))
    for name, value in values.items():
        origin = "" if name in explicit else "(default)"
        lines.append(f"  {name:{width}}  {_plain(value)}  {origin}".rstrip())
    lines += [f"  note: {text}" for text in _notes(report, topology, host_root)]
    if evidence := _evidence(report, host_root):
        lines += ["  the kubelet reports what it allocated:", *(f"    {name}: {at}" for name, at in evidence.items())]
    if stocks is not None:
        lines += ["  devices of this machine:", *(f"    {name}: {_card_list(stock)}" for name, stock in stocks.items())]
    return "\n".join(lines)


def _notes(report: "Report", topology: "Topology | None", host_root: Path | None) -> list[str]:
    """Return notes about settings without effect, and about options of the daemon that may not be intended."""
    from criproxy.cli.offline.check_notes import device_notes, empty_notes, http_notes, kubelet_notes
    from criproxy.config.validation_errors import dotted

    notes = report.settings.options.notes() if report.settings else ()
    found = [f"{dotted(path)} {text}" for path, text in notes]
    if report.settings is not None:
        common = report.settings.common
        found += [*empty_notes(common), *device_notes(common.devices)]
    if host_root is not None:
        found += http_notes(host_root)
        if report.settings and topology and report.settings.common.policy != "none":
            found += kubelet_notes(host_root, report.settings.options, topology)
    return found


def _card_list(stock: "Stock") -> str:
    """Return the cards of one class and their device nodes, in a line."""
    if not stock.cards:
        return "none"
    cards = [" ".join(filter(None, (*card.nodes, _details(card)))) for card in stock.cards]
    shared = f"; shared nodes: {' '.join(stock.shared)}" if stock.shared else ""
    return f"{', '.join(cards)}{shared}"


def _plain(value: object) -> str:
    import json

    if value is None:
        return "not set"
    return value if isinstance(value, str) and value else json.dumps(value)


def _details(card: "Card") -> str:
    """Return what is known about a card in addition to its device nodes, in brackets."""
    node = f"NUMA node {card.numa_node}" if card.numa_node >= 0 else ""
    known = ", ".join(filter(None, (card.id, node)))
    return known and f"({known})"


def _stock_as_json(stock: "Stock") -> dict[str, Any]:
    from dataclasses import asdict

    from criproxy.model.cpuset import format_cpuset

    cards = [asdict(card) | {"local_cpus": format_cpuset(card.local_cpus)} for card in stock.cards]
    return {"cards": cards, "shared": stock.shared}


def _to_json(
    reports: "list[Report]",
    topology: "Topology | None",
    found: "list[Mapping[str, Stock] | None]",
    host_root: Path | None,
) -> dict[str, Any]:
    from criproxy.model.cpuset import format_cpuset

    return {
        "ok": not any(report.mistakes for report in reports),
        "machine": topology and {"cpus": format_cpuset(topology.cpus), "mems": format_cpuset(topology.mems)},
        "files": [
            {
                "file": str(report.choice.file),
                "chosen_because": report.choice.reason,
                "options": report.settings and report.settings.values(),
                "notes": _notes(report, topology, host_root),
                "devices": stocks and {name: _stock_as_json(stock) for name, stock in stocks.items()},
                "mistakes": [
                    {"line": wrong.line or None, "column": wrong.column or None, "text": wrong.sentence}
                    for wrong in report.mistakes
                ],
            }
            for report, stocks in zip(reports, found, strict=True)
        ],
    }
