"""What NVIDIA's plugin makes of a configuration, and which keys of a file have no effect on it."""

import pytest

from criproxy.deviceplugin.nvidia.file.load import load
from criproxy.deviceplugin.nvidia.file.unknown_keys import unknown_keys
from criproxy.deviceplugin.nvidia.options import Sharing
from criproxy.deviceplugin.nvidia.stock_plugin import as_nvidia_uses, ignored_by_nvidia

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
