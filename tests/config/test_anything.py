"""Whatever a policy file holds, it is loaded or refused with mistakes: nothing else is raised, and it is quick."""

import string
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from criproxy.config import Settings, load
from criproxy.errors import ConfigError
from criproxy.simulate.hosts import machine
from tests.config.files import write

MACHINE = machine()
WORDS = ["policy", "onError", "reservedCpus", "static", "none", "shared", "0-3", "0", "on", "0:30", "010", "&a", "*a"]
SIGNS = [": ", "\n", "\n  ", "- ", ", ", "---\n", "? ", *":[]{}'\"|>#!%\t"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return one folder for all files: each takes the place of the one before."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def load_quickly(folder: Path, content: str | bytes) -> Settings | None:
    """The settings, or None where they are refused in the right form."""
    file = write(folder / "p.yaml", content)
    begin_s = time.process_time()
    settings, refusal = None, ""
    try:
        settings = load(file, "node1", topology=MACHINE)
    except ConfigError as error:
        refusal = str(error)
    assert (settings is None) == bool(refusal)
    assert all(line.startswith(f"{file}:") and line.isprintable() for line in refusal.split("\n") if refusal)
    assert time.process_time() - begin_s < 2
    return settings


@given(st.binary(max_size=200))
@example(b"\xff\xfe\x00")
def test_bytes(folder: Path, content: bytes) -> None:
    """Arbitrary bytes."""
    load_quickly(folder, content)


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_text(folder: Path, content: str) -> None:
    """Arbitrary characters."""
    load_quickly(folder, content)


@given(st.lists(st.sampled_from(WORDS + SIGNS), max_size=30).map("".join))
def test_pieces_of_policy_files(folder: Path, content: str) -> None:
    """What a keyboard with a will of its own would make of a policy file."""
    load_quickly(folder, content)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(WORDS)
    | st.text(string.printable, max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.integers(), inner),
    max_leaves=15,
)
documents = st.dictionaries(st.sampled_from(["policy", "onError", "reservedCpus"]) | st.text(max_size=9), values)


@given(documents)
def test_any_yaml(folder: Path, content: object) -> None:
    """Arbitrary values of every type that YAML has, under the names of real options."""
    load_quickly(folder, yaml.safe_dump(content, allow_unicode=True))


@given(st.sampled_from(["none", "static"]), st.sets(st.integers(1, 7), max_size=5))
def test_right_files_are_taken(folder: Path, policy: str, reserved: set[int]) -> None:
    """What is right is loaded, and says what was written."""
    settings = load_quickly(folder, yaml.safe_dump({"policy": policy, "reservedCpus": sorted(reserved)}))

    assert settings is not None
    assert (settings.common.policy, settings.options.reserved_cpus) == (policy, frozenset(reserved))
