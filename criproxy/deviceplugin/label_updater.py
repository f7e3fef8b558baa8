"""Keeps the labels of the node up to date: the feature file, if there is to be one, and what is reported to the daemon.

It checks the file at an interval, and after each change of cards or configuration.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded, below
from criproxy.deviceplugin.labels import FILE_MODE, feature_file, legal_labels, resource_labels, vgpu_labels
from criproxy.deviceplugin.nvidia import labels as nvidia_labels
from criproxy.deviceplugin.nvidia.options import PREFIX, GfdFlags
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.deviceplugin.resources.resource_builder import Served
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.offers import Offered
from criproxy.devices.plugin.published import MOST_LABELS
from criproxy.errors import reason_of
from criproxy.host.files import read_text
from criproxy.host.patience import Hangs, Patience
from criproxy.process.logger import Log
from criproxy.process.tasks import wait_at_most

_STAMP = "nvidia.com/gfd.timestamp="
LONGEST_BYTES = 1 << 20
"""Limit for reading an existing file."""
WRITE_S = 10.0
"""Timeout for the disk."""
SOON_S = 0.2
"""Changes within this time lead to one write."""


def node_labels(
    configuration: Configuration, inventory: Inventory, served: Served, machine_type: str | None, loaded_s: float
) -> tuple[dict[str, str], str]:
    """Return the labels of the node, and why NVIDIA's cards have none among them (empty if they have).

    Args:
        configuration: The files in effect.
        inventory: The machine's cards.
        served: The offered resources.
        machine_type: The machine's name for itself; None if unknown.
        loaded_s: When the files were read, in seconds since the epoch.
    """
    found, problem = dict[str, str](), ""
    if configuration.plan.nvidia is not None:
        # The GPU's PCI configuration shows the host's driver, but only programs with CAP_SYS_ADMIN can read enough.
        guest = nvidia_labels.VgpuGuest() if any(gpu.is_vgpu for gpu in inventory.gpus) else None
        machine = nvidia_labels.Machine(
            gpus=inventory.gpus,
            driver_version=inventory.driver_version,
            cuda_version=inventory.cuda_version,
            machine_type=machine_type,
            vgpu=guest,
        )
        try:
            found |= nvidia_labels.labels(machine, configuration.nvidia)
            found |= nvidia_labels.timestamp_label(configuration.nvidia.flags.gfd, loaded_s)
        except nvidia_labels.LabelError as error:
            problem = str(error)
    others: dict[str, Mapping[str, Offered]] = {}
    for name, resource in served.resources.items():
        if any(each.vgpu for each in resource.devices.values()):
            found |= vgpu_labels(name, resource.devices.values())
        elif resource.kind != NVIDIA.name:
            others[name] = resource.devices
    return legal_labels(found | resource_labels(others)), problem


def labels_note(configuration: Configuration, inventory: Inventory) -> str:
    """Return what the labels of NVIDIA's cards omit, since there is one set for all; empty if they omit nothing."""
    if configuration.plan.nvidia is None:
        return ""
    described, others = nvidia_labels.undescribed_models(inventory.gpus, configuration.nvidia)
    names = ", ".join(others)
    return f"GPUs of several models have the same labels: they describe {described}, but not {names}" if others else ""


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


@dataclass(slots=True, repr=False)
class LabelUpdater:
    """Finds out the labels of the node, and writes their file if the configuration asks for one.

    Args:
        host_root: Root of the path of the feature file.
        publisher: Has what the labels describe.
        log: Gets one line for each reason why there are no labels.
        changed: Called when `labels` has changed.
        now: Returns seconds since the epoch.
    """

    host_root: Path
    publisher: Publisher
    log: Log
    changed: Callable[[], None] = lambda: None
    now: Callable[[], float] = time.time
    labels: Mapping[str, str] | None = None
    """Those of NVIDIA's feature discovery, which something else may write to the node; None until they are known."""
    problem: str = ""
    _loaded: Loaded | None = None
    _loaded_at_s: float = 0.0
    _target: Path | None = None
    """The file that is written, or will be."""
    _file: Path | None = None
    """The file that was written last."""
    _lock: int | None = None
    """Descriptor that locks the file while this program owns it: another one leaves it alone when it ends."""
    _stopped: bool = False
    _logged_note: str = ""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _patience: Patience = field(default_factory=Patience)

    def request(self) -> None:
        """Check the labels soon: something that they describe may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Keep the labels up to date forever."""
        while True:
            plan = self.publisher.loaded.plan.labels
            if await wait_at_most(plan.interval_s if plan and not self._gfd.oneshot else None, self._wanted.wait()):
                await asyncio.sleep(SOON_S)
            self._wanted.clear()
            await self._update()

    async def stop(self) -> None:
        """Remove the labels, unless they are to outlive the program (``oneshot``)."""
        self._stopped = True
        if not self._gfd.outlives_program:
            await self._remove()

    async def _update(self) -> None:
        if self._stopped:
            return
        loaded = self.publisher.loaded
        if loaded is not self._loaded:
            self._loaded, self._loaded_at_s = loaded, self.now()
        file = below(self.host_root, loaded.plan.labels.file) if loaded.plan.labels else None
        if file != self._target:
            await self._remove()
            self._target = file
        before, place = self.labels, str(file or "labels")
        try:
            is_new, problem = await self._patience.wait(place, partial(self._write, file, loaded), WRITE_S)
        except Hangs:  # the text of the error has the time, so it always differs
            problem, is_new = f"{place}: its disk does not answer", False
        except OSError as error:  # the error may name a temporary file
            problem, is_new = f"{place}: {error.strerror or error}", False
        self._log_problem(problem if file else "")
        self._log_note(labels_note(loaded, self.publisher.inventory) if file else "")
        if is_new:
            self.log.info("the labels of the node are written", file=str(file))
        if self.labels != before:
            self.changed()

    def _write(self, file: Path | None, loaded: Loaded) -> tuple[bool, str]:
        """Write the file if its text changes; return whether it did, and why NVIDIA's labels are missing; may block."""
        model = read_text(below(self.host_root, self._gfd.machine_type_file))
        inventory, served = self.publisher.inventory, self.publisher.served
        found, problem = node_labels(loaded, inventory, served, model, self._loaded_at_s)
        if not problem and not inventory.pending:  # else it is unknown which labels the node should have
            own = (label for label in found.items() if label[0].startswith(PREFIX))
            self.labels = dict(islice(own, MOST_LABELS))
        if file is None:
            return False, ""
        text = feature_file(found)
        is_new = not has_content(file, text)
        if is_new:
            write(file, text)
        self._file = file
        if not is_locked_by(file, self._lock):
            held, self._lock = self._lock, None
            if held is not None:
                os.close(held)
            self._lock = lock(file)
        return is_new, f"NVIDIA's cards have no labels: {problem}" if problem else ""

    async def _remove(self) -> None:
        """Remove the file. A write in progress has to end first: it would create the file again."""
        target, self._target = self._target, None
        if target is None:
            return
        try:
            with suppress(OSError):  # raised by the write, whose caller no longer waits
                await self._patience.wait(str(target), lambda: None, WRITE_S)  # run only if there is none
            file, held = self._file, self._lock
            self._file = self._lock = None
            if file is not None:
                await self._patience.wait(str(file), partial(remove, file, held), WRITE_S)
        except (OSError, Hangs) as error:
            self.log.warning("the labels of the node cannot be removed", file=str(target), reason=reason_of(error))

    @property
    def _gfd(self) -> GfdFlags:
        return self.publisher.loaded.nvidia.flags.gfd

    def _log_note(self, text: str) -> None:
        if text and text != self._logged_note:
            self.log.warning("the labels of the node leave out GPU models", reason=text)
        self._logged_note = text

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            self.log.warning("the labels of the node cannot be written", reason=problem)
        self.problem = problem
