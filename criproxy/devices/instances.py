"""Gives existing parts of cards, such as MIG devices, to profiles: each is one vGPU, and nothing is cut.

A part serves a profile if it has at least the memory and the cores that the profile asks for. It belongs to the profile
that asks for most among those that it serves, so that a small profile does not take the large parts. It promises all
that it has: nobody else can use what the profile does not ask for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from criproxy.devices.cards import ids_text
from criproxy.devices.cutting import ALL_MEMORY_PERCENT, choose
from criproxy.devices.vgpu_profiles import SEPARATOR, CardSize, Profile, Vgpu, vgpu_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A part of a card that exists, and that the hardware keeps apart from the others."""

    id: str
    card: CardSize
    """The whole one."""
    profile: str
    """What the vendor calls its size: ``1g.10gb``."""
    memory_mib: int
    cores_percent: int
    """Its share of the card's computing units, rounded down; 0 where it is not known."""

    @property
    def size(self) -> str:
        """For people."""
        cores = f"{self.cores_percent} % of the cores" if self.cores_percent else "unknown cores"
        return f"{self.profile} ({self.memory_mib} MiB and {cores})"


Need = tuple[int, int]
"""Memory in MiB, and cores in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Which parts are vGPUs."""

    vgpus: Mapping[str, tuple[Vgpu, ...]]
    """By profile."""
    unclear: tuple[str, ...] = ()
    """The ids of parts that are in one of the problems, and are not to be offered."""
    problems: tuple[str, ...] = ()
    """What the profiles and the parts contradict each other in: sentences."""

    @property
    def taken(self) -> frozenset[str]:
        """The ids of parts that are vGPUs, or in a problem."""
        return frozenset((*self.unclear, *(each.card for parts in self.vgpus.values() for each in parts)))


def assign(
    cards: Sequence[CardSize], instances: Sequence[Instance], profiles: Sequence[Profile], others: Sequence[CardSize]
) -> Assigned:
    """Which of *instances* are vGPUs of which of *profiles*; the result names what is wrong instead of raising it.

    Args:
        cards: those that are divided.
        instances: their parts.
        profiles: of the class, those that take parts.
        others: cards that are not divided, which have nothing for these profiles.
    """
    chosen = {profile.name: {card.id for card in choose(cards, profile.select)} for profile in profiles}
    vgpus: dict[str, list[Vgpu]] = {profile.name: [] for profile in profiles}
    unclear, more = dict[str, str](), dict[str, list[str]]()
    for each in instances:
        served = [one for one in profiles if each.card.id in chosen[one.name] and serves(each, one)]
        try:
            best = _most_demanding(each, served)
        except _Unclear as error:
            unclear[each.id] = str(error)
            continue
        if best is not None:
            vgpus[best.name].append(_vgpu(each, best))
            for one in served:
                more.setdefault(one.name, []).append(best.name)
    problems = [*dict.fromkeys(unclear.values())]  # parts of one size are alike
    empty = [one for one in profiles if (cards or others) and not unclear and not vgpus[one.name]]
    problems += [_nothing(one, _Found(chosen[one.name], instances, others, more.get(one.name, []))) for one in empty]
    return Assigned(
        vgpus={name: tuple(found) for name, found in vgpus.items()}, unclear=tuple(unclear), problems=tuple(problems)
    )


def serves(instance: Instance, profile: Profile) -> bool:
    """Whether a part has all that a profile asks for."""
    memory_mib, cores_percent = _need(instance.card, profile)
    named = not profile.select.mig or any(fnmatchcase(instance.profile, each) for each in profile.select.mig)
    return named and instance.memory_mib >= memory_mib and instance.cores_percent >= cores_percent


class _Unclear(ValueError):
    """A part that may be a vGPU of several profiles, or of none."""


def _need(card: CardSize, profile: Profile) -> Need:
    return (
        profile.memory_mib or card.memory_mib * profile.memory_percent // ALL_MEMORY_PERCENT,
        profile.cores_percent,
    )


def _most_demanding(instance: Instance, profiles: Sequence[Profile]) -> Profile | None:
    """The one that asks for no less than any other, of either quantity.

    Raises:
        _Unclear: there are several of them, or none; or the part cannot have the id of a vGPU.
    """
    needs = [_need(instance.card, each) for each in profiles]
    best = [
        profile
        for profile, need in zip(profiles, needs, strict=True)
        if all(own >= other for each in needs for own, other in zip(need, each, strict=True))
    ]
    if profiles and len(best) != 1:
        asked = " and ".join(f"{each.name} ({_asked(instance.card, each)})" for each in profiles)
        raise _Unclear(
            f"a MIG device {instance.size} serves {asked}, of which none asks for more than the others; "
            "give them different MIG profiles in select.mig"
        )
    if best and SEPARATOR in instance.id:
        raise _Unclear(f"{instance.id} cannot be a vGPU: only drivers since R470 give MIG devices a UUID")
    return best[0] if best else None


def _asked(card: CardSize | None, profile: Profile) -> str:
    memory_mib = _need(card, profile)[0] if card else profile.memory_mib
    parts = [f"{memory_mib} MiB"] if memory_mib else []
    parts += [f"{profile.memory_percent} % of the memory"] if profile.memory_percent and not memory_mib else []
    parts += [f"{profile.cores_percent} % of the cores"] if profile.cores_percent else []
    parts += [" or ".join(profile.select.mig)] if profile.select.mig else []
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is for a profile without vGPUs."""

    chosen: set[str]
    instances: Sequence[Instance]
    others: Sequence[CardSize]
    more: Sequence[str]
    """For each part that would serve it: the profile that asks for more."""


def _nothing(profile: Profile, found: _Found) -> str:
    """Why a profile has no vGPU: with the sizes of what there is."""
    return "; ".join([f"profile {profile.name} ({_asked(None, profile)}) has no MIG device", *_reasons(profile, found)])


def _reasons(profile: Profile, found: _Found) -> Iterator[str]:
    own = Counter(each.size for each in found.instances if each.card.id in found.chosen)
    if found.more:
        owners = ", ".join(dict.fromkeys(found.more))
        yield f"{len(found.more)} that would serve it belong to profiles that ask for more: {owners}"
    elif own:
        yield f"there are {', '.join(f'{count} x {size}' for size, count in own.items())}"
    elif found.chosen:
        yield f"the cards that it selects have none: {ids_text(sorted(found.chosen))}"
    if without := [card.id for card in choose(found.others, profile.select)]:
        yield f"without MIG: {ids_text(without)}"


def _vgpu(instance: Instance, profile: Profile) -> Vgpu:
    return Vgpu(
        id=vgpu_id(instance.id, profile.name, 0),
        card=instance.id,
        profile=profile.name,
        memory_mib=instance.memory_mib,
        cores_percent=instance.cores_percent,
    )
