"""The list ``devices.plugin.profiles`` of a policy file: quotas of memory and cores, by which cards are divided.

The mistakes here are independent of the machine's cards; `card_division` finds those that depend on them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass, is_among
from criproxy.devices.classes.mig_profiles import can_match, is_of_part, likely_name, most_memory_mib, without_part
from criproxy.devices.classes.vgpu_profiles import MIG, CardChoice, Enforcement, Profile, WhenMissing
from criproxy.devices.options.option_types import ClassName, Section, Text, class_mistakes
from criproxy.devices.plugin.card_division import ALL_CARDS_PERCENT, ALL_CORES_PERCENT
from criproxy.devices.plugin.enforcement import PLACEHOLDERS, SWITCHES
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.placement.options.policy_options import Misfit, Path

MAX_COUNT = 1000
MAX_PROFILE_NAME = 18
"""The maximum length of a name: with a UUID and a number, an id then has at most 63 characters."""

Percent = Annotated[int, Field(ge=1, le=100)]
_NAME = Text(
    f"[a-z]([a-z0-9.-]{{0,{MAX_PROFILE_NAME - 2}}}[a-z0-9])?",
    f"a name of at most {MAX_PROFILE_NAME} characters of a-z, 0-9, '-' and '.' that begins with a letter",
)
ProfileName = Annotated[str, _NAME]
MemoryQuota = Annotated[
    str,
    Text(r"[1-9][0-9]{0,8}(Mi|Gi)|[1-9][0-9]?%|100%", "an amount such as 8192Mi or 8Gi, or a share such as 50%", "Mi"),
]
NeededEnvName = Annotated[str, Text("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
ShareOfCards = Annotated[str, Text(r"[1-9][0-9]?%|100%", "a share such as 50%", "%")]
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A text that looks like a placeholder; other braces, as in JSON, are literal."""


def _number_or_auto(value: object) -> object:
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_COUNT):
        return value
    raise ValueError(f"must be auto, or the number of vGPUs of each card, from 1 to {MAX_COUNT}, not {value!r:.60}")


Count = Annotated[Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_COUNT)], BeforeValidator(_number_or_auto)]


class SelectOptions(Section):
    """Which cards of the class a profile cuts: those that meet every condition that is given."""

    models: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Product names, such as Tesla-T4; * and ? are wildcards, and a space matches '-'."""
    indexes: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Card indexes, as numbered by the driver."""
    ids: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Card IDs, as the kubelet knows them; for NVIDIA cards, these are UUIDs."""
    share: ShareOfCards = "100%"
    """What share of the cards that meet the other conditions is divided, starting with the first card; the number is
    rounded down. With enforce: [mig], this is a share of the GPUs with MIG, and all suitable MIG devices on these GPUs
    are used."""
    mig: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names of MIG profiles, such as 1g.10gb; * and ? are wildcards. Only MIG devices with these profiles are used.
    Allowed only with enforce: [mig]. Compute instances that share a GPU instance (1c.3g.20gb) cannot be vGPUs."""

    def choice(self) -> CardChoice:
        """Convert to plain values."""
        return self.plain(CardChoice, share_percent=int(self.share.removesuffix("%")))


class ProfileOptions(Section):
    """A quota of a card's memory and cores. Its vGPUs are offered as the resource criproxy.io/NAME."""

    name: ProfileName
    """The name of the resource, without the prefix criproxy.io/."""
    kind: ClassName = Field(alias="class")
    """The name of an advertised class."""
    memory: MemoryQuota | None = None
    """How much of the card's memory a container may use, such as 8192Mi, 8Gi or 50%; unlimited by default."""
    cores: Percent | None = None
    """What share of the card's compute a container may use, in percent; by default compute is not limited."""
    count: Count = "auto"
    """How many vGPUs each card has: a number, or as many as both quotas allow (auto). With enforce: [mig], only auto is
    possible: each MIG device is one vGPU."""
    select: SelectOptions = SelectOptions()
    """Which cards are divided; by default, all cards of the class."""
    enforce: tuple[Enforcement, ...] = Field(default=("watch",), min_length=1)
    """One or more methods that enforce the quota: criproxy, which monitors usage and acts after the quota is exceeded
    (watch); NVIDIA's MPS (mps); the library HAMi-core (hami-core); the driver's own limit (nvidia-memory-limit); or
    existing MIG devices, each of which is one vGPU (mig)."""
    env: Mapping[NeededEnvName, str] = {}
    """Variables that containers get, such as the name of a vendor's template. {memory_mib}, {cores_percent} and {card}
    are replaced with the vGPU's values."""
    if_missing: WhenMissing = "refuse"
    """What happens if the node lacks something that one of these methods needs: criproxy uses the remaining methods
    (next), or refuses the container (refuse)."""

    def profile(self) -> Profile:
        """Convert to plain values."""
        memory = self.memory or "0Mi"
        amount = int(memory.rstrip("%GMi"))
        return self.plain(
            Profile,
            memory_mib=0 if memory.endswith("%") else amount * (1024 if memory.endswith("Gi") else 1),
            memory_percent=amount if memory.endswith("%") else 0,
            cores_percent=self.cores or 0,
            count=None if self.count == "auto" else self.count,
            select=self.select.choice(),
            env=tuple(self.env.items()),
            when_missing=self.if_missing,
        )


def profile_mistakes(plan: PluginPlan, classes: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
    """Yield the mistakes in the list of profiles; paths start at the section of the device plugin.

    Args:
        plan: the contents of the section.
        classes: the device classes in use, by name.
    """
    offered = [each.kind.name for each in plan.advertised]
    for number, profile in enumerate(plan.profiles):
        path: Path = ("profiles", number)
        yield from _of_name(path, profile, plan.profiles[:number], classes)
        yield from class_mistakes((*path, "class"), profile.kind, set(), offered, "")
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
    if profile.kind != NVIDIA.name:
        text = f"criproxy does not know the memory of cards of the class {profile.kind!r}"
        if profile.memory_percent:
            yield Misfit((*path, "memory"), f"{text}: give an amount")
        elif profile.memory_mib and profile.count is None:
            yield Misfit((*path, "count"), f"{text}: give a number")


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
    for name, value in profile.env:
        place = (*path, "env", name)
        if is_among(name, SWITCHES) or (kind and (name == kind.visible_env or kind.strips(name))):
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


def mig_mistakes(path: Path, profile: Profile, before: Sequence[Profile]) -> Iterator[Misfit]:
    """Yield the mistakes of a profile that have to do with MIG.

    Args:
        path: the place of the profile.
        profile: the profile.
        before: the profiles that precede it in the list.
    """
    for number, card in enumerate(profile.select.ids):
        if card.startswith("MIG-"):
            text = f"{card:.60} is a MIG device, but ids are those of GPUs: write the id of its GPU"
            yield Misfit((*path, "select", "ids", number), f"{text}, and its profile in select.mig")
    if not profile.is_mig:
        if profile.select.mig:
            text = "only a profile with enforce: [mig] takes MIG devices: add it, or leave mig out"
            yield Misfit((*path, "select", "mig"), text)
        return
    yield from _of_other_settings(path, profile)
    for number, pattern in enumerate(profile.select.mig):
        yield from _of_pattern((*path, "select", "mig", number), pattern, profile)
    if same := next((each for each in before if each.is_mig and _needs(each) == _needs(profile)), None):
        text = f"asks for the same MIG devices as {same.name}, but each can have only one profile"
        yield Misfit(path, f"{text}: leave one of them out, or select different MIG profiles or cards")


def mig_notes(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield notes about settings of profiles of MIG devices that may not be intended."""
    for profile in profiles:
        share = profile.select.share_percent
        if profile.is_mig and share != ALL_CARDS_PERCENT:
            text = f"profile {profile.name}: select.share: {share}% is a share of the GPUs with MIG, rounded down"
            yield f"{text}: the profile takes all suitable MIG devices of these GPUs, and none of the other GPUs"


def _of_other_settings(path: Path, profile: Profile) -> Iterator[Misfit]:
    if other := next((each for each in profile.enforce if each not in (MIG, "watch")), None):
        text = f"the hardware limits a MIG device, and not {other}: use mig, or mig and watch"
        yield Misfit((*path, "enforce"), text)
    if profile.count is not None:
        yield Misfit((*path, "count"), "each MIG device is one vGPU: leave count out")
    if profile.when_missing == "next":
        text = "without a MIG device there is no vGPU, and nothing else isolates as much: leave next out"
        yield Misfit((*path, "ifMissing"), text)


def _of_pattern(path: Path, pattern: str, profile: Profile) -> Iterator[Misfit]:
    """Check a pattern of select.mig: whether a MIG device that can be a vGPU of *profile* may match it."""
    if is_of_part(pattern):
        text = f"{pattern:.60} is a compute instance that shares the memory of its GPU instance, so it cannot be a vGPU"
        whole = without_part(pattern) or "1g.10gb"
        yield Misfit(path, f"{text}: name MIG devices that are whole GPU instances, such as {whole}")
    elif not can_match(pattern):
        meant = likely_name(pattern)
        hint = f"; did you mean {meant}?" if meant else ""
        yield Misfit(path, f"must be a MIG profile such as 1g.10gb+me, or a pattern, not {pattern!r:.60}{hint}")
    elif 0 < (most_mib := most_memory_mib(pattern)) < profile.memory_mib:
        text = f"a MIG device {pattern} has less than {most_mib} MiB, but memory asks for {profile.memory_mib} MiB"
        yield Misfit(path, f"{text}: leave it out, or ask for less memory")


def _needs(profile: Profile) -> tuple[object, ...]:
    return profile.kind, profile.memory_mib, profile.memory_percent, profile.cores_percent, profile.select
