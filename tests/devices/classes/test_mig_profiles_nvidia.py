"""The names of MIG profiles, and the nodes of MIG devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import mig_minors, mig_paths
from criproxy.devices.classes.mig_profiles import compute_slices, is_whole_instance, mixed_resource, profile_name
from tests.deviceplugin.nvidia.machines import MIG_MINORS, a100, minors


@pytest.mark.parametrize(
    ("device_mib", "mig_mib", "slices", "attribute", "expected"),
    [
        pytest.param(40960, 4864, (1, 1), "", "1g.5gb", id="an-eighth"),
        pytest.param(40960, 20096, (3, 1), "", "1c.3g.20gb", id="part-of-an-instance"),
        pytest.param(97887, 24192, (1, 1), "-me", "1g.24gb-me", id="an-attribute"),
        pytest.param(143771, 71424, (3, 3), "", "3g.71gb", id="a-half-is-rounded-up"),
        pytest.param(183359, 22800, (1, 1), "", "1g.23gb", id="a-half-is-rounded-up-also-after-an-even-number"),
        pytest.param(81559, 80896, (7, 7), "", "7g.80gb", id="memory-of-a-gpu-is-rounded-up"),
        pytest.param(0, 9856, (1, 1), "", "1g.10gb", id="memory-of-a-gpu-is-unknown"),
        pytest.param(0, 0, (1, 1), "", "1g.0gb", id="all-memory-is-unknown"),
    ],
)
def test_names(device_mib: int, mig_mib: int, slices: tuple[int, int], attribute: str, expected: str) -> None:
    """The size in a name is in eighths of the GPU, and rounded as on paper."""
    gi, ci = slices
    sizes = {"device_memory_mib": device_mib, "mig_memory_mib": mig_mib}

    assert profile_name(**sizes, gi_slices=gi, ci_slices=ci, attribute=attribute) == expected


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        pytest.param("1g.5gb", "nvidia.com/mig-1g.5gb", id="plain"),
        pytest.param("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all", id="plus"),
        pytest.param("1g.24gb-me", "nvidia.com/mig-1g.24gb-me", id="minus"),
        pytest.param("1c.3g.20gb", None, id="part"),
        pytest.param("3c.3g.20gb", "nvidia.com/mig-3c.3g.20gb", id="all-slices-named"),
        pytest.param("unknown", None, id="not-a-profile"),
    ],
)
def test_mixed_resources(profile: str, expected: str | None) -> None:
    """A profile is a resource of its own, unless it is a part of an instance."""
    assert mixed_resource(profile) == expected
    assert is_whole_instance(profile) is (expected is not None)


@pytest.mark.parametrize(
    ("profile", "slices"),
    [
        pytest.param("1g.5gb", 1, id="plain"),
        pytest.param("7g.80gb", 7, id="all"),
        pytest.param("2g.24gb+me", 2, id="with-media-engines"),
        pytest.param("1c.3g.20gb", 1, id="part"),
        pytest.param("unknown", 0, id="not-a-profile"),
    ],
)
def test_compute_slices(profile: str, slices: int) -> None:
    """The name of a profile tells how many slices compute."""
    assert compute_slices(profile) == slices


def test_capability_nodes() -> None:
    """The driver's list of capabilities says which nodes a MIG device needs; other lines of it are left aside."""
    gpu = a100(0, "1g.5gb", "1g.5gb", "1g.5gb")

    assert mig_minors(MIG_MINORS)[3, 1, 1] == 419
    assert len(minors()) == 6
    assert [mig_paths(gpu, device, minors()) for device in gpu.mig] == [
        ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"),
        ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"),
        ("/dev/nvidia0",),
    ]


@given(st.text())
def test_any_text_as_list_of_capabilities(text: str) -> None:
    """A list that cannot be understood is an empty one."""
    assert all(isinstance(number, int) for number in mig_minors(text).values())
