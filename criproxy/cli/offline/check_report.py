"""The output of `criproxy check`: mistakes, the resulting options, and notes on what may not be intended."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel

from criproxy.cli.offline.check_invocation import Place, variables
from criproxy.cli.render.console import print_lines
from criproxy.config.convert import KIND, node_policies
from criproxy.config.files import Choice, choose, read_text
from criproxy.config.load import Report, examine, judge
from criproxy.config.settings import Common
from criproxy.config.validation_errors import dotted
from criproxy.devices.classes.cards import Stock
from criproxy.devices.options.options import DeviceOptions
from criproxy.devices.options.profiles import mig_notes
from criproxy.errors import CriproxyError, UsageError, reason_of
from criproxy.host import discover
from criproxy.host.cards import find_cards_within
from criproxy.host.machine import host_reader
from criproxy.install.host import Host
from criproxy.install.kubelet import read_kubelet
from criproxy.install.kubelet_cpus import cannot_read, differences, managers
from criproxy.install.paths import UNIT_OPTIONS
from criproxy.install.policy import nri_notes
from criproxy.install.texts import flags, split
from criproxy.model.cpuset import format_cpuset, numbered
from criproxy.model.machine.topology import Topology
from criproxy.placement.options.policy_options import Options
from criproxy.placement.options.usable import HostReader
from criproxy.process.http.address import Address

if TYPE_CHECKING:
    from criproxy.cli.offline.check_plugin import Checked

_WITHOUT_EVIDENCE = {"keep": "may get those of the earlier pod", "hide": "get none", "fail": "are refused"}
"""By `onNoEvidence`, what happens to containers that request cards, if their pod has the name of an earlier one."""
_UNLISTED = {**_WITHOUT_EVIDENCE, "keep": "see the cards that they request"}
"""The same for containers that podresources does not list."""
_OFF_WITHOUT_VALUE = {
    "devices": (
        "criproxy leaves devices alone: write 'devices: {}' to hide cards from containers to which none is allocated"
    ),
    "devices.plugin": "the device plugin offers no cards: write 'plugin: {}' to offer cards with the default options",
    "devices.plugin.labels": "criproxy writes no labels: write 'labels: {}' to write them with the default options",
}
"""By section: the effect of a section without a value, and how to switch it on."""


def print_report(paths: Sequence[Path], place: Place, output: str) -> int:
    """Check policy files, and print what was found as *output* says, ``table`` or ``json``; return the exit status."""
    topology, reader = (_machine(place.root), host_reader(place.root)) if place.root else (None, None)
    reports = [each for path in paths for each in _reports(path, place, topology, reader)]
    files = [_File(report, topology, place.root, place.nri) for report in reports]
    plugin = [_of_plugin(file, place) for file in files]
    wrong = any(report.mistakes for report in reports) or any(each.wrong for each in plugin if each)
    pairs = [*zip(files, plugin, strict=True)]
    if output == "json":
        machine = topology and {"cpus": format_cpuset(topology.cpus), "mems": format_cpuset(topology.mems)}
        listed = [checked.added_to(file.to_json()) if checked else file.to_json() for file, checked in pairs]
        click.echo(json.dumps({"ok": not wrong, "machine": machine, "files": listed}, indent=2))
    else:
        texts = [checked.added_below(file.to_text()) if checked else file.to_text() for file, checked in pairs]
        print_lines("\n\n".join(texts))
    return int(wrong)


def _machine(host_root: Path) -> Topology:
    try:
        return discover(host_root)
    except CriproxyError as error:
        raise CriproxyError(f"{error}; to check only the files, use --no-machine") from error


def _reports(path: Path, place: Place, topology: Topology | None, reader: HostReader | None) -> Iterator[Report]:
    """Yield a report about a policy file, or about each NodePolicy in a file of such objects."""
    choice = choose(path, place.hostname, place.group)
    text, mistakes = read_text(choice.file)
    objects = node_policies(text) if text and f"kind: {KIND}" in text else []
    if text is None or not objects:
        yield examine(choice, topology, reader)
    for name, document in objects:
        from criproxy.agent.objects.node_policy import mistakes_in

        document.mistakes += mistakes_in(document)
        policy = document.inside("spec", "policy")
        yield judge(text or "", Choice(choice.file, f"{KIND} {name}"), topology, reader, mistakes, policy)


def _of_plugin(file: "_File", place: Place) -> "Checked | None":
    """Return what the device plugin would do with a policy file; None if it has nothing to do with it."""
    if not file.report.settings or not (file.devices or place.invocation.nvidia_config):
        return None
    from criproxy.cli.offline.check_plugin import check  # takes 0.2 s

    return check(file.report, file.report.settings, place, file.stocks)


@dataclass(frozen=True)
class _File:
    """One policy file and the machine, if there is one, below *root*."""

    report: Report
    topology: Topology | None
    root: Path | None
    nri: bool

    @property
    def devices(self) -> DeviceOptions | None:
        return self.report.settings.common.devices if self.report.settings else None

    @cached_property
    def stocks(self) -> Mapping[str, Stock] | None:
        """The machine's cards of each class in use; None if the file or the machine shows none."""
        return find_cards_within(self.devices.rules().classes, self.root) if self.devices and self.root else None

    def to_text(self) -> str:
        file, settings = self.report.choice.file, self.report.settings
        if settings is None:
            return "\n".join(mistake.located(file) for mistake in self.report.mistakes)
        pods = f"pods may use {numbered('CPU', self.topology.cpus)}" if self.topology else ""
        lines = [f"{file}: OK ({self.report.choice.reason}; {pods or 'not checked against a machine'})"]
        values, explicit = settings.values(), settings.explicit()
        width = max(map(len, values))
        for name, value in values.items():
            origin = "" if name in explicit else "(default)"
            lines.append(f"  {name:{width}}  {_plain(value)}  {origin}".rstrip())
        lines += [f"  note: {text}" for text in self._notes()]
        if self.devices and self.root:
            sources = {"podresources": self.devices.podresources.socket, "checkpoint": self.devices.checkpoint}
            lines += ["  the kubelet reports what it allocated:"]
            lines += [f"    {name}: {_path_and_problem(self.root, path)}" for name, path in sources.items()]
        if self.stocks is not None:
            lines += ["  devices of this machine:"]
            lines += [f"    {name}: {_card_list(stock)}" for name, stock in self.stocks.items()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        report, stocks = self.report, self.stocks
        return {
            "file": str(report.choice.file),
            "chosen_because": report.choice.reason,
            "options": report.settings and report.settings.values(),
            "notes": [*self._notes()],
            "devices": stocks and {name: _stock_as_json(stock) for name, stock in stocks.items()},
            "mistakes": [
                {"line": wrong.line or None, "column": wrong.column or None, "text": wrong.sentence}
                for wrong in report.mistakes
            ],
        }

    def _notes(self) -> Iterator[str]:
        """Yield notes about settings without effect, and about options of the daemon that may not be intended."""
        if settings := self.report.settings:
            yield from (f"{dotted(path)} {text}" for path, text in settings.notes())
            yield from _empty_notes(settings.common)
            yield from _device_notes(settings.common.devices)
            if self.nri:
                yield from nri_notes(settings)
        if self.root:
            yield from _http_notes(self.root)
            if settings and self.topology and settings.common.policy != "none":
                yield from _kubelet_notes(self.root, settings.options, self.topology)


def _path_and_problem(host_root: Path, path: str) -> str:
    """Return a path below *host_root*, and what is wrong with it."""
    if not path:
        return "not asked"
    try:
        (host_root / path.lstrip("/")).stat()
    except OSError as error:
        return f"{path} ({error.strerror})"
    return path


def _card_list(stock: Stock) -> str:
    """Return the cards of one class and their device nodes, in a line, with what else is known in brackets."""
    cards = []
    for card in stock.cards:
        node = f"NUMA node {card.numa_node}" if card.numa_node >= 0 else ""
        known = ", ".join(filter(None, (card.id, node)))
        cards.append(" ".join(filter(None, (*card.nodes, known and f"({known})"))))
    shared = f"; shared nodes: {' '.join(stock.shared)}" if stock.shared else ""
    return f"{', '.join(cards)}{shared}" if cards else "none"


def _plain(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) and value else json.dumps(value)


def _stock_as_json(stock: Stock) -> dict[str, Any]:
    cards = [asdict(card) | {"local_cpus": format_cpuset(card.local_cpus)} for card in stock.cards]
    return {"cards": cards, "shared": stock.shared}


def _empty_notes(common: Common) -> Iterator[str]:
    """Yield a note about a section that the file names and gives no value: all its lines may be comments."""
    for path, effect in _OFF_WITHOUT_VALUE.items():
        group: BaseModel | None = common
        *parents, name = path.split(".")
        for parent in parents:
            group = getattr(group, parent, None)
        if group is not None and name in group.model_fields_set and getattr(group, name) is None:
            yield f"{path} has no value, so {effect}, or remove {name}"


def _device_notes(options: DeviceOptions | None) -> Iterator[str]:
    """Yield notes about options of the section ``devices`` with no effect, or with one that may not be intended."""
    if options is not None and not options.classes:
        yield (
            "devices.classes is empty: criproxy knows no cards, so it hides and protects nothing; remove classes "
            "to use all built-in classes, or remove devices"
        )
    if options is not None and options.podresources.socket and not options.checkpoint:
        mode = options.on_no_evidence
        yield (
            "devices.checkpoint is empty: podresources identifies pods only by name, so it is no evidence for a pod "
            "with the name of an earlier one, as in a StatefulSet. Containers of such a pod that request cards without "
            f"CDI names or device nodes in their creates, {_WITHOUT_EVIDENCE[mode]} (onNoEvidence: {mode}). Init and "
            f"ephemeral containers that request cards in this way, {_UNLISTED[mode]}, as podresources never lists them"
        )
    if options is not None and (plan := options.plan()) is not None:
        yield from mig_notes(plan.profiles)


def _http_notes(host_root: Path) -> Iterator[str]:
    """Yield notes about services whose ``--http`` is not on loopback."""
    for name, variable in UNIT_OPTIONS.items():
        file = host_root / name[1:]
        for text in flags(split(variables(file)[0].get(variable, "")), "http"):
            with suppress(UsageError):  # the daemon reports that
                if not Address.parse(text).is_local:
                    yield (
                        f"--http {text} in {file} is open to everyone who can reach that address: criproxy requires no "
                        "credentials, and metrics name this node's containers; :PORT listens only on loopback"
                    )


def _kubelet_notes(host_root: Path, options: Options, topology: Topology) -> Iterator[str]:
    """Yield notes about settings of the kubelet with which these *options* of a policy do not go together."""
    try:
        kubelet = read_kubelet(Host(host_root))
        yield from [*managers(kubelet), *differences(kubelet, options, topology, host_reader(host_root).cgroup)]
    except OSError as error:
        yield cannot_read(f"{error.filename}: {reason_of(error)}")
