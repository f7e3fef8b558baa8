"""Tries policies on many random cases, and keeps the smallest case that goes wrong with each."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

import criproxy
from criproxy.config.settings import find
from criproxy.placement.policies import Entry
from criproxy.placement.policies.api import Policy
from lab.properties.lives import Build, Case, File, Tally, cases, live


@dataclass(slots=True)
class Result:
    """What became of one policy."""

    policy: str
    tally: Tally = field(default_factory=Tally)
    finding: str = ""
    """The smallest case that goes wrong, and how; empty if none does."""

    def add(self, part: "Result") -> None:
        """Count what another process has tried, too."""
        self.tally.add(part.tally)
        self.finding = self.finding or part.finding


CHUNK = 250
"""Examples that hypothesis gets at a time: it remembers them all, and tens of thousands would fill a gigabyte."""


class Broken(AssertionError):
    """Something that must always be true is not."""

    def __init__(self, policy: str, sentence: str, case: Case) -> None:
        super().__init__(f"{sentence}\n{case}")
        self.policy = policy


@cache  # to look for it among all installed packages takes longer than most of its steps
def _entry(name: str) -> Entry:
    return find(name)


@cache
def load_all() -> None:
    """Import all our modules, so that a seed stands for the same cases in every process.

    Hypothesis tries constants of the modules that are loaded.
    """
    for module in walk_packages(criproxy.__path__, "criproxy."):
        if not module.name.endswith(".__main__"):
            import_module(module.name)


def registered(name: str, file: File) -> Policy:
    """The policy *name* as a policy *file* would build it."""
    entry = _entry(name)
    return entry.build(entry.options.model_validate(file))


def try_policies(
    names: Sequence[str],
    examples: int,
    seed: int,
    build: Build = registered,
    *,
    shrink: bool = True,
) -> list[Result]:
    """Run each policy through the same *examples* cases; one at which something goes wrong is tried no further.

    Args:
        names: policies; in a case they are changed for each other.
        examples: how many cases.
        seed: the same seed gives the same cases, as long as the constants in our modules stay the same.
        build: makes a policy; another than the registry for planted faults.
        shrink: look for the smallest case that goes wrong, which takes its time.
    """
    load_all()
    phases = list(Phase) if shrink else [Phase.generate]
    results = {name: Result(name) for name in names}
    left = list(names)
    for first in range(0, examples, CHUNK):
        effort = settings(max_examples=min(CHUNK, examples - first), phases=phases)
        while left and (broken := _find(results, left, seed + first, effort, build)):
            results[broken.policy].finding = str(broken)
            left.remove(broken.policy)  # and again without it: it hid what is behind
    return list(results.values())


def try_in_processes(
    names: Sequence[str], examples: int, seed: int, processes: int, told: Callable[[int, list[Result]], None]
) -> list[Result]:
    """As `try_policies`, in *processes*, each of which takes a chunk of the cases at a time; ends after a finding.

    *told* hears how many examples have been tried so far, and what has become of them.
    """
    load_all()  # before they are forked
    results, done = {name: Result(name) for name in names}, 0
    chunks = [(min(CHUNK, examples - first), seed + first) for first in range(0, examples, CHUNK)]
    with multiprocessing.get_context("fork").Pool(min(processes, len(chunks))) as pool:
        for (count, _), some in zip(chunks, pool.imap(partial(_try_chunk, names), chunks), strict=False):
            done += count
            for one in some:
                results[one.policy].add(one)
            told(done, list(results.values()))
            if any(one.finding for one in some):
                break
    return list(results.values())


def _try_chunk(names: Sequence[str], chunk: tuple[int, int]) -> list[Result]:
    return try_policies(names, *chunk)


def _find(results: dict[str, Result], left: Sequence[str], seed: int, effort: settings, build: Build) -> Broken | None:
    @hypothesis.seed(seed)
    @settings(
        effort,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(cases({name: _entry(name) for name in results}))
    def holds(case: Case) -> None:
        for name in left:
            _try(results[name], case, build)

    try:
        holds()
    except Broken as broken:
        return broken
    return None


def _try(result: Result, case: Case, build: Build) -> None:
    began = time.perf_counter()
    try:
        sentence = next(live(case, result.policy, result.tally, build), "")
    except Exception as error:  # noqa: BLE001 (whatever a policy raises is what we look for)
        sentence = repr(error)
    result.tally.seconds += time.perf_counter() - began
    if sentence:
        raise Broken(result.policy, sentence, case)
