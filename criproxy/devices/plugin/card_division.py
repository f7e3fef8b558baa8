"""Divides cards into vGPUs: which profiles apply to which card, and how many vGPUs of each fit.

A card is divided in the same way as long as the policy file and the machine stay the same. Profiles with a fixed count
come first; one profile with ``count: auto`` gets the rest, which allows this number of vGPUs::

    min(floor(memory left / its memory), floor(cores left / its cores))

(devices.md H.2). Nothing is rounded up: the vGPUs of a card never have more memory or cores than the card.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from criproxy.devices.classes.cards import ids_text
from criproxy.devices.classes.vgpu_profiles import CardChoice, CardSize, Cut, Profile, Vgpu, vgpu_id
from criproxy.model.text.amounts import counted

ALL_CORES_PERCENT = ALL_MEMORY_PERCENT = ALL_CARDS_PERCENT = 100


class _Contradiction(ValueError):
    """The profiles cannot all apply to one card."""


class _Undecided(_Contradiction):
    """Whether the profiles can apply depends on the memory of the card, which is unknown."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The vGPUs of one profile on one card."""

    profile: Profile
    memory_mib: int
    count: int

    @property
    def text(self) -> str:
        """A description for messages."""
        share = self.profile.memory_percent
        one = [f"{self.memory_mib} MiB"] if self.memory_mib else [f"{share} % of the memory"] if share else []
        one += [f"{self.profile.cores_percent} % of the cores"] if self.profile.cores_percent else []
        return f"{self.count} x {self.profile.name} ({' and '.join(one)})"


def cut(cards: Sequence[CardSize], profiles: Sequence[Profile], apart: Sequence[CardSize] = ()) -> Cut:
    """Divide the *cards* of one class by its *profiles*; the result contains the problems, none is raised.

    Args:
        cards: the cards, including those that existed before.
        profiles: the profiles of the class, without those of MIG devices.
        apart: the cards that cannot be divided because they have MIG; they may also be in *cards*.
    """
    ids = {card.id for card in apart}
    chosen = {each.name: [card.id for card in choose(cards, each.select) if card.id not in ids] for each in profiles}
    vgpus: dict[str, list[Vgpu]] = {profile.name: [] for profile in profiles}
    empty = [profile for profile in profiles if (cards or apart) and not chosen[profile.name]]
    problems = [_nothing(profile, cards, apart) for profile in empty]
    whole: list[str] = []
    undecided: list[str] = []
    for card in cards:
        own = [profile for profile in profiles if card.id in chosen[profile.name]]
        if not own:
            whole.append(card.id)
            continue
        try:
            parts = _parts_of(card, own)
        except _Contradiction as error:
            problems.append(str(error))
            undecided += [str(error)] if isinstance(error, _Undecided) else []
            continue
        for each in parts:
            vgpus[each.profile.name] += _vgpus(card, each)
    return Cut(
        vgpus={name: tuple(found) for name, found in vgpus.items()},
        whole=tuple(whole),
        problems=tuple(problems),
        undecided=tuple(undecided),
    )


def choose(cards: Sequence[CardSize], choice: CardChoice) -> Sequence[CardSize]:
    """Return those of *cards* that *choice* selects, in order."""
    found = matching(cards, choice)
    return found[: _of_share(len(found), choice)]


def matching(cards: Sequence[CardSize], choice: CardChoice) -> Sequence[CardSize]:
    """Return those of *cards* that meet the conditions of *choice*, whatever its share, in order."""
    return [
        card
        for card in cards
        if (not choice.models or any(fnmatchcase(_word(card.model), _word(pattern)) for pattern in choice.models))
        and (not choice.indexes or card.index in choice.indexes)
        and (not choice.ids or card.id in choice.ids)
    ]


def lacking_share(cards: Sequence[CardSize], choice: CardChoice) -> str:
    """Return why the share of *choice* is none of the *cards* that meet its conditions; empty if it is at least one."""
    count = len(matching(cards, choice))
    if not count or _of_share(count, choice):
        return ""
    return f"share: {choice.share_percent}% of {counted(count, 'card')} is less than one card"


def _of_share(count: int, choice: CardChoice) -> int:
    return count * choice.share_percent // ALL_CARDS_PERCENT


def _word(model: str) -> str:
    """Return the model as labels contain it, because users copy it from there."""
    return model.replace(" ", "-")


def _nothing(profile: Profile, cards: Sequence[CardSize], apart: Sequence[CardSize]) -> str:
    """Return why a profile divides no card."""
    if text := lacking_share(cards, profile.select):
        return f"profile {profile.name}: {text}"
    text = f"profile {profile.name}: select matches no card of class {profile.kind}"
    if found := matching(apart, profile.select):
        ids = ids_text([card.id for card in found])
        text += f" without MIG; with MIG: {ids}, whose MIG devices become vGPUs with enforce: [mig]"
    return text


def _parts_of(card: CardSize, profiles: Sequence[Profile]) -> list[_Parts]:
    """Return how many vGPUs of each profile *card* has.

    Raises:
        _Contradiction: the profiles do not fit, or several have ``count: auto``.
        _Undecided: whether they fit is unknown.
    """
    fixed = [_Parts(each, memory_mib_of(card, each), each.count) for each in profiles if each.count is not None]
    rest = [each for each in profiles if each.count is None]
    if len(rest) > 1:
        names = " and ".join(each.name for each in rest)
        raise _Contradiction(f"card {card.id}: the profiles {names} have count: auto; give all but one a number")
    _check_sums(card, fixed)
    parts = [*fixed, *(_fitting(card, fixed, each) for each in rest)]
    if none := next((each for each in parts if each.count == 0), None):
        raise _Contradiction(f"card {card.id}: no {none.profile.name} fits on it; {_left(card, fixed, none)}")
    if not card.memory_mib:
        _check_decided(card, profiles)
    return parts


def memory_mib_of(card: CardSize, profile: Profile) -> int:
    """Return the memory quota of a profile on a card; 0 if it has none, or the memory of the card is unknown."""
    return profile.memory_mib or card.memory_mib * profile.memory_percent // 100


def _check_decided(card: CardSize, profiles: Sequence[Profile]) -> None:
    """Raise `_Undecided` if the memory of *card* is unknown, and the profiles cannot be computed without it."""
    why = f"card {card.id}: its memory is unknown"
    for each in profiles:
        if each.memory_percent and not each.memory_mib:
            raise _Undecided(f"{why}, so {each.name} cannot have {each.memory_percent} % of it; give memory in MiB")
        if each.memory_mib and each.count is None:
            raise _Undecided(f"{why}, so count: auto of {each.name} cannot be computed; give a number")


def _used(parts: Sequence[_Parts]) -> tuple[int, int]:
    """Return the used memory in MiB, and the used cores in percent."""
    memory_mib = sum(each.count * each.memory_mib for each in parts)
    return memory_mib, sum(each.count * each.profile.cores_percent for each in parts)


def _shares_percent(parts: Sequence[_Parts]) -> int:
    """Return the sum of the memory quotas that are shares, in percent."""
    return sum(each.count * each.profile.memory_percent for each in parts if not each.profile.memory_mib)


def _check_sums(card: CardSize, parts: Sequence[_Parts]) -> None:
    memory_mib, cores_percent = _used(parts)
    if card.memory_mib and memory_mib > card.memory_mib:
        raise _Contradiction(f"card {card.id} has {card.memory_mib} MiB, but {_sum(parts)} need {memory_mib} MiB")
    if (shares_percent := _shares_percent(parts)) > ALL_MEMORY_PERCENT:
        raise _Contradiction(f"card {card.id}: {_sum(parts)} need {shares_percent} % of its memory")
    if cores_percent > ALL_CORES_PERCENT:
        raise _Contradiction(f"card {card.id}: {_sum(parts)} need {cores_percent} % of its cores")


def _sum(parts: Sequence[_Parts]) -> str:
    return " + ".join(each.text for each in parts)


def _fitting(card: CardSize, fixed: Sequence[_Parts], profile: Profile) -> _Parts:
    """Return the vGPUs of a profile with ``count: auto`` beside *fixed*; the maximum if the memory is unknown."""
    each_mib = memory_mib_of(card, profile)
    used_mib, used_percent = _used(fixed)
    bounds = [(card.memory_mib - used_mib) // each_mib] if each_mib and card.memory_mib else []
    if not card.memory_mib and not profile.memory_mib and profile.memory_percent:
        bounds += [(ALL_MEMORY_PERCENT - _shares_percent(fixed)) // profile.memory_percent]
    bounds += [(ALL_CORES_PERCENT - used_percent) // profile.cores_percent] if profile.cores_percent else []
    return _Parts(profile, each_mib, min(bounds, default=1))


def _left(card: CardSize, fixed: Sequence[_Parts], wanted: _Parts) -> str:
    used_mib, used_percent = _used(fixed)
    memory = f"{card.memory_mib - used_mib} MiB of {card.memory_mib}" if card.memory_mib else "unknown memory"
    if not card.memory_mib and wanted.profile.memory_percent:
        memory = f"at most {ALL_MEMORY_PERCENT - _shares_percent(fixed)} % of its memory"
    left = f"{memory} and {ALL_CORES_PERCENT - used_percent} % of its cores are left"
    needs = _Parts(wanted.profile, wanted.memory_mib, 1)
    return f"{left}, but it needs {needs.text}"


def _vgpus(card: CardSize, parts: _Parts) -> Iterator[Vgpu]:
    name = parts.profile.name
    for number in range(parts.count):
        yield Vgpu(
            id=vgpu_id(card.id, name, number),
            card=card.id,
            profile=name,
            memory_mib=parts.memory_mib,
            cores_percent=parts.profile.cores_percent,
        )
