"""Mistakes in profiles that are independent of the machine's cards; `card_division` finds those that depend on them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.vgpu_profiles import CardChoice, Profile
from criproxy.devices.options.mig_mistakes import mig_mistakes
from criproxy.devices.plugin.card_division import ALL_CORES_PERCENT
from criproxy.devices.plugin.enforcement import PLACEHOLDERS, SWITCHES, is_among
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.placement.options.policy_options import Misfit

Path = tuple[str | int, ...]
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A text that looks like a placeholder; other braces, as in JSON, are literal."""


def profile_mistakes(plan: PluginPlan, classes: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
    """Yield the mistakes in the list of profiles; paths start at the section of the device plugin.

    Args:
        plan: the contents of the section.
        classes: the device classes in use, by name.
    """
    for number, profile in enumerate(plan.profiles):
        path: Path = ("profiles", number)
        yield from _of_name(path, profile, plan.profiles[:number], classes)
        yield from _of_class(path, profile, plan)
        yield from _of_quota(path, profile)
        if profile.kind in classes:
            yield from _of_memory(path, profile)
        yield from _of_count(path, profile, plan.profiles[:number])
        yield from _of_enforcement(path, profile)
        yield from mig_mistakes(path, profile, plan.profiles[:number])
        yield from _of_env(path, profile, classes.get(profile.kind))
        yield from _of_sharing(path, profile, plan)


def _of_name(
    path: Path, profile: Profile, before: Sequence[Profile], classes: Mapping[str, DeviceClass]
) -> Iterator[Misfit]:
    if any(each.name == profile.name for each in before):
        yield Misfit((*path, "name"), f"another profile also has the name {profile.name!r}: choose another one")
    others = (kind for kind in classes.values() if kind.name != profile.kind)
    if other := next((kind for kind in others if kind.serves(profile.resource)), None):
        yield Misfit((*path, "name"), f"{profile.resource} belongs to the class {other.name!r}: choose another name")


def _of_class(path: Path, profile: Profile, plan: PluginPlan) -> Iterator[Misfit]:
    names = [each.kind.name for each in plan.advertised]
    if profile.kind not in names:
        near = get_close_matches(profile.kind, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield Misfit((*path, "class"), f"the class {profile.kind!r} is not in advertise{hint}")


def _of_quota(path: Path, profile: Profile) -> Iterator[Misfit]:
    if not (profile.memory_mib or profile.memory_percent or profile.cores_percent or profile.select.mig):
        yield Misfit(path, "needs memory, cores, or both: every profile must have a quota")
    count = profile.count or 1
    for word, percent in (("memory", profile.memory_percent), ("cores", profile.cores_percent)):
        if count * percent > ALL_CORES_PERCENT:
            text = f"{count} x {percent} % are {count * percent} % of a card's {word}"
            yield Misfit((*path, "count"), f"{text}: at most {ALL_CORES_PERCENT // percent} fit")


def _of_memory(path: Path, profile: Profile) -> Iterator[Misfit]:
    """Of a class that there is: only NVIDIA's driver is asked how much memory a card has."""
    if profile.kind != NVIDIA.name and profile.memory_percent:
        yield Misfit((*path, "memory"), f"{_unknown_memory(profile)}: give an amount")
    elif profile.kind != NVIDIA.name and profile.memory_mib and profile.count is None:
        yield Misfit((*path, "count"), f"{_unknown_memory(profile)}: give a number")


def _unknown_memory(profile: Profile) -> str:
    return f"criproxy does not know the memory of cards of the class {profile.kind!r}"


def _of_count(path: Path, profile: Profile, before: Sequence[Profile]) -> Iterator[Misfit]:
    """Check profiles for all cards; which cards other profiles select depends on the machine."""
    if profile.count is not None or profile.is_mig or profile.select != CardChoice():
        return
    alike = (each for each in before if each.kind == profile.kind and not each.is_mig)
    others = (each for each in alike if each.select == CardChoice())
    if other := next((each for each in others if each.count is None), None):
        text = f"{other.name} also has count: auto for the same cards: give all but one a number"
        yield Misfit((*path, "count"), text)


def _of_enforcement(path: Path, profile: Profile) -> Iterator[Misfit]:
    place = (*path, "enforce")
    if twice := next((each for each in profile.enforce if profile.enforce.count(each) > 1), None):
        yield Misfit(place, f"{twice} is listed twice")
    other = next((each for each in profile.enforce if each != "watch"), None)
    if other and profile.kind != NVIDIA.name:
        yield Misfit(place, f"{other} works only for NVIDIA's cards: use watch")
    elif "nvidia-memory-limit" in profile.enforce and not (profile.memory_mib or profile.memory_percent):
        yield Misfit(place, "nvidia-memory-limit limits nothing without memory: add memory, or leave it out")


def _of_env(path: Path, profile: Profile, kind: DeviceClass | None) -> Iterator[Misfit]:
    """Check that no variable of the profile overrides one that shows the card or sets its limit.

    The variables of methods that the profile does not use are rejected, too: they would limit a program, or free it
    from a limit, without criproxy's knowledge.
    """
    switches = [name for names in SWITCHES.values() for name in names]
    for name, value in profile.env:
        place = (*path, "env", name)
        if is_among(name, switches) or (kind and (name == kind.visible_env or kind.strips(name))):
            yield Misfit(place, f"criproxy itself sets or removes {name}: leave it out")
        if unknown := next((word for word in _PLACEHOLDER.findall(value) if word not in PLACEHOLDERS), None):
            known = "{memory_mib}, {cores_percent} or {card}"
            yield Misfit(place, f"{{{unknown}}} is not a placeholder: use {known}")


def _of_sharing(path: Path, profile: Profile, plan: PluginPlan) -> Iterator[Misfit]:
    named = {*profile.select.ids, *map(str, profile.select.indexes)}
    for advertised in plan.advertised:
        for entry in plan.shared_of(advertised) if advertised.kind.name == profile.kind else ():
            both = [each for each in entry.devices if each in named] if isinstance(entry.devices, tuple) else []
            if both:
                text = f"card {both[0]} is also in sharing: a card is either shared or divided into vGPUs"
                yield Misfit((*path, "select"), f"{text}; list different cards in one of them")
