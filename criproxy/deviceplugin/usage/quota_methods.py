"""Which methods enforce the quotas of vGPUs on this node, and which cannot: said once, and told the daemon."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.devices.classes.vgpu_profiles import Profile
from criproxy.devices.options.missing import Exists, missing_methods
from criproxy.devices.plugin.published import Published
from criproxy.process.logger import Log

LOOK_S = 10.0
"""How often files are looked for, which administrators and other programs add and remove."""

Missing = Mapping[str, Mapping[str, str]]
"""By resource and method, why the method does not work."""


@dataclass(slots=True, repr=False)
class Methods:
    """The methods of all profiles.

    Args:
        exists: whether a path is on the host; may block.
        changed: called when another method than before cannot work.
        log: is told once of each method that a profile does without.
    """

    exists: Exists
    changed: Callable[[], None]
    log: Log
    look_s: float = LOOK_S
    _profiles: Mapping[str, Profile] = field(default_factory=dict)
    _missing: Missing = field(default_factory=dict)
    _loaded: Loaded | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def use(self, loaded: Loaded) -> None:
        """Look as *loaded* says from now on."""
        self._loaded = loaded
        self._profiles = {each.resource: each for each in loaded.plan.profiles}
        self._news.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self._news.clear()
            if self._loaded is not None and self._profiles:
                self._tell(await asyncio.to_thread(self._look, self._loaded))
            try:
                async with asyncio.timeout(self.look_s if self._profiles else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    def told(self, report: Published) -> Published:
        """The *report* with the methods of each profile."""
        return replace(
            report,
            resources=tuple(
                replace(
                    each,
                    enforce=self._profiles[each.name].enforce,
                    not_enforced=self._missing.get(each.name, {}),
                )
                if each.profile and each.name in self._profiles
                else each
                for each in report.resources
            ),
        )

    def _look(self, loaded: Loaded) -> Missing:
        plan, makers = loaded.plan, loaded.configuration.makers
        return {
            each.resource: missing_methods(plan, each, makers(each.resource), self.exists) for each in plan.profiles
        }

    def _tell(self, missing: Missing) -> None:
        before, self._missing = self._missing, missing
        for resource, reasons in missing.items():
            profile = self._profiles.get(resource)
            if profile is not None and profile.when_missing == "next":
                for method in (
                    each for each, reason in reasons.items() if before.get(resource, {}).get(each) != reason
                ):
                    text = "a profile continues without one of its enforcement methods (ifMissing: next)"
                    self.log.warning(text, profile=profile.name, method=method, reason=reasons[method])
        if missing != before:
            self.changed()
