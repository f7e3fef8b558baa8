"""The names of MIG profiles, and the nodes of MIG devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import mig_minors, mig_paths
from criproxy.devices.classes.mig_profiles import compute_slices, is_whole_instance, mixed_resource, profile_name
from tests.deviceplugin.nvidia.machines import MIG_MINORS, a100, minors


@pytest.mark.parametrize(("mig_mib", "expected"), [(9856, "1g.10gb"), (0, "1g.0gb")], ids=["of-a-gpu", "of-all"])
def test_names_where_memory_is_unknown(mig_mib: int, expected: str) -> None:
    """The size in a name is that of the MIG device then; the vectors have all others."""
    assert profile_name(device_memory_mib=0, mig_memory_mib=mig_mib, gi_slices=1, ci_slices=1) == expected


@pytest.mark.parametrize(
    ("profile", "resource", "slices"),
    [
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all", 1),
        ("7g.80gb", "nvidia.com/mig-7g.80gb", 7),
        ("1c.3g.20gb", None, 1),
        ("3c.3g.20gb", "nvidia.com/mig-3c.3g.20gb", 3),
        ("unknown", None, 0),
    ],
)
def test_what_a_name_tells(profile: str, resource: str | None, slices: int) -> None:
    """A profile is a resource of its own, unless it is a part of an instance; and how many slices compute."""
    assert mixed_resource(profile) == resource
    assert is_whole_instance(profile) is (resource is not None)
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
