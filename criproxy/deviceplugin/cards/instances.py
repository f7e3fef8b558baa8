"""Assigns existing parts of cards, such as MIG devices, to profiles: each part becomes one vGPU, and none is divided.

A part satisfies a profile if it has at least the memory and cores that the profile requires. It is assigned to the most
demanding of these profiles, so that a small profile does not take the large parts. The quota of the vGPU is the whole
part: nothing else can use what the profile does not require.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from criproxy.devices.classes.cards import ids_text
from criproxy.devices.classes.vgpu_profiles import SEPARATOR, CardSize, Profile, Vgpu, vgpu_id
from criproxy.devices.plugin.card_division import choose, lacking_share, matching, memory_mib_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An existing part of a card, which the hardware isolates from the other parts."""

    id: str
    card: CardSize
    """The whole card."""
    profile: str
    """The vendor's name of its size, such as ``1g.10gb``."""
    memory_mib: int
    cores_percent: int
    """Its share of the card's computing units, rounded down; 0 if unknown."""

    @property
    def size(self) -> str:
        """Its size, for messages."""
        cores = f"{self.cores_percent} % of the cores" if self.cores_percent else "unknown cores"
        return f"{self.profile} ({self.memory_mib} MiB and {cores})"


Need = tuple[int, int]
"""What a profile requires: memory in MiB, and cores in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The assignment of parts to profiles."""

    vgpus: Mapping[str, tuple[Vgpu, ...]]
    """The vGPUs, by profile."""
    unclear: tuple[str, ...] = ()
    """The ids of the parts in problems, which must not be offered."""
    problems: tuple[str, ...] = ()
    """The contradictions between profiles and parts, as sentences."""

    @property
    def taken(self) -> frozenset[str]:
        """The ids of the parts that are vGPUs, or in a problem."""
        return frozenset((*self.unclear, *(each.card for parts in self.vgpus.values() for each in parts)))


def assign(
    cards: Sequence[CardSize],
    instances: Sequence[Instance],
    profiles: Sequence[Profile],
    others: Sequence[CardSize],
    shared: Sequence[Instance] = (),
) -> Assigned:
    """Assign *instances* to *profiles*; the result contains the problems, none is raised.

    Args:
        cards: the cards that are divided into parts, including those that were so before.
        instances: the parts.
        profiles: the profiles of the class that use parts.
        others: the cards that are not divided, which have nothing for these profiles.
        shared: parts that share their memory with other parts, and are therefore of no profile.
    """
    whole = {card.id for card in others}
    chosen = {profile.name: {card.id for card in choose(cards, profile.select)} - whole for profile in profiles}
    vgpus: dict[str, list[Vgpu]] = {profile.name: [] for profile in profiles}
    unclear, more = dict[str, str](), dict[str, list[str]]()
    for each in instances:
        served = [one for one in profiles if each.card.id in chosen[one.name] and satisfies(each, one)]
        try:
            best = _most_demanding(each, served)
        except _Unclear as error:
            unclear[each.id] = str(error)
            continue
        if best is not None:
            vgpus[best.name].append(_vgpu(each, best))
            for one in served:
                more.setdefault(one.name, []).append(best.name)
    problems = [*dict.fromkeys(unclear.values())]  # parts of the same size have the same problem
    empty = [one for one in profiles if (cards or others) and not unclear and not vgpus[one.name]]
    for one in empty:
        reasons = _reasons(one, cards, chosen[one.name], instances, others, shared, more.get(one.name, ()))
        problems.append("; ".join([f"profile {one.name} ({_asked(None, one)}) has no MIG device", *reasons]))
    return Assigned(
        vgpus={name: tuple(found) for name, found in vgpus.items()}, unclear=tuple(unclear), problems=tuple(problems)
    )


def satisfies(instance: Instance, profile: Profile) -> bool:
    """Whether a part satisfies a profile."""
    memory_mib, cores_percent = _need(instance.card, profile)
    named = not profile.select.mig or any(fnmatchcase(instance.profile, each) for each in profile.select.mig)
    if not named or _is_unknown(instance.card, profile):
        return False
    return instance.memory_mib >= memory_mib and instance.cores_percent >= cores_percent


class _Unclear(ValueError):
    """It is unclear whether the part is a vGPU, or of which profile."""


def _is_unknown(card: CardSize, profile: Profile) -> bool:
    """Whether a profile requires a share of a memory whose size is unknown."""
    return not card.memory_mib and bool(profile.memory_percent) and not profile.memory_mib


def _need(card: CardSize, profile: Profile) -> Need:
    return memory_mib_of(card, profile), profile.cores_percent


def _most_demanding(instance: Instance, profiles: Sequence[Profile]) -> Profile | None:
    """Return the profile that requires no less of either quantity than any other.

    Raises:
        _Unclear: there are several such profiles, or none; or the part cannot have the id of a vGPU.
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


def _reasons(
    profile: Profile,
    cards: Sequence[CardSize],
    chosen: set[str],
    instances: Sequence[Instance],
    others: Sequence[CardSize],
    shared: Sequence[Instance],
    more: Sequence[str],
) -> Iterator[str]:
    """Yield why a profile has no vGPU, with the sizes of the existing parts; most arguments are those of `assign`.

    *chosen* are the ids of the cards that the profile selects. *more* is, for each part that would satisfy the profile,
    the more demanding profile that has it.
    """
    own = [each for each in instances if each.card.id in chosen]
    too_small = Counter(each.profile for each in shared if each.card.id in chosen)
    if text := lacking_share(cards, profile.select):
        yield f"only cards with MIG count, and {text}"
    if more:
        owners = ", ".join(dict.fromkeys(more))
        yield f"{len(more)} that would serve it belong to profiles that ask for more: {owners}"
    elif own:
        yield f"there are {_counts(Counter(each.size for each in own))}"
    elif chosen and not too_small:
        yield f"the cards that it selects have none: {ids_text(sorted(chosen))}"
    if too_small:
        yield f"compute instances that are smaller than their GPU instance cannot be vGPUs: {_counts(too_small)}"
    if unknown := {each.card.id for each in own if _is_unknown(each.card, profile)}:
        yield f"the memory of the whole card is unknown: {ids_text(sorted(unknown))}"
    if without := [card.id for card in matching(others, profile.select)]:
        yield f"without MIG: {ids_text(without)}"


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {each}" for each, count in found.items())


def _vgpu(instance: Instance, profile: Profile) -> Vgpu:
    return Vgpu(
        id=vgpu_id(instance.id, profile.name, 0),
        card=instance.id,
        profile=profile.name,
        memory_mib=instance.memory_mib,
        cores_percent=instance.cores_percent,
    )
