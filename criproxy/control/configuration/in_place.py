"""The configuration that is in force in place of the policy file, in memory and on disk: tried, or kept.

The policy file counts again as soon as it says something else, or somebody asks for it.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.control.configuration.load import Configuration, hash_of, last_good
from criproxy.control.context import Context
from criproxy.control.settings import Trial
from criproxy.errors import StoreError
from criproxy.model.last_configuration import LastConfiguration
from criproxy.model.notices import timestamp
from criproxy.model.place import Places
from criproxy.store.tried import NAME, Tried, write_tried

RETRY_S = 10.0
"""Pause before the removal of the file is retried."""
PREVIOUS = "the previous one stays in effect"
"""What is in effect while the policy file cannot be used, if nothing more is known."""


@dataclass(slots=True, repr=False)
class InPlaceOfFile:
    """What is in force in place of the policy file."""

    state_dir: Path
    context: Context
    tried: Tried | None = None
    """None: the policy file is in force."""
    _disk: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises changes of the file."""

    def hides(self, file: Configuration) -> bool:
        """Whether the policy *file* is as it was when the try began, so that it does not count."""
        return self.tried is not None and self.tried.file_hash == file.file_hash

    def places_for(self, new: Configuration) -> Places | None:
        """Return where containers return to if *new* comes into force; None if it is not what was before a try."""
        return self.tried.places_under(new.settings.configuration) if self.tried else None

    async def put(self, tried: Tried) -> None:
        """Remember *tried*, on disk first.

        Raises:
            StoreError: the disk fails; nothing has changed.
        """
        async with self._disk:
            try:
                await asyncio.to_thread(write_tried, self.state_dir, tried)
            except OSError as error:
                raise StoreError(f"{self.state_dir / NAME} cannot be written: {error.strerror}") from error
            self.use(tried)

    def use(self, tried: Tried | None) -> None:
        """Take *tried*, which is on disk, for what is in force."""
        was_tried, self.tried = self.tried is not None, tried
        self.context.in_force.trial = _shown(tried) if tried else None
        self._say_instead(was_tried=was_tried)
        self.context.in_force.trial_problem = ""
        self.context.state.notify()

    def _say_instead(self, *, was_tried: bool) -> None:
        """Say what is in effect now, if the policy file cannot be used; at a start, that is said already."""
        in_force = self.context.in_force
        if in_force.problem is None:
            return
        if self.tried:
            in_force.instead = in_effect(self.tried)
        elif was_tried:
            in_force.instead = last_good(in_force.loaded.file) if in_force.loaded.file else PREVIOUS

    def clear(self) -> None:
        """Forget it: the policy file, or what was before, is in force. Its file goes when that is on disk."""
        if self.tried is not None:
            self.use(None)
            self.forget_soon()

    def give_way(self) -> None:
        """The policy file has come into force: that ends a try."""
        if self.tried is not None and not self.tried.is_kept:
            self.context.counters.tries_ended["file"] += 1
        self.clear()

    def forget_soon(self) -> None:
        """Remove the file from the disk as soon as the node has the configuration that is in force now."""
        self.context.tasks.spawn("forget a try", self._forget())

    async def _forget(self) -> None:
        """Remove the file: not earlier, because after a crash the next start has to return containers to their places.

        If it stays, because the disk fails, the next start removes it: the time of the try is over then, or the policy
        file has changed.
        """
        state = self.context.state
        while self.tried is None and not self._is_applied():
            await state.changed()
        while self.tried is None and not await self._forgotten():  # noqa: ASYNC110 (a disk does not tell when it works)
            await asyncio.sleep(RETRY_S)

    def _is_applied(self) -> bool:
        last = LastConfiguration.parse(self.context.state.node.configuration)
        return last.digest == self.context.settings.configuration

    async def _forgotten(self) -> bool:
        """Remove the file, unless another try has begun meanwhile; return False if that has to be repeated."""
        try:
            await self.context.persister.durable()
            async with self._disk:
                if self.tried is None:
                    await asyncio.to_thread(write_tried, self.state_dir, None)
        except StoreError:  # it is reported where the state is written
            return False
        except OSError as error:
            text = f"the try is over, but {self.state_dir / NAME} cannot be removed: {error.strerror}"
            self.context.in_force.trial_problem = text
            return False
        self.context.in_force.trial_problem = ""
        return True


def in_effect(tried: Tried) -> str:
    """Return a sentence about what is in effect while *tried* is in place of a policy file that cannot be used."""
    if tried.is_kept:
        return f"{tried.good.source}, which was kept, is in effect"
    until = (
        f"{tried.good.source}, which is being tried, is in effect until {timestamp(tried.until_s)} unless it is kept"
    )
    if tried.before_kept:
        return f"{until}; then {tried.before.source}, which was kept, comes back"
    back = f"the last good one, read from {tried.before.source}," if tried.before.text else "no policy file"
    return f"{until}; then {back} is in effect again"


def _shown(tried: Tried) -> Trial:
    text, source = tried.before.text, tried.before.source
    if tried.is_kept:
        return Trial(back_hash=tried.file_hash)
    left_s = min(tried.until_s - time.time(), tried.until_s - tried.begun_s)  # the clock may have been set since then
    return Trial(source, hash_of(text) if text else "", tried.until_s, time.monotonic() + left_s)
