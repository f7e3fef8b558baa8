"""Names of MIG profiles, and the patterns by which a policy file selects them."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.mig_profiles import (
    can_match,
    is_of_part,
    is_whole_instance,
    likely_name,
    most_memory_mib,
    profile_name,
    without_part,
)


@pytest.mark.parametrize("pattern", "1g.10gb 1g.10gb+me.all 1c.3g.20gb * 2g.* 1g.1?gb [12]g.* 1g.10gb+* 1c.*".split())
def test_what_a_pattern_can_match(pattern: str) -> None:
    """A name, or text before a wildcard that is the beginning of one."""
    assert can_match(pattern)


@pytest.mark.parametrize("pattern", ["", *"1g 1g.10GB 1G.* 1g.10gb.me mig-1g.10gb mig-1g.* gpu-8g 10gb*".split()])
def test_what_no_pattern_can_match(pattern: str) -> None:
    """Text without wildcards must be a name."""
    assert not can_match(pattern)


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
    assert is_of_part(pattern) is expected
    assert without_part(pattern) == whole


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
    assert likely_name(text) == expected


_SLICES = st.integers(1, 7)


@given(st.integers(4096, 1 << 19), st.integers(1, 8), _SLICES, _SLICES, st.sampled_from(["", "+me", "-me", "+gfx"]))
def test_names_of_devices(total_mib: int, eighths: int, gi: int, ci: int, attribute: str) -> None:
    """Each name that a device can have can be matched, also by its beginning; the size in it is not exceeded."""
    memory_mib = total_mib * eighths // 8
    name = profile_name(
        device_memory_mib=total_mib, mig_memory_mib=memory_mib, gi_slices=max(gi, ci), ci_slices=ci, attribute=attribute
    )

    assert memory_mib < most_memory_mib(name)
    assert is_of_part(name) is not is_whole_instance(name)
    for length in range(len(name) + 1):
        pattern = f"{name[:length]}*"
        assert fnmatchcase(name, pattern)
        assert can_match(pattern)
