"""``criproxy check`` of the device plugin: NVIDIA's configuration file, and what is offered to the kubelet."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from criproxy.config.load import Report
    from criproxy.config.nvidia_file import NvidiaFile
    from criproxy.devices.cards import Stock
    from criproxy.devices.options import DeviceOptions


SHOWN_IDS = 8


def offered_lines(options: "DeviceOptions | None", stocks: "Mapping[str, Stock]") -> list[str]:
    """What the plugin offers of the machine's cards, without NVIDIA's: only its driver knows how they are divided."""
    plan = options.plan() if options else None
    if plan is None:
        return []
    from criproxy.deviceplugin.inventory import Inventory
    from criproxy.deviceplugin.offering import Configuration
    from criproxy.deviceplugin.resources import resources

    others = replace(plan, advertised=tuple(each for each in plan.advertised if not each.is_nvidia))
    served = resources(Configuration(plan=others), Inventory(stocks=stocks))
    lines = [f"    {name}: {_ids(list(resource.devices))}" for name, resource in served.resources.items()]
    notes = [f"  note: {text}" for text in served.warnings]
    return [*(["  the device plugin offers:", *lines] if lines else []), *notes]


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(ids[:SHOWN_IDS]) + more


def nvidia_file(report: "Report", host_root: Path | None, hostname: str, group: str | None) -> "NvidiaFile | None":
    """The file that a policy file names for NVIDIA's cards, checked; None where it names none, or has mistakes itself.

    Args:
        report: of the policy file.
        host_root: above the file; None: no machine is looked at, and so no file of it.
        hostname: of the node; with *group* it chooses among several files.
        group: None takes it from the file of the node's group.
    """
    options = report.settings.common.devices if report.settings else None
    plan = options.plan() if options else None
    if plan is None or host_root is None or plan.nvidia is None:
        return None
    from criproxy.config.nvidia_file import Node, examine

    if plan.nvidia_config:
        plan = replace(plan, nvidia_config=str(host_root / plan.nvidia_config.lstrip("/")))
    return examine(plan, Node(hostname=hostname, group=group))


def with_nvidia_lines(text: str, found: "NvidiaFile | None") -> str:
    """For people: *text* about the policy file, and which file of NVIDIA's it is, or what is wrong with that."""
    if found is None:
        return text
    if found.mistakes:
        return "\n".join(found.mistakes)
    named = [f"  NVIDIA's file: {found.file} ({found.reason})"] if found.file else []
    return "\n".join([text, *named, *(f"  note: {note}" for note in found.notes)])


def with_nvidia(values: dict[str, Any], found: "list[NvidiaFile | None]") -> dict[str, Any]:
    """The same for programs."""
    for file, each in zip(values["files"], found, strict=True):
        if each is not None:
            file["nvidia"] = {
                "file": each.file and str(each.file),
                "chosen_because": each.reason,
                "notes": list(each.notes),
                "mistakes": list(each.mistakes),
            }
    return values | {"ok": values["ok"] and not any(each and each.mistakes for each in found)}
