"""Writes the feature file from which node-feature-discovery labels the node."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from criproxy.deviceplugin.inventory import Inventory
from criproxy.deviceplugin.resources import Served
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.feature_file import FILE_MODE, feature_file
from criproxy.devices.labels import advertised, resource_labels, vgpu_labels
from criproxy.devices.offers import Offered
from criproxy.devices.vgpus import Vgpu
from criproxy.nvidia.labels import LabelError, Machine, labels, timestamp_label
from criproxy.nvidia.options import PluginConfig

_STAMP = "nvidia.com/gfd.timestamp="
LONGEST_BYTES = 1 << 20
"""Of a file that is there already."""


def label_text(
    features: PluginConfig | None, inventory: Inventory, served: Served, machine_type: str | None, loaded_s: float
) -> tuple[str, str]:
    """The whole file, and why NVIDIA's cards have no labels in it; empty: they have.

    Args:
        features: NVIDIA's file as its feature discovery reads it; None: NVIDIA's cards get no labels.
        inventory: the machine's cards.
        served: what is offered.
        machine_type: what the machine calls itself; None where it does not.
        loaded_s: when the files were read, in seconds since the epoch.
    """
    found, problem = dict[str, str](), ""
    if features is not None:
        machine = Machine(
            gpus=inventory.gpus,
            driver_version=inventory.driver_version,
            cuda_version=inventory.cuda_version,
            machine_type=machine_type,
        )
        try:
            found |= labels(machine, features) | timestamp_label(features.flags.gfd, loaded_s)
        except LabelError as error:
            problem = str(error)
    vgpus = {name: list(cards.values()) for name, cards in served.offers.items() if any(map(_vgpu, cards.values()))}
    for name, parts in vgpus.items():
        found |= vgpu_labels(name, parts)
    others = {
        name: cards
        for name, cards in served.offers.items()
        if served.classes[name] != NVIDIA.name and name not in vgpus
    }
    for each in advertised(others, {}):
        found |= resource_labels(each)
    return feature_file(found), problem


def _vgpu(offered: Offered) -> Vgpu | None:
    return offered.vgpu


def machine_type(file: Path) -> str | None:
    """What the machine calls itself; None where *file* cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def says(file: Path, text: str) -> bool:
    """Whether *file* says *text* already, but for the time."""
    try:
        with file.open("rb") as stream:
            found = stream.read(LONGEST_BYTES + 1)
    except OSError:
        return False
    return _without_time(found.decode(errors="replace")) == _without_time(text)


def _without_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(_STAMP)]


def write(file: Path, text: str) -> None:
    """Put *text* in the place of *file*: a reader sees the whole of the old one or of the new one.

    Its temporary name begins with a dot: node-feature-discovery passes over such files.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    with NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as stream:
        new = Path(stream.name)
        try:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), FILE_MODE)
            os.fsync(stream.fileno())
            new.rename(file)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
