"""Files with the keys of other programs, and values of every type below them: a mistake or a configuration comes out.

The sentence about a file of another program looks into values that nothing has checked before.
"""

import tempfile
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
from criproxy.config import load
from criproxy.config.predecessors import instead_of_nvidia_file, recognised
from criproxy.deviceplugin.configuration.nvidia_file import Node, examine
from criproxy.deviceplugin.nvidia.options import PLACES
from criproxy.devices.plugin.plan import NVIDIA_ALONE
from criproxy.errors import ConfigError
from criproxy.simulate.hosts import machine
from tests.config.files import write

Test = TypeVar("Test", bound=Callable[..., None])
MACHINE = machine()
KEYS = (
    "kind apiVersion metadata name data config map devicePlugin nvidiaConfig policy version flags sharing resources "
    "limits nri pinCPU devices plugin nri-resource-policy nri-resource-policy.cfg logger image"
).split()
TEXTS = ["ConfigMap", "BalloonsPolicy", "v1", "config.nri/v1", "version: v1", "Active: static", "static", "abc", ""]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.sampled_from(TEXTS) | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | scalars, inner, max_size=3),
    max_leaves=6,
)
maps = values | st.fixed_dictionaries({}, optional={"map": values, "data": values, "nvidiaConfig": values})
groups = values | st.fixed_dictionaries({}, optional={"config": maps, "map": values, "name": values, "policy": values})
files = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.just("ConfigMap") | values,
        "data": values,
        "config": maps,
        "devicePlugin": groups,
        "metadata": groups,
        "policy": groups,
        **dict.fromkeys(("version", "apiVersion", "resources", "nri", "devices", "nvidia-device-plugin"), groups),
    },
) | st.dictionaries(st.sampled_from(KEYS) | scalars, values, max_size=4)
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


def with_texts(value: object) -> object:
    """Return *value* with keys as both of our parsers return them: as texts."""
    if isinstance(value, dict):
        return {str(key): with_texts(inner) for key, inner in value.items()}
    return [with_texts(inner) for inner in value] if isinstance(value, list) else value


@given(files)
@with_examples
def test_what_is_right_instead_of_any_file(data: dict[object, object]) -> None:
    """There is a sentence, or none."""
    parsed = with_texts(data)
    assert isinstance(parsed, dict)

    assert isinstance(recognised(parsed), str)
    assert isinstance(instead_of_nvidia_file(parsed, PLACES), str)


@given(values)
def test_what_is_right_instead_of_any_value(value: object) -> None:
    """A file of NVIDIA's may be a text, a list or a number, too."""
    assert isinstance(instead_of_nvidia_file(with_texts(value), PLACES), str)


@given(files)
@with_examples
def test_any_policy_file(folder: Path, data: dict[object, object]) -> None:
    """It is loaded, or all that is raised is a `ConfigError`."""
    file = write(folder / "p.yaml", dump(data))
    try:
        load(file, "node1", topology=MACHINE)
    except ConfigError as error:
        assert str(error).startswith(f"{file}:")  # noqa: PT017 (a file without mistakes is right, too)


@given(files)
@with_examples
def test_any_file_of_nvidias_device_plugin(folder: Path, data: dict[object, object]) -> None:
    """It is used, or it has mistakes."""
    file = write(folder / "n.yaml", dump(data))

    found = examine(replace(NVIDIA_ALONE, nvidia_config=str(file)), Node(hostname="h1", group=""), env={})

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
