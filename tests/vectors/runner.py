"""Reads the cases of a directory of vectors and has each judged by the module for its kind.

A case passes if criproxy gives what it expects. Where criproxy differs on purpose, `deliberate` says so: such a case
passes if criproxy gives what stands there instead, and fails if criproxy gives NVIDIA's answer after all.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.vectors.deliberate import DELIBERATE, Difference

Case = Mapping[str, Any]
Judge = Callable[[Case, Case], str | None]
"""Of a case and its whole document: None if it passes, else what differs, in one line."""
Rule = Callable[[Case, Case], Difference | None]
"""Which difference on purpose a case that is not listed shows; a module may have one as ``by_rule``."""

MODULES = {
    "config": ("plugin", "gfd", "select"),
    "resources": ("device-map", "pattern", "mig-name", "mps-daemon"),
    "allocate": ("allocate",),
    "preferred": ("aligned", "greedy"),
    "labels": ("labels", "sanitise", "output", "timestamp", "init"),
    "health": ("xid-filter", "event", "fact"),
}
"""Which module judges which kinds; a case without a kind is one of Allocate."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BY_KIND = {kind: module for module, kinds in MODULES.items() for kind in kinds}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one case."""

    file: str
    id: str
    wrong: str | None = None
    """What differs from what was expected; None: the case passes."""
    note: str = ""
    """Why it passes although criproxy does not answer like NVIDIA."""

    @property
    def line(self) -> str:
        """One line for people."""
        if self.wrong is not None:
            return f"FAIL {self.file} {self.id}: {' '.join(self.wrong.split())}"
        return f"ok   {self.file} {self.id}" + (f" (on purpose: {self.note})" if self.note else "")


def verdicts(directory: Path, pattern: str = "*.yaml") -> Iterator[Verdict]:
    """Judge every case of every file in *directory* that *pattern* names, in their order."""
    for path in sorted(directory.glob(pattern)):
        whole = yaml.load(path.read_text(), Loader=LOADER)  # noqa: S506 (a safe one)
        for case in whole["cases"]:
            yield _verdict(path.name, case, whole)


def module_of(case: Case) -> str | None:
    """The name of the module that judges *case*; None if there is none for its kind."""
    return _BY_KIND.get(case.get("kind", "allocate"))


def _verdict(file: str, case: Case, whole: Case) -> Verdict:
    name = module_of(case)
    if name is None:
        return Verdict(file, case["id"], f"nobody judges the kind {case['kind']!r}")
    if importlib.util.find_spec(f"tests.vectors.{name}") is None:
        return Verdict(file, case["id"], f"tests/vectors/{name}.py does not exist")
    module = importlib.import_module(f"tests.vectors.{name}")
    try:
        listed = DELIBERATE.get(f"{name}:{case['id']}")
        wrong, note = judged(module.judge, case, whole, listed, getattr(module, "by_rule", None))
    except Exception as error:  # noqa: BLE001 (a defect in one case must not hide the others)
        wrong, note = f"{type(error).__name__}: {error}", ""
    return Verdict(file, case["id"], wrong, note)


def judged(
    judge: Judge, case: Case, whole: Case, listed: Difference | None, by_rule: Rule | None = None
) -> tuple[str | None, str]:
    """What is wrong with *case*, and why it passes if not as NVIDIA answers."""
    as_nvidia = judge(case, whole)
    if listed is None and as_nvidia is None:
        return None, ""
    if as_nvidia is None:
        return "it is listed as a difference on purpose, but criproxy answers like NVIDIA", ""
    difference = listed or (by_rule(case, whole) if by_rule else None)
    if difference is None and "expect_if_honoured" in case:
        difference = Difference("what NVIDIA parses but ignores works")
    if difference is None:
        return as_nvidia, ""
    instead = difference.expect if difference.expect is not None else case.get("expect_if_honoured")
    if instead is None:
        return "the list of differences does not say what is expected instead", ""
    return judge({**case, "expect": instead}, whole), difference.reason
