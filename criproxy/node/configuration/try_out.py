"""Tries a configuration: it comes into force, and the former one comes back by itself unless the new one is kept.

The policy file stays as it is. A restart of criproxy goes on with the try, or ends it if its time is over.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.config.load import devices_alone
from criproxy.errors import CriproxyError, UsageError
from criproxy.model.node import Node, places_of
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.text.sources import LONGEST_TRY_S, SHORTEST_TRY_S, node_policy_of
from criproxy.model.workload import Miss
from criproxy.node.configuration.in_place import InPlaceOfFile
from criproxy.node.configuration.load import FALLBACK, Configuration, candidate, rebuilt, without_file
from criproxy.node.configuration.reload import Reload
from criproxy.node.context import Context
from criproxy.process.tasks import wait_at_most
from criproxy.store.configurations import GoodFile, Tried

LOOK_S = 1.0
"""How often the clock is read: it may be set forward, or the machine may have slept."""
RETRY_S = 10.0
"""Pause after the former configuration could not come back."""
NOTHING = "no configuration is being tried"
CHANGES_PLUGIN = (
    "cannot be tried because it changes devices.plugin, a class that it offers or podresources.socket, which criproxy "
    "device-plugin reads from the policy file: undo this change, or make it in the policy file"
)


@dataclass(slots=True, repr=False)
class TryOut:
    """Begins, keeps and ends tries."""

    context: Context
    reload: Reload
    """Brings configurations into force; its lock serialises all changes."""
    in_place: InPlaceOfFile
    why_not: Callable[[], str] = lambda: ""
    """Returns why nothing can be tried now, as one sentence; empty if it can."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def resume(self, tried: Tried | None) -> None:
        """Continue with what the last run has left; None: its try is over, or there was none."""
        self.in_place.use(tried)
        if tried is None:
            self.in_place.settle_soon()
        elif tried.is_kept:
            with suppress(CriproxyError):  # the next start repeats it
                await self.in_place.put(tried)  # a try may have ended that began on top of it
        else:
            self._news.set()

    async def run(self) -> None:
        """Let the former configuration come back when the time of a try is over, for ever."""
        while True:
            self._news.clear()
            tried = self.in_place.tried
            left_s = trial.left_s if (trial := self.context.in_force.trial) and trial.until_s else None
            if left_s is not None and left_s <= 0 and tried is not None:
                await self._back_in_time(tried)
                continue
            await wait_at_most(None if left_s is None else min(left_s, LOOK_S), self._news.wait())

    async def begin(self, arguments: Mapping[str, Any]) -> Values:
        """Answer ``criproxy reload --try``: arguments ``text`` and ``source`` of the file, and ``time_s``.

        What a NodePolicy says and is in effect already is kept at once.

        Raises:
            UsageError: an argument is wrong.
            CriproxyError: nothing can be tried now, or not this file; everything is unchanged.
        """
        text, source = read_file(arguments)
        time_s = arguments.get("time_s")
        if isinstance(time_s, bool) or not isinstance(time_s, int | float):
            time_s = 0.0
        if not SHORTEST_TRY_S <= time_s <= LONGEST_TRY_S:
            raise UsageError("the duration of a try must be between 1s and 168h")
        async with self.reload.one:
            self._check_now()
            topology, base = self.context.state.node.topology, self.context.settings
            new = await asyncio.to_thread(candidate, text, source, topology, base)
            await asyncio.to_thread(self._check_file, new, text)
            if new.settings.configuration == self.context.settings.configuration:
                return await self._keep_same(new)
            return await self._begin(new, float(time_s))

    async def keep(self, arguments: Mapping[str, Any]) -> Values:
        """Answer ``criproxy reload --keep``: argument ``hash``, if only a configuration with that hash is to be kept.

        Raises:
            CriproxyError: nothing is tried, or it cannot be stored that it stays: then it goes back in time.
        """
        async with self.reload.one:
            tried = self._tried(arguments)
            await self.in_place.put(tried.kept())
            self.in_place.ended = ""
            self.context.counters.tries_ended["kept"] += 1
            self._news.set()
            loaded = self.context.in_force.loaded
            self.context.log.info("the tried configuration is kept", file=loaded.file, hash=loaded.hash)
            if node_policy_of(tried.good.source) or not await self.reload.use_file_if_same():
                self.reload.save_kept(tried.good)
            return self.reload.answer()

    async def back(self, arguments: Mapping[str, Any]) -> Values:
        """Answer ``reload-back``: let the former configuration come back now; argument ``hash`` as for `keep`.

        Raises:
            CriproxyError: nothing is tried, or the former configuration cannot come back.
        """
        async with self.reload.one:
            await self._back(self._tried(arguments), "asked")
            return self.reload.answer()

    async def for_node_policy(
        self, command: Callable[[Mapping[str, Any]], Awaitable[Any]], arguments: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401 - JSON
        """Answer *command* for the agent, which may only bring the content of NodePolicy objects into force.

        Raises:
            CriproxyError: what the arguments name, or what is tried, is not of a NodePolicy.
        """
        tried = self.in_place.tried
        source = arguments.get("source", tried.good.source if tried else "")
        if not isinstance(source, str) or not node_policy_of(source):
            raise CriproxyError(f"the agent may only try, keep and end what a NodePolicy says, not {source!r:.300}")
        return await command(arguments)

    def _tried(self, arguments: Mapping[str, Any]) -> Tried:
        """Return what is tried; raise CriproxyError if that is nothing, or not what has the ``hash`` in *arguments*."""
        tried, expected = self.in_place.tried, arguments.get("hash")
        if tried is None or tried.is_kept:
            raise CriproxyError(self._why_not_kept(tried))
        if expected is not None and expected != (has := self.context.in_force.loaded.hash):
            raise CriproxyError(f"{tried.good.source} with the hash {has} is being tried, not {expected!r:.60}")
        return tried

    async def _keep_same(self, new: Configuration) -> Values:
        """Keep what a NodePolicy says: it is in effect already, and nothing moves."""
        file_hash = await asyncio.to_thread(self.reload.hash_of_file)
        await self.in_place.put(Tried(good=new.said, file_hash=file_hash, begun_s=time.time()))
        await self.reload.use_kept(new)
        keys = {"source": str(new.source), "hash": new.file_hash}
        self.context.log.info("a NodePolicy says what is in effect already: it is kept", **keys)
        return {**self.reload.answer(), "moved": 0, "no_place": 0}

    def _why_not_kept(self, kept: Tried | None) -> str:
        """Return why nothing can be kept; *kept*: what is kept already, perhaps since before the last try."""
        ended, already = self.in_place.ended, "the configuration in effect is already kept"
        if not ended:
            return already if kept else NOTHING
        return f"{NOTHING}: {ended}" + (f"; {already}, since before that try" if kept else "")

    async def _begin(self, new: Configuration, time_s: float) -> Values:
        former, node = self.in_place.tried, self.context.state.node
        now_s = time.time()
        tried = Tried(
            good=new.said,
            file_hash=await asyncio.to_thread(self.reload.hash_of_file),
            begun_s=now_s,
            until_s=now_s + time_s,
            before=self.reload.current,
            before_kept=former is not None,
            places=places_of(node),
        )
        await self.in_place.put(tried)
        try:
            decision = await self.reload.bring(new, how="tried")
        except Exception:
            self.in_place.go_back(former)
            raise
        self._news.set()
        keys = {**new.named, "until": timestamp(tried.until_s)}
        self.context.log.warning("a configuration is tried; the former one comes back unless it is kept", **keys)
        no_place = _without_place(node, decision.node) if new.settings.apply_all else 0
        return {**self.reload.answer(), "moved": len(decision.moving(node)), "no_place": no_place}

    async def _back_in_time(self, tried: Tried) -> None:
        try:
            async with self.reload.one:
                if self.in_place.tried is tried:  # otherwise somebody has kept it, or the policy file has changed
                    await self._back(tried, "time")
        except CriproxyError as error:
            text = f"the time of the try is over, but the former configuration cannot come back: {error}"
            if text != self.context.in_force.trial_problem:
                self.context.log.warning("a try cannot end", error=str(error))
            self.context.in_force.trial_problem = text
            await asyncio.sleep(RETRY_S)

    async def _back(self, tried: Tried, why: str) -> None:
        """Let the former configuration come back; *why*: as in `Counters.tries_ended`."""
        former = await asyncio.to_thread(self._former, tried)
        await self.reload.bring(former, how="back", back=tried.places)
        self.in_place.go_back(tried.former())
        self.context.counters.tries_ended[why] += 1
        self.in_place.ended = f"the last one was tried until {timestamp(time.time())}, and was not kept"
        event = "the time of the try is over" if why == "time" else "the try was ended"
        event += ": the former configuration is back"
        self.context.log.warning(event, **former.named)
        self.reload.file_changed()  # it may have changed before the try without having come into force

    def _former(self, tried: Tried) -> Configuration:
        """Return the configuration from before the try; raise BadFile if the machine no longer has what it needs."""
        if not tried.before.text:
            return without_file(self.context.settings)
        return rebuilt(tried.before, self.context.state.node.topology, self.context.settings)

    def _check_now(self) -> None:
        """Raise CriproxyError if nothing can be tried now."""
        tried = self.in_place.tried
        if why := self.why_not():
            raise CriproxyError(why)
        if tried is not None and not tried.is_kept:
            until = self.context.in_force.said()["until"]
            text = f"{tried.good.source} is being tried until {until}"
            remedy = "run 'criproxy reload --keep' to keep it, or 'criproxy reload' to end it first"
            raise CriproxyError(f"{text}: {remedy}")
        if self.context.state.node.released:
            raise CriproxyError("the node is released: end the release first, with 'criproxy release --undo'")
        if self.context.settings.policy_name == FALLBACK:
            raise CriproxyError("there is no good configuration that could come back: write a valid policy file first")

    def _check_file(self, new: Configuration, text: str) -> None:
        """Raise CriproxyError if it makes no sense to try *new*. May block."""
        if changes_plugin(text, self.reload.current):
            raise CriproxyError(f"{new.source} {CHANGES_PLUGIN}")
        same = new.settings.configuration == self.context.settings.configuration
        if same and not node_policy_of(str(new.source)):
            raise CriproxyError(f"{new.source} is equivalent to the configuration in effect: there is nothing to try")


def _without_place(before: Node, after: Node) -> int:
    """Return how many containers share CPUs in *after* only because the policy had no place for them."""
    known = (each for key, each in after.containers.items() if key in before.containers)
    return sum(1 for each in known if each.missed and each.missed.why is Miss.UNFIT)


def changes_plugin(text: str, current: GoodFile) -> bool:
    """Whether a valid file says something else to criproxy device-plugin than the *current* one. May block."""
    return _plugin_of(text) != _plugin_of(current.text)


def _plugin_of(text: str) -> object:
    """Return what criproxy device-plugin reads from a valid file; None without ``devices.plugin``."""
    options = devices_alone(text) if text else None
    return (options.plan(), options.podresources.socket) if options and options.plugin else None


def read_file(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of a policy file, and where it is, from the *arguments* of a command; raise UsageError."""
    text, source = arguments.get("text"), arguments.get("source")
    if isinstance(text, str) and isinstance(source, str) and _is_place(source):
        return text, source
    raise UsageError("text and source: must be the content of a policy file, and its absolute path or NodePolicy/NAME")


def _is_place(source: str) -> bool:
    return (source.startswith("/") and "\0" not in source) or bool(node_policy_of(source))
