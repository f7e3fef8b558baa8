"""Keeps the feature file up to date: checks it at an interval, and after each change of cards or configuration."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.configuration.options import below
from criproxy.deviceplugin.labels.label_file import (
    has_content,
    is_locked_by,
    label_text,
    labels_note,
    lock,
    machine_type,
    remove,
    write,
)
from criproxy.deviceplugin.nvidia.options import GfdFlags
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.errors import reason_of
from criproxy.host.patience import Hangs, Patience
from criproxy.process.logger import Log

WRITE_S = 10.0
"""Timeout for the disk."""
SOON_S = 0.2
"""Changes within this time lead to one write."""


@dataclass(slots=True, repr=False)
class LabelUpdater:
    """Writes the labels of the node if the configuration asks for them.

    Args:
        host_root: Root of the path of the feature file.
        publisher: Has what the labels describe.
        log: Gets one line for each reason why there are no labels.
        now: Returns seconds since the epoch.
    """

    host_root: Path
    publisher: Publisher
    log: Log
    now: Callable[[], float] = time.time
    problem: str = ""
    written: int = 0
    """How often the file was written."""
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
        """Check the file soon: something that the labels describe may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Keep the file up to date forever."""
        while True:
            plan = self.publisher.loaded.plan.labels
            try:
                async with asyncio.timeout(plan.interval_s if plan and not self._gfd.oneshot else None):
                    await self._wanted.wait()
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
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
        if file is None:
            return
        try:
            is_new, problem = await self._patience.wait(str(file), partial(self._write, file, loaded), WRITE_S)
            self._log_problem(problem)
            self._log_note(labels_note(loaded.configuration, self.publisher.inventory))
            if is_new:
                self.written += 1
                self.log.info("the labels of the node are written", file=str(file))
        except Hangs:
            self._log_problem(
                f"{file}: its disk does not answer"
            )  # the text of the error has the time, so it always differs
        except OSError as error:
            self._log_problem(f"{file}: {error.strerror or error}")  # the error may name a temporary file

    def _write(self, file: Path, loaded: Loaded) -> tuple[bool, str]:
        """Write the file if its text changes; return whether it did, and why NVIDIA's labels are missing; may block."""
        model = machine_type(below(self.host_root, self._gfd.machine_type_file))
        inventory, served = self.publisher.inventory, self.publisher.served
        text, problem = label_text(loaded.configuration, inventory, served, model, self._loaded_at_s)
        is_new = not has_content(file, text)
        if is_new:
            write(file, text)
        self._file = file
        if not is_locked_by(file, self._lock):
            self._unlock()
            self._lock = lock(file)
        return is_new, f"NVIDIA's cards have no labels: {problem}" if problem else ""

    async def _remove(self) -> None:
        """Remove the file. A write in progress has to end first: it would create the file again."""
        target, self._target = self._target, None
        if target is None:
            return
        try:
            with suppress(OSError):  # raised by the write, whose caller no longer waits
                await self._patience.wait(str(target), _do_nothing, WRITE_S)
            file, held = self._file, self._lock
            self._file = self._lock = None
            if file is not None:
                await self._patience.wait(str(file), partial(remove, file, held), WRITE_S)
        except (OSError, Hangs) as error:
            self.log.warning("the labels of the node cannot be removed", file=str(target), reason=reason_of(error))

    def _unlock(self) -> None:
        held, self._lock = self._lock, None
        if held is not None:
            os.close(held)

    @property
    def _gfd(self) -> GfdFlags:
        return self.publisher.loaded.configuration.nvidia.flags.gfd

    def _log_note(self, text: str) -> None:
        if text and text != self._logged_note:
            self.log.warning("the labels of the node leave out GPU models", reason=text)
        self._logged_note = text

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            self.log.warning("the labels of the node cannot be written", reason=problem)
        self.problem = problem


def _do_nothing() -> None:
    """Wait for the write in progress: `Patience` runs this only if there is none."""
