"""Which files shall have which values: interrupts, frequencies, idle states. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from criproxy.controls.machine.facts import IRQS, CpuFacts, Machine, Uncore
from criproxy.controls.machine.kernel import Affinity, Companion, Text, Value
from criproxy.host.files import ids_of
from criproxy.model.controls import CpuTuning, Desired, Irqs, Trouble
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered

_WILD = re.compile(r"[*?[]")
_FREQUENCIES = (("min_frequency", "scaling_min_freq", "minFreq"), ("max_frequency", "scaling_max_freq", "maxFreq"))
_NO_TUNING = CpuTuning()


@dataclass(slots=True)
class Layout:
    """The files, and what cannot be done."""

    files: dict[str, Value] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    claimed: set[int] = field(default_factory=set)
    """The interrupts that belong to some CPUs, for irqbalance."""


@dataclass(frozen=True, slots=True)
class _Class:
    """A class that has CPUs and sets something."""

    name: str
    tuning: CpuTuning
    cpus: CpuSet


def needed_cpus(desired: Desired) -> CpuSet:
    """Return the CPUs whose files `layout` must know."""
    return frozenset[int]().union(*(each.cpus for each in _classes(desired)))


def needs_uncore(desired: Desired) -> bool:
    """Whether `layout` must know the uncore frequencies."""
    return any(each.uncore_min_khz or each.uncore_max_khz for each in desired.tunings.values())


def layout(desired: Desired, machine: Machine) -> Layout:
    """Return the files of everything that is not a container's."""
    found = Layout()
    classes = [*_classes(desired)]
    for text in _invalid(desired):
        _add(found, text)
    for one, cpus in _policies(classes, machine, found):
        _frequencies(one, cpus, machine.cpus[min(cpus)], found)
    for one in classes:
        _idle_states(one, machine, found)
    if needs_uncore(desired):
        _uncore(classes, machine, found)
    if desired.irqs is not None:
        _irqs(desired.irqs, machine, found)
    return found


def _classes(desired: Desired) -> Iterator[_Class]:
    for name, text in sorted(desired.cpus.items()):
        tuning, cpus = desired.tunings.get(name, _NO_TUNING), ids_of(text)
        if cpus and tuning != _NO_TUNING:
            yield _Class(name, tuning, cpus)


def _invalid(desired: Desired) -> Iterator[str]:
    for name, text in sorted(desired.cpus.items()):
        if ids_of(text) is None:
            yield f"class {name}: {text!r:.60} is no set of CPUs"
    irqs = desired.irqs
    texts = [] if irqs is None else [irqs.cpus, *(claim.cpus for claim in irqs.claims)]
    yield from (f"interrupts: {text!r:.60} is no set of CPUs, or empty" for text in texts if not ids_of(text))


# ---------------------------------------------------------------- frequencies


def _policies(classes: Sequence[_Class], machine: Machine, found: Layout) -> Iterator[tuple[_Class, CpuSet]]:
    """Yield the class of each frequency policy, with the CPUs that share it.

    Of several classes, the one with the highest frequencies counts, as it does in the hardware.
    """
    of_policy: dict[str, dict[str, _Class]] = {}
    for one in classes:
        known = one.cpus & machine.cpus.keys() if _sets_frequency(one.tuning) else frozenset()
        for cpu in known:
            if policy := machine.cpus[cpu].policy:
                of_policy.setdefault(policy, {})[one.name] = one
        if without := frozenset(cpu for cpu in known if not machine.cpus[cpu].policy):
            why = "the kernel has no frequencies there (no cpufreq driver)"
            _add(found, f"class {one.name}, {numbered('CPU', without)}: {why}")
    for policy, own in sorted(of_policy.items()):
        cpus = frozenset(cpu for cpu, facts in machine.cpus.items() if facts.policy == policy)
        facts = machine.cpus[min(cpus)]
        shared = facts.policy_cpus | cpus
        first, *others = sorted(own.values(), key=lambda each: _highest(each.tuning, facts), reverse=True)
        text = f"{numbered('CPU', shared)} share one frequency"
        if others:
            _add(found, f"{text}, and have the classes {', '.join(sorted(own))}: that of {first.name} is set")
        elif strangers := shared - first.cpus:
            _add(found, f"{text}: that of class {first.name} is also set for {format_cpuset(strangers)}")
        yield first, cpus


def _sets_frequency(tuning: CpuTuning) -> bool:
    return bool(tuning.min_frequency or tuning.max_frequency or tuning.governor or tuning.energy_preference)


def _highest(tuning: CpuTuning, facts: CpuFacts) -> tuple[int, int, str]:
    limits = [_khz(text, facts) or 0 for text in (tuning.max_frequency, tuning.min_frequency)]
    return limits[0], limits[1], tuning.governor


def _khz(text: str, facts: CpuFacts) -> int | None:
    """Return the frequency that *text* means on a CPU; None if it is not known there, or *text* is none."""
    named = {"min": facts.min_khz, "base": facts.base_khz, "turbo": facts.max_khz}
    return named.get(text, int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0) or None


def _frequencies(one: _Class, cpus: CpuSet, facts: CpuFacts, found: Layout) -> None:
    """Add the files of one frequency policy."""
    tuning, where = one.tuning, f"class {one.name}, {numbered('CPU', cpus)}"
    limits: dict[str, int] = {}
    for attribute, file, name in _FREQUENCIES:
        if not (text := getattr(tuning, attribute)):
            continue
        if (khz := _khz(text, facts)) is None:
            _add(found, f"{where}: {name} {text!r:.40} is not known there: name a frequency")
            continue
        if facts.max_khz and not facts.min_khz <= khz <= facts.max_khz:
            possible = f"{facts.min_khz} to {facts.max_khz} kHz"
            _add(found, f"{where}: {name} {khz} kHz is not possible there ({possible}); the nearest is set")
            khz = min(max(khz, facts.min_khz), facts.max_khz)
        limits[file] = khz
    if limits.get("scaling_min_freq", 0) > limits.get("scaling_max_freq", 1 << 62):
        _add(found, f"{where}: minFreq is above maxFreq, so neither is set")
        limits = {}
    for file, khz in limits.items():
        found.files[f"{facts.policy}/{file}"] = Text(str(khz))
    _one_of(tuning.governor, facts.governors, f"{where}: governor", f"{facts.policy}/scaling_governor", found)
    preference = tuning.energy_preference
    choice = (*facts.preferences, preference) if facts.preferences and _is_byte(preference) else facts.preferences
    path = f"{facts.policy}/energy_performance_preference"
    if tuning.governor and facts.preferences:
        found.files[path] = Companion()
    _one_of(preference, choice, f"{where}: energyPerformancePreference", path, found)


def _is_byte(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255


def _one_of(wanted: str, possible: Sequence[str], what: str, path: str, found: Layout) -> None:
    if wanted and wanted not in possible:
        there = f"it has {', '.join(possible)}" if possible else "its driver has none"
        _add(found, f"{what} {wanted!r:.40} is not possible there: {there}")
    elif wanted:
        found.files[path] = Text(wanted, loose=wanted.isdigit())


def _uncore(classes: Sequence[_Class], machine: Machine, found: Layout) -> None:
    """Add uncore limits: for each die, the highest of its classes."""
    if not machine.uncores:
        _add(found, "this machine has no uncore frequencies (the driver intel_uncore_frequency)")
    for uncore in machine.uncores:
        present = [one.tuning for one in classes if any(_is_on(uncore, machine.cpus.get(cpu)) for cpu in one.cpus)]
        for name, attribute in (("min_freq_khz", "uncore_min_khz"), ("max_freq_khz", "uncore_max_khz")):
            limits = [khz for tuning in present if (khz := getattr(tuning, attribute)) is not None]
            if limits:
                found.files[f"{uncore.path}/{name}"] = Text(str(max(limits)))


def _is_on(uncore: Uncore, cpu: CpuFacts | None) -> bool:
    return cpu is not None and cpu.package == uncore.package and uncore.die in (None, cpu.die)


# ---------------------------------------------------------------- idle states


def _idle_states(one: _Class, machine: Machine, found: Layout) -> None:
    tuning, names = one.tuning, {name.lower(): name for name in one.tuning.disabled_c_states}
    if not names and tuning.max_latency_us is None:
        return
    missing: dict[str, set[int]] = {}
    for cpu in sorted(one.cpus & machine.cpus.keys()):
        states = machine.cpus[cpu].states
        for state in states:
            too_slow = tuning.max_latency_us is not None and state.latency_us > tuning.max_latency_us
            if too_slow or state.name.lower() in names:
                found.files[f"{state.path}/disable"] = Text("1")
        for name in names.keys() - {state.name.lower() for state in states}:
            missing.setdefault(names[name], set()).add(cpu)
    for name, cpus in sorted(missing.items()):
        states = machine.cpus[min(cpus)].states
        there = f"it has {', '.join(state.name for state in states)}" if states else "it has none"
        where = f"class {one.name}, {numbered('CPU', frozenset(cpus))}"
        _add(found, f"{where}: there is no idle state {name!r:.40}; {there}")


# ---------------------------------------------------------------- interrupts


def _irqs(irqs: Irqs, machine: Machine, found: Layout) -> None:
    """Add the affinities of all interrupts, and of new ones."""
    others, claimed = ids_of(irqs.cpus), [ids_of(claim.cpus) for claim in irqs.claims]
    if not others:
        return
    claims, controllable = _Globs([claim.names for claim in irqs.claims]), _Globs([irqs.controllable])
    found.files[f"{machine.root}/{IRQS}/default_smp_affinity"] = Affinity(others, mask=True, immovable_errnos=())
    for number, names in machine.irqs.items():
        if controllable.first(number, names) is None:
            continue
        index = claims.first(number, names)
        cpus = others if index is None else claimed[index]
        if index is not None:
            found.claimed.add(number)
        if cpus:
            found.files[f"{machine.root}/{IRQS}/{number}/smp_affinity_list"] = Affinity(cpus)


class _Globs:
    """Lists of globs; thousands of names are compared with them."""

    def __init__(self, lists: Iterable[Sequence[str]]) -> None:
        self._words: dict[str, int] = {}
        self._wild: list[tuple[int, re.Pattern[str]]] = []
        for index, globs in enumerate(lists):
            for word in globs:
                if not _WILD.search(word):
                    self._words.setdefault(word, index)
            if wild := [translate(word) for word in globs if _WILD.search(word)]:
                self._wild.append((index, re.compile("|".join(wild))))

    def first(self, number: int, names: Sequence[str]) -> int | None:
        """Return the index of the first list that has an interrupt; None if none has."""
        words = (str(number), *names)
        found = [self._words[word] for word in words if word in self._words]
        found += [index for index, pattern in self._wild if any(map(pattern.fullmatch, words))][:1]
        return min(found, default=None)


def _add(found: Layout, text: str) -> None:
    found.troubles.append(Trouble(what="cpus", text=text))
