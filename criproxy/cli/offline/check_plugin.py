"""``criproxy check`` of the device plugin: NVIDIA's configuration file, and what is offered to the kubelet."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from criproxy.cli.offline.check_invocation import Place
from criproxy.config.load import Report
from criproxy.config.settings import Settings
from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory, Limits, Machine
from criproxy.deviceplugin.cards.nvml_inventory import gpus_of_driver, imex_channels, platform_of
from criproxy.deviceplugin.cards.vgpu_files import VgpuFiles
from criproxy.deviceplugin.configuration.nvidia_file import Node, NvidiaFile, examine
from criproxy.deviceplugin.nvidia.allocation import ON_MIG
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import ResourceError, check_all_divided
from criproxy.deviceplugin.nvidia.settings import overrides
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.deviceplugin.usage.quota_methods import notes
from criproxy.devices.classes.cards import Stock
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Advertised, PluginPlan
from criproxy.host.cards import DriverFiles

SHOWN_IDS = 8
NVML_S = 15.0
"""How long NVML may take: it initialises a GPU that nothing uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the device plugin would do with a policy file."""

    nvidia: NvidiaFile | None = None
    """None if no NVIDIA card is advertised, or the policy file is invalid."""
    offered: list[str] = field(default_factory=list)
    """Lines for users."""
    notes: list[str] = field(default_factory=list)
    """What the machine lacks and may still get."""
    mistakes: list[str] = field(default_factory=list)
    """What in the policy file contradicts the machine."""

    @property
    def wrong(self) -> list[str]:
        """The mistakes in all files."""
        return [*(self.nvidia.mistakes if self.nvidia else ()), *self.mistakes]

    def added_below(self, text: str) -> str:
        """Return *text* about the policy file, with what the plugin would do, or with the mistakes."""
        if self.wrong:
            return "\n".join(self.wrong)
        lines = [text, *self.offered, *(f"  note: {note}" for note in self.notes)]
        if self.nvidia and self.nvidia.file:
            lines.append(f"  NVIDIA's file: {self.nvidia.file} ({self.nvidia.reason})")
        return "\n".join([*lines, *(f"  note: {note}" for note in (self.nvidia.notes if self.nvidia else ()))])

    def added_to(self, file: dict[str, Any]) -> dict[str, Any]:
        """Return the same as JSON values, with those of the policy *file*."""
        mistakes = [{"line": None, "column": None, "text": text} for text in self.mistakes]
        file |= {"notes": [*file["notes"], *self.notes], "mistakes": [*file["mistakes"], *mistakes]}
        if nvidia := self.nvidia:
            of_nvidia = {"file": nvidia.file and str(nvidia.file), "chosen_because": nvidia.reason}
            file["nvidia"] = {**of_nvidia, "notes": list(nvidia.notes), "mistakes": list(nvidia.mistakes)}
        return file


def check(report: Report, settings: Settings, place: Place, stocks: Mapping[str, Stock] | None) -> Checked:
    """Check what the device plugin would do with a policy file.

    Args:
        report: the report about the policy file.
        settings: those of the file.
        place: the machine.
        stocks: the machine's cards; None: the machine is not checked.
    """
    plan = _plan(settings, place)
    if plan is None:
        return Checked()
    nvidia = _nvidia_file(report, plan, place)
    of_unit = [place.invocation.mistake] if place.invocation.mistake else []
    if stocks is None or (nvidia and nvidia.config is None):
        return Checked(nvidia=nvidia, mistakes=of_unit)
    config = (nvidia and nvidia.config) or PluginConfig()
    found = _on_machine(report, plan, nvidia, config, _inventory(plan, config, stocks, place.host_root))
    makers = Configuration(plan=plan, nvidia=config).makers
    lacking = [*notes(plan, makers, VgpuFiles(place.host_root).exists)]
    return replace(found, notes=lacking, mistakes=[*found.mistakes, *of_unit])


def _plan(settings: Settings, place: Place) -> PluginPlan | None:
    options, named = settings.common.devices, place.invocation.nvidia_config
    plan = (options.plan() if options else None) or (NVIDIA_ALONE if named else None)
    return replace(plan, nvidia_config=named) if plan and named else plan


def _nvidia_file(report: Report, plan: PluginPlan, place: Place) -> NvidiaFile | None:
    if plan.nvidia is None:
        return None
    if plan.nvidia_config:
        path = place.host_root / plan.nvidia_config.lstrip("/")
        if not place.has_machine and not path.exists():
            note = f"{path} does not exist: NVIDIA's file was not checked"
            return NvidiaFile(file=None, reason="", config=None, notes=(note,))
        if not os.path.lexists(path) and not place.invocation.nvidia_config:
            text = f"{report.choice.file}: devices.plugin.nvidiaConfig: {path} does not exist"
            return NvidiaFile(file=None, reason="", config=None, mistakes=(text,))
        plan = replace(plan, nvidia_config=str(path))
    node = Node(explicit=place.invocation.name, hostname=place.hostname, group=place.group)
    found = examine(plan, node, [*overrides(place.invocation.flags, place.invocation.env)])
    return replace(found, notes=(*found.notes, *place.invocation.notes))


def _inventory(plan: PluginPlan, config: PluginConfig, stocks: Mapping[str, Stock], host_root: Path) -> Inventory:
    """Return the machine's cards: NVIDIA's as NVML describes them if only NVML knows what matters, else from files.

    NVML takes seconds; and below another root than /, it describes other cards.
    """
    if plan.nvidia is None:
        return Inventory(stocks=stocks)
    stock = stocks[plan.nvidia.kind.name]
    found = Inventory(
        stocks=stocks,
        gpus=gpus_of_driver(stock, host_root, files := DriverFiles()),
        platform=platform_of(host_root, files, has_nvml=True),
        imex_channels=imex_channels(host_root),
        nvml_queried=False,
    )
    if config.flags.mig_strategy == "none" or not found.gpus:
        return found
    described = _as_nvml_says(plan, host_root)
    is_same = {gpu.uuid for gpu in described.gpus} == {gpu.uuid for gpu in found.gpus}
    return found if described.pending or not is_same else described


def _as_nvml_says(plan: PluginPlan, host_root: Path) -> Inventory:
    async def scan() -> Inventory:
        machine = Machine((each.kind for each in plan.advertised), host_root, limits=Limits(nvml_s=NVML_S))
        try:
            return await machine.scan()
        finally:
            await machine.close()

    return asyncio.run(scan())


def _on_machine(
    report: Report, plan: PluginPlan, nvidia: NvidiaFile | None, config: PluginConfig, found: Inventory
) -> Checked:
    known = tuple(each for each in plan.advertised if not each.is_nvidia or _is_known(config, found))

    def of(*classes: Advertised) -> Configuration:
        return Configuration(plan=replace(plan, advertised=classes), nvidia=config)

    is_unknown = len(known) < len(plan.advertised) and bool(found.gpus)
    own = (
        _contradiction_without_nvml(config, found)
        if is_unknown
        else next((_contradiction(of(each), found) for each in known if each.is_nvidia), "")
    )
    others = [_contradiction(of(each), found) for each in known if not each.is_nvidia]
    if not own and not any(others):
        others = [_contradiction(of(*known), found)]  # two classes with one resource
    if nvidia and own:
        nvidia = replace(nvidia, mistakes=(f"{nvidia.file or report.choice.file}: {own}",))
    served = build_resources(of(*known), found)
    lines = [f"    {name}: {_ids(list(resource.devices))}" for name, resource in served.resources.items()]
    notes = [f"  note: {text}" for text in served.warnings]
    if is_unknown:
        notes.append("  note: only NVML knows the MIG devices, so NVIDIA's resources are not listed")
    return Checked(
        nvidia=nvidia,
        offered=[*(["  the device plugin offers:", *lines] if lines else []), *notes],
        mistakes=[f"{report.choice.file}: devices.plugin: {text}" for text in others if text],
    )


def _is_known(config: PluginConfig, found: Inventory) -> bool:
    """Whether all of NVIDIA's cards are known: only NVML knows how GPUs are divided."""
    is_divided = any(gpu.mig_enabled for gpu in found.gpus)
    return bool(found.gpus) and (found.nvml_queried or config.flags.mig_strategy == "none" or not is_divided)


def _contradiction_without_nvml(config: PluginConfig, found: Inventory) -> str:
    """Why the plugin would refuse a file on a machine with MIG, as far as the driver's files show it; else empty."""
    if config.flags.mig_strategy != "single":
        return ""
    try:
        check_all_divided(found.gpus)
    except ResourceError as error:
        return str(error)
    return ON_MIG if config.sharing.strategy == "mps" else ""


def _contradiction(config: Configuration, found: Inventory) -> str:
    """Why the plugin would not take the files into force on this machine; empty: it would."""
    try:
        build_resources(config, found, strict=True)
    except ResourceError as error:
        return str(error)
    return ""


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(ids[:SHOWN_IDS]) + more
