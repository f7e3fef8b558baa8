"""The lock of libraries, with which everybody installs the same ones."""

import re
from importlib.metadata import distributions

from tests.conftest import ROOT

LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)(\[[a-z0-9,_-]+\])?==", re.MULTILINE)
WITH_EXTRA = re.compile(r"^([A-Za-z0-9_.-]+)\s*(\[[a-z0-9,_-]+\])")


def _name(text: str) -> str:
    return re.sub("[-_.]+", "-", text).lower()


def test_extras_of_dependencies_are_pinned() -> None:
    """Pip takes ``name[extra]`` of a locked library from its newest release, and fails, unless the lock names both."""
    locked = {_name(name): extras for name, extras in LOCKED.findall((ROOT / ".ci/requirements.lock").read_text())}
    needed = {
        (_name(found[1]), found[2])
        for each in distributions()
        if _name(each.metadata["Name"]) in locked
        for text in each.requires or ()
        if "extra ==" not in text and (found := WITH_EXTRA.match(text))
    }
    assert ("coverage", "[toml]") in needed
    assert {(name, extras) for name, extras in needed if locked.get(name) != extras} == set()
