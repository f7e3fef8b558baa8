"""What NVIDIA's plugin makes of a configuration, and which keys of a file have no effect on it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.file.unknown_keys import unknown_keys
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.durations import parse_duration
from criproxy.deviceplugin.nvidia.options import Sharing
from criproxy.deviceplugin.nvidia.xids import Place
from tests.vectors.nvidia_ways import (
    as_nvidia_uses,
    choose_as_config_manager,
    duration_text,
    ignored_by_nvidia,
    place_in,
)

TEXT = """
resources:
  gpus:
  - {pattern: '*', name: gpu}
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: gpu, rename: fast, devices: 1, replicas: 2}
    - {name: mig-1g.5gb, replicas: 3}
"""

REPLICAS = "; did you mean 'replicas'?"
FLAG = "; did you mean 'flags.plugin.passDeviceSpecs'?"


def test_what_nvidia_drops_is_dropped() -> None:
    """Custom resources, names and choices of cards go; replicas and default names stay."""
    stock = as_nvidia_uses(load(TEXT))

    assert stock.gpu_resources == ()
    assert stock.sharing.time_slicing is not None
    assert [(entry.rename, entry.devices, entry.replicas) for entry in stock.sharing.time_slicing.resources] == [
        ("nvidia.com/gpu.shared", "all", 2),
        ("nvidia.com/mig-1g.5gb.shared", "all", 3),
    ]
    assert as_nvidia_uses(stock) == stock
    assert as_nvidia_uses(load(None)).sharing == Sharing()


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}", [], id="shared-as-nvidia-does"),
        pytest.param(
            "sharing: {mps: {resources: [{name: gpu, rename: a, replicas: 2}]}}",
            ["sharing.mps.resources[].rename"],
            id="rename",
        ),
        pytest.param(
            TEXT,
            ["resources", "sharing.timeSlicing.resources[].rename", "sharing.timeSlicing.resources[].devices"],
            id="all",
        ),
    ],
)
def test_what_is_dropped_can_be_told(text: str, ignored: list[str]) -> None:
    """Who changes from one plugin to the other learns what changes."""
    assert ignored_by_nvidia(load(text, ["--mps-root=/a"])) == ignored


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        pytest.param(TEXT, [], id="all-known"),
        pytest.param("FLAGS: {MigStrategy: none, Plugin: {passdevicespecs: true}}", [], id="any-case"),
        pytest.param(
            "resources:\n  gpus: []\n  migs: []",
            ["line 3: NVIDIA's plugin does not know 'resources.migs' and ignores it; did you mean 'mig'?"],
            id="plural",
        ),
        pytest.param(
            "sharing:\n  mps:\n    resources:\n    - name: gpu\n      Replicas: 2",
            ["line 5: NVIDIA's plugin does not know 'sharing.mps.resources[0].Replicas' and ignores it" + REPLICAS],
            id="case-below-sharing",
        ),
        pytest.param(
            "flags:\n  passDeviceSpecs: true\nzzz: 1",
            [
                "line 2: NVIDIA's plugin does not know 'flags.passDeviceSpecs' and ignores it",
                "line 3: NVIDIA's plugin does not know 'zzz' and ignores it",
            ],
            id="wrong-section",
        ),
        pytest.param(
            "migStrategy: mixed\npassDeviceSpecs: true",
            [
                "line 1: NVIDIA's plugin does not know 'migStrategy' and ignores it; did you mean 'flags.migStrategy'?",
                "line 2: NVIDIA's plugin does not know 'passDeviceSpecs' and ignores it" + FLAG,
            ],
            id="as in values of its Helm chart",
        ),
        pytest.param("- 1", [], id="not-even-a-mapping"),
    ],
)
def test_keys_without_effect_are_found(text: str, sentences: list[str]) -> None:
    """A mistyped key is told with the one that it is most like."""
    assert [unknown.sentence for unknown in unknown_keys(text)] == sentences


ALL = ("named", "single", "empty")


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "expected"),
    [
        pytest.param("a b default", "a", "b", ALL, "a", id="label"),
        pytest.param("a b default", "", "b", ALL, "b", id="default-of-the-flag"),
        pytest.param("a b default", "", "", ALL, "default", id="named"),
        pytest.param("a", "", "", ALL, "a", id="single"),
        pytest.param("a b", "", "", ALL, "", id="empty"),
        pytest.param("a b default", "", "", ["empty", "named"], "", id="in-the-order-listed"),
        pytest.param("default", "", "", ["named", "bogus"], "default", id="unknown-behind-the-one-that-works"),
    ],
)
def test_config_manager_chooses(names: str, label: str, default: str, fallbacks: Sequence[str], expected: str) -> None:
    """The label, else the flag's default, else the first fallback that works."""
    assert choose_as_config_manager(names.split(), label, default, fallbacks).name == expected


@pytest.mark.parametrize(
    ("names", "label", "default", "fallbacks", "message"),
    [
        pytest.param("", "a", "", ALL, "no configuration files available", id="none"),
        pytest.param("a", "b", "a", ALL, "specified config b does not exist", id="label-of-no-file"),
        pytest.param("a", "", "b", ALL, "specified config  does not exist", id="default-of-no-file"),
        pytest.param("a b", "", "", ["single"], "no config was set, no default was provided, and all", id="none-works"),
        pytest.param("a b", "", "", ["named", "bogus"], "unknown fallback strategy: bogus", id="unknown"),
    ],
)
def test_config_manager_refuses(names: str, label: str, default: str, fallbacks: Sequence[str], message: str) -> None:
    """The words are NVIDIA's, its missing name included."""
    with pytest.raises(PluginConfigError) as error:
        choose_as_config_manager(names.split(), label, default, fallbacks)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        pytest.param(0, "0s", id="zero"),
        pytest.param(5, "5ns", id="nanoseconds"),
        pytest.param(1_500, "1.5\u00b5s", id="microseconds"),
        pytest.param(250_000_000, "250ms", id="milliseconds"),
        pytest.param(30_000_000_000, "30s", id="seconds"),
        pytest.param(60_000_000_000, "1m0s", id="minute"),
        pytest.param(259_200_000_000_000, "72h0m0s", id="days"),
        pytest.param(-1_500_000_000, "-1.5s", id="negative"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    """Hours are the largest unit, and zero is in seconds."""
    assert duration_text(nanoseconds) == text


@given(st.integers(-(2**52), 2**52))
def test_what_is_written_is_read_back(nanoseconds: int) -> None:
    """The text of a duration is that duration."""
    assert parse_duration(duration_text(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [
        pytest.param("MIG-GPU-b8ea3855/1/0", Place("GPU-b8ea3855", 1, 0), id="old"),
        pytest.param("MIG-b8ea3855-276c-5e52-8a3d-4a4d6f5c9f0e", None, id="new"),
        pytest.param("MIG-GPU-b8ea3855/1", None, id="short"),
        pytest.param("GPU-b8ea3855", None, id="whole"),
    ],
)
def test_what_a_uuid_says(uuid: str, expected: Place | None) -> None:
    """Old UUIDs of MIG devices say where they are."""
    assert place_in(uuid) == expected
