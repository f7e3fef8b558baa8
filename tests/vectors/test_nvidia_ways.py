"""What NVIDIA's plugin makes of a configuration, and which keys of a file have no effect on it."""

import pytest

from criproxy.deviceplugin.nvidia.options import Resources, Sharing
from criproxy.deviceplugin.nvidia.xids import Place
from tests.deviceplugin.nvidia.files import config_of
from tests.vectors.nvidia_ways import as_nvidia_uses, ignored_by_nvidia, place_in

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


def test_what_nvidia_drops_is_dropped() -> None:
    """Custom resources, names and choices of cards go; replicas and default names stay."""
    stock = as_nvidia_uses(config_of(TEXT))

    assert stock.resources == Resources()
    assert stock.sharing.time_slicing is not None
    assert [(entry.rename, entry.devices, entry.replicas) for entry in stock.sharing.time_slicing.resources] == [
        ("nvidia.com/gpu.shared", "all", 2),
        ("nvidia.com/mig-1g.5gb.shared", "all", 3),
    ]
    assert as_nvidia_uses(stock) == stock
    assert as_nvidia_uses(config_of("")).sharing == Sharing()


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
    assert ignored_by_nvidia(config_of(text, {"mps-root": "/a"})) == ignored


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
