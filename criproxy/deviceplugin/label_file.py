"""Writes the feature file from which node-feature-discovery labels the node."""

import fcntl
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
from criproxy.devices.vgpu_profiles import Vgpu
from criproxy.nvidia.labels import LabelError, Machine, VgpuGuest, labels, timestamp_label, untold_models
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
        machine = _machine(inventory, machine_type)
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


def labels_note(features: PluginConfig | None, inventory: Inventory) -> str:
    """What the labels of NVIDIA's cards do not tell, since there is one set of them for all; empty: nothing."""
    told, others = untold_models(_machine(inventory, None), features) if features else ("", [])
    names = ", ".join(others)
    return f"GPUs of several models have the same labels: they describe {told}, but not {names}" if others else ""


def _machine(inventory: Inventory, machine_type: str | None) -> Machine:
    # What drivers the host has is in the GPU's PCI configuration, of which only programs with CAP_SYS_ADMIN see enough.
    guest = VgpuGuest() if any(gpu.is_vgpu for gpu in inventory.gpus) else None
    return Machine(
        gpus=inventory.gpus,
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
        machine_type=machine_type,
        vgpu=guest,
    )


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


def hold(file: Path) -> int | None:
    """Take *file* for this process while the descriptor that is returned is open; None: another process has it."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # a file system without locks: nobody can tell
    return descriptor


def is_held(file: Path, descriptor: int | None) -> bool:
    """Whether *file* is the one that is held by *descriptor*, and has not been replaced."""
    try:
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def remove(file: Path, descriptor: int | None) -> None:
    """Remove *file* if it is held by *descriptor*, which is closed."""
    try:
        if is_held(file, descriptor):
            file.unlink(missing_ok=True)
    finally:
        if descriptor is not None:
            os.close(descriptor)
