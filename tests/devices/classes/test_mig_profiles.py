"""Names of MIG profiles, the patterns by which a policy file selects them, and the nodes of MIG devices."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import mig_minors, mig_paths
from criproxy.devices.classes import mig_profiles
from tests.deviceplugin.nvidia.machines import MIG_MINORS, a100, minors


@pytest.mark.parametrize("pattern", "1g.10gb 1g.10gb+me.all 1c.3g.20gb * 2g.* 1g.1?gb [12]g.* 1g.10gb+* 1c.*".split())
def test_what_a_pattern_can_match(pattern: str) -> None:
    """A name, or text before a wildcard that is the beginning of one."""
    assert mig_profiles.can_match(pattern)


@pytest.mark.parametrize("pattern", ["", *"1g 1g.10GB 1G.* 1g.10gb.me mig-1g.10gb mig-1g.* gpu-8g 10gb*".split()])
def test_what_no_pattern_can_match(pattern: str) -> None:
    """Text without wildcards must be a name."""
    assert not mig_profiles.can_match(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected", "whole"),
    [
        ("1c.3g.20gb", True, "3g.20gb"),
        ("*c.3g.20gb+me", True, "3g.20gb+me"),
        ("1c.*", True, ""),
        ("3g.20gb", False, "3g.20gb"),
        ("*", False, ""),
    ],
)
def test_names_of_compute_instances(pattern: str, expected: bool, whole: str) -> None:
    """They begin with the number of their slices; without it, the name is that of the GPU instance."""
    assert mig_profiles.is_of_part(pattern) is expected
    assert mig_profiles.without_part(pattern) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("MIG 1g.10gb", "1g.10gb"),
        ("mig-1g.10gb.me", "1g.10gb+me"),
        ("1G.10GB", "1g.10gb"),
        ("gpu-8g", ""),
    ],
)
def test_what_is_meant(text: str, expected: str) -> None:
    """Resources and the words of nvidia-smi contain the name."""
    assert mig_profiles.likely_name(text) == expected


_SLICES = st.integers(1, 7)


@given(st.integers(4096, 1 << 19), st.integers(1, 8), _SLICES, _SLICES, st.sampled_from(["", "+me", "-me", "+gfx"]))
def test_names_of_devices(total_mib: int, eighths: int, gi: int, ci: int, attribute: str) -> None:
    """Each name that a device can have can be matched, also by its beginning; the size in it is not exceeded."""
    memory_mib = total_mib * eighths // 8
    name = mig_profiles.profile_name(
        device_memory_mib=total_mib, mig_memory_mib=memory_mib, gi_slices=max(gi, ci), ci_slices=ci, attribute=attribute
    )

    assert memory_mib < mig_profiles.most_memory_mib(name)
    assert mig_profiles.is_of_part(name) is not mig_profiles.is_whole_instance(name)
    for length in range(len(name) + 1):
        pattern = f"{name[:length]}*"
        assert fnmatchcase(name, pattern)
        assert mig_profiles.can_match(pattern)


@pytest.mark.parametrize(("mig_mib", "expected"), [(9856, "1g.10gb"), (0, "1g.0gb")], ids=["of-a-gpu", "of-all"])
def test_names_where_memory_is_unknown(mig_mib: int, expected: str) -> None:
    """The size in a name is that of the MIG device then; the vectors have all others."""
    assert mig_profiles.profile_name(device_memory_mib=0, mig_memory_mib=mig_mib, gi_slices=1, ci_slices=1) == expected


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
    assert mig_profiles.mixed_resource(profile) == resource
    assert mig_profiles.is_whole_instance(profile) is (resource is not None)
    assert mig_profiles.compute_slices(profile) == slices


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
