"""The configuration that is in force in place of the policy file, in memory and on disk: tried, or kept.

The policy file counts again as soon as it says something else, or somebody asks for it. `at_start` chooses what a start
uses: a start is no event, so what was tried goes on for the rest of its time, and ends at once if that has passed.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event

from criproxy.errors import StoreError
from criproxy.model.machine.topology import Topology
from criproxy.model.node import LastConfiguration, Places
from criproxy.model.text.notices import timestamp
from criproxy.model.text.sources import hash_of
from criproxy.node.configuration.load import BadFile, Configuration, configuration_instead, last_good, rebuilt
from criproxy.node.context import Context
from criproxy.node.record.persister import ends_in_time
from criproxy.node.settings import Settings, Trial
from criproxy.process.logger import Log
from criproxy.store.configurations import TRIED_NAME, GoodFile, Tried, write_tried

RETRY_S = 10.0
"""Pause before the removal of the file is retried."""
PREVIOUS = "the previous one stays in effect"
"""What is in effect while the policy file cannot be used, if nothing more is known."""
Found = Configuration | BadFile
"""The policy file at a start."""


@dataclass(slots=True, repr=False)
class InPlaceOfFile:
    """What is in force in place of the policy file."""

    state_dir: Path
    context: Context
    tried: Tried | None = None
    """None: the policy file is in force."""
    ended: str = ""
    """When and how the last try ended, for those who keep it too late; empty: there was none, or it was kept."""
    _disk: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises changes of the file."""
    _late: "asyncio.Future[None] | None" = None
    """The write that was given up last because the disk did not answer; no other one begins before it ends."""
    _differs: bool = False
    """Whether the file may say something else than `tried`."""
    _settling: bool = False
    """Whether a task makes it say the same."""

    def places_for(self, new: Configuration) -> Places | None:
        """Return where containers return to if *new* comes into force; None if it is not what was before a try."""
        return tried.places_under(new.settings.configuration) if (tried := self.tried) else None

    async def put(self, tried: Tried) -> None:
        """Remember *tried*, on disk first.

        Raises:
            StoreError: the disk fails, or does not answer in time; nothing has changed. What the disk does later is
                undone.
        """
        async with self._disk:
            await self._write(tried)
            self.use(tried)

    def go_back(self, former: Tried | None) -> None:
        """Take *former* for what is in force again, in place of the last one; the disk follows."""
        self.use(former)
        self.settle_soon()

    def use(self, tried: Tried | None) -> None:
        """Take *tried*, which is on disk, for what is in force."""
        was_tried, self.tried = self.tried is not None, tried
        self.context.in_force.trial = _shown(tried) if tried else None
        self._say_instead(was_tried=was_tried)
        if not self._differs:
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

    def give_way(self) -> None:
        """The policy file has come into force: that ends a try, whose file goes when that is on disk."""
        if self.tried is not None and not self.tried.is_kept:
            self.context.counters.tries_ended["file"] += 1
            same = self.tried.good.configuration == self.context.settings.configuration
            file = "the policy file, whose content is the same," if same else "the policy file"
            self.ended = f"the last one was tried until {timestamp(time.time())}; then {file} took effect"
        if self.tried is not None:
            self.go_back(None)

    def settle_soon(self) -> None:
        """Make the file agree with what is in force, as soon as the node on disk has that configuration."""
        self._differs = True
        if not self._settling:
            self._settling = True
            self.context.tasks.spawn("settle a try", self._settle())

    async def _settle(self) -> None:
        """Change the file: not earlier, because after a crash the next start has to return containers to their places.

        If it stays, because the disk fails, the next start removes it: the time of the try is over then, the policy
        file has changed, or the try had not come into effect.
        """
        try:
            while self._differs:
                last = LastConfiguration.parse(self.context.state.node.configuration)
                if last.digest != self.context.settings.configuration:
                    await self.context.state.changed()
                    continue
                if self._late:  # without a limit: no call waits for this task
                    await asyncio.wait([self._late])
                if not await self._settled():
                    await asyncio.sleep(RETRY_S)
        finally:
            self._settling = False

    async def _settled(self) -> bool:
        """Write what is in force now; return False if that has to be repeated."""
        with suppress(StoreError):  # it is reported where the state is written
            await self.context.persister.durable()
            async with self._disk:
                if not self._differs:  # another try has begun meanwhile
                    return True
                try:
                    await self._write(self.tried)
                except StoreError as error:
                    over = "" if self.tried else "the try is over, but "
                    self.context.in_force.trial_problem = f"{over}{error}"
                    raise
                self.context.in_force.trial_problem = ""
                self.context.state.notify()
                return True
        return False

    async def _write(self, tried: Tried | None) -> None:
        """Write or remove the file; the caller holds `_disk`.

        Raises:
            StoreError: the disk fails, or does not answer in time.
        """
        limit_s, gave_up = self.context.settings.store.timeout_s, Event()
        text = f"{self.state_dir / TRIED_NAME} cannot be {'written' if tried else 'removed'}"
        silent = StoreError(f"{text}: the disk has not answered for {limit_s:g} s")
        if self._late and not await ends_in_time(self._late, limit_s):
            raise silent
        work = partial(write_tried, self.state_dir, tried, lambda: not gave_up.is_set())
        self._late = write = asyncio.get_running_loop().run_in_executor(None, work)
        write.add_done_callback(_ended)
        try:
            await ends_in_time(write, limit_s)
        finally:
            if not write.done():
                gave_up.set()
                later = "criproxy makes the file agree with what is in effect when the disk answers"
                self.context.in_force.trial_problem = f"{silent}; {later}"
                self.settle_soon()
        if not write.done():
            raise silent
        if error := write.exception():
            why = error.strerror if isinstance(error, OSError) else repr(error)
            raise StoreError(f"{text}: {why}") from error
        self._differs = False


def _ended(write: "asyncio.Future[None]") -> None:
    """Look at the outcome of a *write*: nobody else may, if it was given up."""
    if not write.cancelled():
        write.exception()


def in_effect(tried: Tried) -> str:
    """Return a sentence about what is in effect while *tried* is in place of a policy file that cannot be used."""
    source, until = tried.good.source, timestamp(tried.until_s)
    if tried.is_kept:
        return f"{source}, which was kept, is in effect"
    now = f"{source}, which is being tried, is in effect until {until} unless it is kept"
    if tried.before_kept:
        return f"{now}; then {tried.before.source}, which was kept, comes back"
    back = f"the last good one, read from {tried.before.source}," if tried.before.text else "no policy file"
    return f"{now}; then {back} is in effect again"


def _shown(tried: Tried) -> Trial:
    text, source = tried.before.text, tried.before.source
    if tried.is_kept:
        return Trial(back_hash=tried.file_hash)
    left_s = min(tried.until_s - time.time(), tried.until_s - tried.begun_s)  # the clock may have been set since then
    return Trial(source, hash_of(text) if text else "", tried.until_s, time.monotonic() + left_s)


@dataclass(frozen=True, slots=True)
class AtStart:
    """What a start uses."""

    configuration: Configuration
    tried: Tried | None = None
    """If it is not the policy file that is in force: what is in its place."""
    back: Places | None = None
    """If a try has ended: where containers return to."""
    ended: str = ""
    """What has ended a try since the last run, as in `Counters.tries_ended`; empty: nothing."""


def at_start(
    found: Found, tried: Tried | None, topology: Topology, base: Settings, last: GoodFile | None, log: Log
) -> AtStart:
    """Choose between the policy file and what is in its place. May block.

    Args:
        found: the policy file.
        tried: what the last run has left in its place.
        topology: the machine.
        base: settings that files do not set, with the node's `configuration`.
        last: the last good file, which is in force in place of a bad one; None if none is known.
        log: receives a line about what becomes of *tried*.
    """
    if tried is None:
        return AtStart(_usable(found, last, topology, base))
    if isinstance(found, Configuration) and found.file_hash != tried.file_hash and not tried.outlasts_files:
        text = "the policy file has changed: it is in effect, and no longer what was tried"
        log.warning(text, file=str(found.source))
        back = tried.places_under(found.settings.configuration)
        return AtStart(found, back=back, ended="" if tried.is_kept else "file")
    same = isinstance(found, Configuration) and found.settings.configuration == tried.good.configuration
    if tried.is_kept and isinstance(found, Configuration) and same and not tried.outlasts_files:
        return AtStart(found)  # nothing is in place of it
    if tried.is_kept or tried.until_s > time.time():
        try:
            return AtStart(_in_place(tried, found, topology, base), tried)
        except BadFile as error:
            wrong = {"file": tried.good.source, "mistake": str(error)}
            log.warning("what was tried cannot be used any more: the former configuration is back", **wrong)
    else:
        log.warning("the time of the try is over: the former configuration is back", tried=tried.good.source)
    return _before(tried, found, topology, base, last)


def _before(tried: Tried, found: Found, topology: Topology, base: Settings, last: GoodFile | None) -> AtStart:
    """Return what was in force before *tried*."""
    if former := tried.former():
        try:
            return AtStart(_in_place(former, found, topology, base), former, tried.places, ended="time")
        except BadFile:
            pass  # then the policy file
    is_known = tried.before.text and not tried.before_kept and base.configuration == tried.good.configuration
    usable = _usable(found, tried.before if is_known else last, topology, base)
    back = tried.places_under(usable.settings.configuration)
    return AtStart(usable, back=back, ended="" if tried.is_kept else "time")


def _usable(found: Found, good: GoodFile | None, topology: Topology, base: Settings) -> Configuration:
    return configuration_instead(found, good, topology, base) if isinstance(found, BadFile) else found


def _in_place(tried: Tried, found: Found, topology: Topology, base: Settings) -> Configuration:
    """Return the configuration *tried*; raise BadFile if the machine no longer has what it needs."""
    new = rebuilt(tried.good, topology, base)
    if not isinstance(found, BadFile):
        return new
    return replace(new, problem=str(found), instead=in_effect(tried))
