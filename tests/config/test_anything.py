"""Whatever a policy file or one of NVIDIA's holds, it is loaded or refused with mistakes: nothing else is raised.

The sentence about a file of another program looks into values that nothing has checked before.
"""

import string
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from criproxy.cli import main
from criproxy.config import Settings, load
from criproxy.config.predecessors import instead_of_nvidia_file
from criproxy.deviceplugin.configuration.nvidia_file import Node, examine
from criproxy.deviceplugin.nvidia.options import PLACES
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from criproxy.errors import ConfigError
from criproxy.simulate.hosts import machine
from tests.config.files import write

Test = TypeVar("Test", bound=Callable[..., None])
MACHINE = machine()
WORDS = ["policy", "onError", "reservedCpus", "static", "none", "shared", "0-3", "0", "on", "0:30", "010", "&a", "*a"]
SIGNS = [": ", "\n", "\n  ", "- ", ", ", "---\n", "? ", *":[]{}'\"|>#!%\t"]
KEYS = (
    "kind apiVersion metadata name data config map devicePlugin nvidiaConfig policy version flags sharing resources "
    "limits nri pinCPU devices plugin nri-resource-policy nri-resource-policy.cfg logger image onError reservedCpus"
).split()
TEXTS = ["ConfigMap", "BalloonsPolicy", "v1", "config.nri/v1", "version: v1", "Active: static", "static", "abc", ""]
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.binary(max_size=4)
scalars = plain | st.sampled_from(TEXTS) | st.text(string.printable, max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | scalars, inner, max_size=3),
    max_leaves=8,
)
maps = values | st.fixed_dictionaries({}, optional={"map": values, "data": values, "nvidiaConfig": values})
groups = values | st.fixed_dictionaries({}, optional={"config": maps, "map": values, "name": values, "policy": values})
known = ("metadata", "policy", "version", "apiVersion", "resources", "nri", "devices", "nvidia-device-plugin")
first = {"kind": st.just("ConfigMap") | values, "data": values, "config": maps, "devicePlugin": groups}
files = st.fixed_dictionaries({}, optional={**first, **dict.fromkeys(known, groups)}) | st.dictionaries(
    st.sampled_from(KEYS) | scalars, values, max_size=4
)
EXAMPLES = (
    {"config": {"map": "abc"}},
    {"policy": "static", "config": {"map": ["abc"]}},
    {"devicePlugin": {"config": {"data": "x"}}},
    {"devicePlugin": {"config": {"data": 1.5}}},
    {"kind": "ConfigMap", "data": ["a"]},
    {"kind": "ConfigMap", "data": {1: "version: v1", None: 2}},
)


def with_examples(test: Test) -> Test:
    """Return *test* with the files that once raised something else."""
    for each in EXAMPLES:
        test = example(each)(test)
    return test


def dump(data: object) -> str:
    """Return *data* as YAML, whatever the types of its keys."""
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False)


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


@given(st.binary(max_size=200) | st.text(st.characters(codec="utf-8"), max_size=200))
@example(b"\xff\xfe\x00")
def test_bytes_and_characters(folder: Path, content: str | bytes) -> None:
    """Arbitrary ones."""
    load_quickly(folder, content)


@given(st.lists(st.sampled_from(WORDS + SIGNS), max_size=30).map("".join))
def test_pieces_of_policy_files(folder: Path, content: str) -> None:
    """What a keyboard with a will of its own would make of a policy file."""
    load_quickly(folder, content)


@given(st.sampled_from(["none", "static"]), st.sets(st.integers(1, 7), max_size=5))
def test_right_files_are_taken(folder: Path, policy: str, reserved: set[int]) -> None:
    """What is right is loaded, and says what was written."""
    settings = load_quickly(folder, yaml.safe_dump({"policy": policy, "reservedCpus": sorted(reserved)}))

    assert settings is not None
    assert (settings.common.policy, settings.options.reserved_cpus) == (policy, frozenset(reserved))


@given(values)
def test_what_is_right_instead_of_any_value(value: object) -> None:
    """A file of NVIDIA's may be a text, a list or a number, too."""
    assert isinstance(instead_of_nvidia_file(value, PLACES) if not isinstance(value, dict) else "", str)


@given(files)
@with_examples
def test_any_policy_file(folder: Path, data: dict[object, object]) -> None:
    """With the keys of other programs, and values of every type that YAML has."""
    load_quickly(folder, dump(data))


@given(files)
@with_examples
def test_any_file_of_nvidias_device_plugin(folder: Path, data: dict[object, object]) -> None:
    """It is used, or it has mistakes."""
    file = write(folder / "n.yaml", dump(data))

    found = examine(replace(NVIDIA_ALONE, nvidia_config=str(file)), Node(hostname="h1", group=""))

    assert (found.config is None) == bool(found.mistakes)


@given(files)
@with_examples
def test_a_check_of_any_file(folder: Path, data: dict[object, object]) -> None:
    """`criproxy check` ends with its own words and status, also where the file is named as NVIDIA's."""
    file = write(folder / "c.yaml", dump(data))
    ours = write(folder / "o.yaml", dump({"policy": "none", "devices": {"plugin": {"nvidiaConfig": str(file)}}}))

    result = CliRunner().invoke(main, ["check", "--no-machine", str(file), str(ours)])

    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1)
