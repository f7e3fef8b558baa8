"""Keeps the feature file as it should be: looks again from time to time, and after each change of cards or files."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.deviceplugin.configuration import Loaded
from criproxy.deviceplugin.label_file import (
    hold,
    is_held,
    label_text,
    labels_note,
    machine_type,
    remove,
    says,
    write,
)
from criproxy.deviceplugin.options import below
from criproxy.deviceplugin.publisher import Publisher
from criproxy.discovery.patience import Hangs, Patience
from criproxy.nvidia.label_output import FileOutput, feature_file
from criproxy.nvidia.options import Flags
from criproxy.observe.logger import Log

WRITE_S = 10.0
"""How long the disk may take."""
SOON_S = 0.2
"""Cards that come together are written together."""


@dataclass(slots=True, repr=False)
class Labelling:
    """Writes the labels of the node, if the files say so.

    Args:
        host_root: above the feature file.
        publisher: has what labels tell of.
        log: is told once why there are none.
        now: seconds since the epoch.
    """

    host_root: Path
    publisher: Publisher
    log: Log
    now: Callable[[], float] = time.time
    problem: str = ""
    written: int = 0
    """How often the file was written."""
    _loaded: Loaded | None = None
    _loaded_s: float = 0.0
    _target: Path | None = None
    """The file that is written, or will be."""
    _file: Path | None = None
    """The one that was written."""
    _held: int | None = None
    """Open while that is this program's: a second one leaves it when it ends."""
    _stopped: bool = False
    _noted: str = ""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _patience: Patience = field(default_factory=Patience)

    def soon(self) -> None:
        """Something that labels tell of may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Keep the file for ever."""
        while True:
            plan = self.publisher.loaded.plan.labels
            try:
                async with asyncio.timeout(plan.interval_s if plan and not self._is_once() else None):
                    await self._wanted.wait()
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
            self._wanted.clear()
            await self._keep()

    async def stop(self) -> None:
        """The labels end with the program, unless it was to write them once."""
        self._stopped = True
        flags = self._flags()
        if isinstance(output := feature_file(flags), FileOutput) and output.removed_on_exit:
            await self._remove()

    async def _keep(self) -> None:
        if self._stopped:
            return
        loaded = self.publisher.loaded
        if loaded is not self._loaded:
            self._loaded, self._loaded_s = loaded, self.now()
        file = below(self.host_root, loaded.plan.labels.file) if loaded.plan.labels else None
        if file != self._target:
            await self._remove()
            self._target = file
        if file is None:
            return
        try:
            is_new, problem = await self._patience.wait(str(file), partial(self._write, file, loaded), WRITE_S)
            self._say(problem)
            self._note(labels_note(loaded.features, self.publisher.inventory))
            if is_new:
                self.written += 1
                self.log.info("the labels of the node are written", file=str(file))
        except Hangs:
            self._say(f"{file}: its disk does not answer")  # the error says for how long, and so is never the same
        except OSError as error:
            self._say(f"{file}: {error.strerror or error}")  # the error may name a file that only existed for a moment

    def _write(self, file: Path, loaded: Loaded) -> tuple[bool, str]:
        """Write the file, if it says something else; whether it did, and what is wrong with NVIDIA's; may block."""
        flags = self._flags()
        model = machine_type(below(self.host_root, flags.gfd.machine_type_file))
        publisher = self.publisher
        text, problem = label_text(loaded.features, publisher.inventory, publisher.served, model, self._loaded_s)
        is_new = not says(file, text)
        if is_new:
            write(file, text)
        self._file = file
        if not is_held(file, self._held):
            self._let_go()
            self._held = hold(file)
        return is_new, f"NVIDIA's cards have no labels: {problem}" if problem else ""

    async def _remove(self) -> None:
        """Remove the file. A write that is under way has to end first: it would put the file back."""
        target, self._target = self._target, None
        if target is None:
            return
        try:
            with suppress(OSError):  # the write's: whoever wanted it has gone
                await self._patience.wait(str(target), _nothing, WRITE_S)
            file, held = self._file, self._held
            self._file = self._held = None
            if file is not None:
                await self._patience.wait(str(file), partial(remove, file, held), WRITE_S)
        except (OSError, Hangs) as error:
            self.log.warning("the labels of the node cannot be removed", file=str(target), reason=str(error))

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _flags(self) -> Flags:
        features = self.publisher.loaded.features
        return features.flags if features else Flags()

    def _is_once(self) -> bool:
        return self._flags().gfd.oneshot

    def _note(self, text: str) -> None:
        if text and text != self._noted:
            self.log.warning("the labels of the node leave out GPU models", reason=text)
        self._noted = text

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            self.log.warning("the labels of the node cannot be written", reason=problem)
        self.problem = problem


def _nothing() -> None:
    """Stand in for a write where none is under way."""
