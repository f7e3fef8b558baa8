"""Which configuration a start uses: the policy file, or what is tried or was kept in its place.

A start is no event: what was tried goes on for the rest of its time, and ends at once if that has passed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from criproxy.model.machine.topology import Topology
from criproxy.model.place import Places
from criproxy.node.configuration.in_place import in_effect
from criproxy.node.configuration.load import BadFile, Configuration, rebuilt
from criproxy.node.settings import Settings
from criproxy.process.logger import Log
from criproxy.store.last_good import GoodFile
from criproxy.store.tried import Tried

Instead = Callable[[BadFile, GoodFile | None], Configuration]
"""Returns the configuration that is in force in place of a bad policy file: the given one, which was good, or else the
last good one that is known."""


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
    found: Configuration | BadFile, tried: Tried | None, topology: Topology, base: Settings, instead: Instead, log: Log
) -> AtStart:
    """Choose between the policy file and what is in its place. May block.

    Args:
        found: the policy file.
        tried: what the last run has left in its place.
        topology: the machine.
        base: settings that files do not set.
        instead: for a bad policy file.
        log: receives a line about what becomes of *tried*.
    """
    if tried is None:
        return AtStart(_usable(found, None, instead))
    if isinstance(found, Configuration) and found.file_hash != tried.file_hash:
        log.warning(
            "the policy file has changed: it is in effect, and no longer what was tried", file=str(found.source)
        )
        back = tried.places_under(found.settings.configuration)
        return AtStart(found, back=back, ended="" if tried.is_kept else "file")
    if tried.is_kept and isinstance(found, Configuration) and found.settings.configuration == tried.good.configuration:
        return AtStart(found)  # nothing is in place of it
    if tried.is_kept or tried.until_s > time.time():
        try:
            return AtStart(_in_place(tried, found, topology, base), tried)
        except BadFile as error:
            wrong = {"file": tried.good.source, "mistake": str(error)}
            log.warning("what was tried cannot be used any more: the former configuration is back", **wrong)
    else:
        log.warning("the time of the try is over: the former configuration is back", tried=tried.good.source)
    return _ended(tried, found, topology, base, instead)


def _ended(
    tried: Tried, found: Configuration | BadFile, topology: Topology, base: Settings, instead: Instead
) -> AtStart:
    """Return what was in force before *tried*."""
    if former := tried.former():
        try:
            return AtStart(_in_place(former, found, topology, base), former, tried.places, ended="time")
        except BadFile:
            pass  # then the policy file
    usable = _usable(found, None if tried.before_kept or not tried.before.text else tried.before, instead)
    back = tried.places_under(usable.settings.configuration)
    return AtStart(usable, back=back, ended="" if tried.is_kept else "time")


def _usable(found: Configuration | BadFile, before: GoodFile | None, instead: Instead) -> Configuration:
    return instead(found, before) if isinstance(found, BadFile) else found


def _in_place(tried: Tried, found: Configuration | BadFile, topology: Topology, base: Settings) -> Configuration:
    """Return the configuration *tried*; raise BadFile if the machine no longer has what it needs."""
    new = rebuilt(tried.good, topology, base)
    if not isinstance(found, BadFile):
        return new
    return replace(new, problem=str(found), instead=in_effect(tried))
