"""Mistakes in profiles of MIG devices that are independent of the machine, and what may not be meant."""

from collections.abc import Iterator, Sequence

from criproxy.devices.classes.mig_names import (
    can_match,
    is_of_part,
    likely_name,
    most_memory_mib,
    without_part,
)
from criproxy.devices.classes.vgpu_profiles import MIG, Profile
from criproxy.devices.plugin.card_division import ALL_CARDS_PERCENT
from criproxy.placement.options.policy_options import Misfit

Path = tuple[str | int, ...]
_ID_PREFIX = "MIG-"


def mig_mistakes(path: Path, profile: Profile, before: Sequence[Profile]) -> Iterator[Misfit]:
    """Yield the mistakes of a profile that have to do with MIG.

    Args:
        path: the place of the profile.
        profile: the profile.
        before: the profiles that precede it in the list.
    """
    yield from _of_ids(path, profile)
    if not profile.is_mig:
        if profile.select.mig:
            text = "only a profile with enforce: [mig] takes MIG devices: add it, or leave mig out"
            yield Misfit((*path, "select", "mig"), text)
        return
    yield from _of_other_settings(path, profile)
    for number, pattern in enumerate(profile.select.mig):
        yield from _of_pattern((*path, "select", "mig", number), pattern, profile)
    if same := next((each for each in before if _asks_for_the_same(each, profile)), None):
        text = f"asks for the same MIG devices as {same.name}, but each can have only one profile"
        yield Misfit(path, f"{text}: leave one of them out, or select different MIG profiles or cards")


def mig_notes(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield notes about settings of profiles of MIG devices that may not be intended."""
    for profile in profiles:
        share = profile.select.share_percent
        if profile.is_mig and share != ALL_CARDS_PERCENT:
            yield (
                f"profile {profile.name}: select.share: {share}% is a share of the GPUs with MIG, rounded down: "
                "the profile takes all suitable MIG devices of these GPUs, and none of the other GPUs"
            )


def _of_ids(path: Path, profile: Profile) -> Iterator[Misfit]:
    for number, card in enumerate(profile.select.ids):
        if card.startswith(_ID_PREFIX):
            text = f"{card:.60} is a MIG device, but ids are those of GPUs: write the id of its GPU"
            yield Misfit((*path, "select", "ids", number), f"{text}, and its profile in select.mig")


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


def _asks_for_the_same(one: Profile, other: Profile) -> bool:
    needs = [(each.memory_mib, each.memory_percent, each.cores_percent, each.select) for each in (one, other)]
    return one.is_mig and one.kind == other.kind and needs[0] == needs[1]
