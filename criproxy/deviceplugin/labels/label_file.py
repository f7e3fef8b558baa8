"""The feature file from which node-feature-discovery labels the node."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.labels.feature_file import FILE_MODE, feature_file
from criproxy.deviceplugin.labels.labels import advertised, resource_labels, vgpu_labels
from criproxy.deviceplugin.nvidia.labels.labels import (
    LabelError,
    Machine,
    VgpuGuest,
    labels,
    timestamp_label,
    undescribed_models,
)
from criproxy.deviceplugin.resources.resource_builder import Served
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.offers import Offered
from criproxy.devices.classes.vgpu_profiles import Vgpu

_STAMP = "nvidia.com/gfd.timestamp="
LONGEST_BYTES = 1 << 20
"""Limit for reading an existing file."""


def label_text(
    configuration: Configuration, inventory: Inventory, served: Served, machine_type: str | None, loaded_s: float
) -> tuple[str, str]:
    """Return the text of the file, and why NVIDIA's cards have no labels in it (empty if they have).

    Args:
        configuration: The files in effect.
        inventory: The machine's cards.
        served: The offered resources.
        machine_type: The machine's name for itself; None if unknown.
        loaded_s: When the files were read, in seconds since the epoch.
    """
    found, problem = dict[str, str](), ""
    if configuration.plan.nvidia is not None:
        machine, nvidia = _machine(inventory, machine_type), configuration.nvidia
        try:
            found |= labels(machine, nvidia) | timestamp_label(nvidia.flags.gfd, loaded_s)
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


def labels_note(configuration: Configuration, inventory: Inventory) -> str:
    """Return what the labels of NVIDIA's cards omit, since there is one set for all; empty if they omit nothing."""
    if configuration.plan.nvidia is None:
        return ""
    described, others = undescribed_models(_machine(inventory, None), configuration.nvidia)
    names = ", ".join(others)
    return f"GPUs of several models have the same labels: they describe {described}, but not {names}" if others else ""


def _machine(inventory: Inventory, machine_type: str | None) -> Machine:
    # The GPU's PCI configuration shows the host's driver, but only programs with CAP_SYS_ADMIN can read enough of it.
    guest = VgpuGuest() if any(gpu.is_vgpu for gpu in inventory.gpus) else None
    return Machine(
        gpus=inventory.gpus,
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
        machine_type=machine_type,
        vgpu=guest,
    )


def machine_type(file: Path) -> str | None:
    """Return the machine's name for itself; None if *file* cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def has_content(file: Path, text: str) -> bool:
    """Whether *file* already has the content *text*, apart from the time."""
    try:
        with file.open("rb") as stream:
            found = stream.read(LONGEST_BYTES + 1)
    except OSError:
        return False
    return _without_time(found.decode(errors="replace")) == _without_time(text)


def _without_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(_STAMP)]


def write(file: Path, text: str) -> None:
    """Replace *file* atomically: a reader sees either the whole old text or the whole new one.

    The name of the temporary file begins with a dot: node-feature-discovery skips such files.

    Raises:
        OSError: The file cannot be written; no temporary file is left behind.
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


def lock(file: Path) -> int | None:
    """Lock *file* for this process and return the descriptor; None if another process holds the lock."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # a file system without locks: other processes cannot be detected
    return descriptor


def is_locked_by(file: Path, descriptor: int | None) -> bool:
    """Whether *file* is the one that *descriptor* has locked, and has not been replaced."""
    try:
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def remove(file: Path, descriptor: int | None) -> None:
    """Remove *file* if *descriptor* has it locked; close the descriptor."""
    try:
        if is_locked_by(file, descriptor):
            file.unlink(missing_ok=True)
    finally:
        if descriptor is not None:
            os.close(descriptor)
