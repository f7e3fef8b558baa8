"""Which methods enforce the quotas of vGPUs on this node, and which cannot: logged once, and reported to the daemon."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.devices.classes.vgpu_profiles import Enforcement, Profile, Vgpu
from criproxy.devices.plugin.enforcement import EnforcementBuilder
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.devices.plugin.published import Advertised, Published
from criproxy.process.logger import Log
from criproxy.process.tasks import wait_at_most

Exists = Callable[[str], bool]
"""Whether a path is on the host."""
LOOK_S = 10.0
"""How often files are looked for, which administrators and other programs add and remove."""

Missing = Mapping[str, Mapping[str, str]]
"""By resource and method, why the method does not work."""


def missing_methods(plan: PluginPlan, profile: Profile, makers: EnforcementBuilder, exists: Exists) -> dict[str, str]:
    """By method of a profile that cannot work on this node, why: a sentence."""
    found: dict[str, str] = {}
    for method in profile.enforce:
        if missing := next((path for path in _needs(method, profile, makers) if not exists(path)), ""):
            found[method] = f"{method} needs {missing}, which does not exist on this node"
        elif method == "watch" and profile.kind in plan.unwatched:
            found[method] = f"watch needs an entry for the class {profile.kind} in devices.plugin.usage"
    return found


def _needs(method: Enforcement, profile: Profile, makers: EnforcementBuilder) -> Iterator[str]:
    """The files that the node must have, without those that criproxy makes for each vGPU."""
    vgpu = Vgpu(id=profile.name, card="", profile=profile.name, memory_mib=profile.memory_mib, cores_percent=0)
    made = makers.folders(method, vgpu) or ()
    return (path for path in makers.build(method, vgpu).needs if path not in made)


def notes(plan: PluginPlan, makers_of: Callable[[str], EnforcementBuilder], exists: Exists) -> Iterator[str]:
    """Sentences for people about all of it, before the device plugin runs: files may still come.

    Args:
        plan: what the device plugin is to do.
        makers_of: what knows the methods of a resource.
        exists: whether a path is on the host.
    """
    for profile in plan.profiles:
        refuses = profile.when_missing == "refuse"
        then = "its pods are not admitted" if refuses else "ifMissing: next continues without it"
        for method, reason in missing_methods(plan, profile, makers_of(profile.resource), exists).items():
            yield f"profile {profile.name}: {reason}" + ("" if method == "watch" else f": {then}")
    for each in plan.usage:
        if each.command and not exists(program := each.command[0]):
            yield f"usage of the class {each.kind}: {program} does not exist on this node: its quotas are not checked"


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
            await wait_at_most(self.look_s if self._profiles else None, self._news.wait())

    def told(self, report: Published) -> Published:
        """The *report* with the methods of each profile."""
        return replace(report, resources=tuple(map(self._with_methods, report.resources)))

    def _with_methods(self, resource: Advertised) -> Advertised:
        if not resource.profile or (profile := self._profiles.get(resource.name)) is None:
            return resource
        return replace(resource, enforce=profile.enforce, not_enforced=self._missing.get(resource.name, {}))

    def _look(self, loaded: Loaded) -> Missing:
        plan, makers = loaded.plan, loaded.makers
        return {
            each.resource: missing_methods(plan, each, makers(each.resource), self.exists) for each in plan.profiles
        }

    def _tell(self, missing: Missing) -> None:
        before, self._missing = self._missing, missing
        for resource, reasons in missing.items():
            profile = self._profiles.get(resource)
            for method, reason in reasons.items():
                is_news = before.get(resource, {}).get(method) != reason
                if is_news and profile is not None and profile.when_missing == "next":
                    text = "a profile continues without one of its enforcement methods (ifMissing: next)"
                    self.log.warning(text, profile=profile.name, method=method, reason=reason)
        if missing != before:
            self.changed()
