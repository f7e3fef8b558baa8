"""The names of MIG profiles, such as ``1g.10gb`` and ``1c.3g.20gb+me``, their resources, and patterns of names."""

import re

MIG_NAME = r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb([+-].*)?"
"""Groups: the slices of the compute instance, if it is smaller; those of the GPU instance; its size in GB; the rest."""
_PART = re.compile(r"[0-9*?]+c\.")
"""The beginning of the name of a compute instance that is smaller than its GPU instance."""
_LITERAL = re.compile(r"[^*?\[]*")
_EXAMPLE = "1c.3g.20gb"
_HALF_GIB_OF_MIB = 512
_WRITTEN_OTHERWISE = re.compile(r"(?i)(?:nvidia\.com/)?(?:mig[- ])?([0-9]+g\.[0-9]+gb)(?:\.([a-z.]+))?")
MIG_RESOURCES = "nvidia.com/mig-"
"""Prefix of the resources of profiles."""
_EIGHTHS = 8
"""A GPU's memory is counted in eighths."""
_MIB_OF_GIB = 1024


def is_whole_instance(name: str) -> bool:
    """Whether the compute instance of the profile *name* is its whole GPU instance."""
    found = re.fullmatch(MIG_NAME, name)
    return found is not None and found[1] in (None, found[2])


def is_of_part(pattern: str) -> bool:
    """Whether *pattern* matches only compute instances that share a GPU instance."""
    return _PART.match(pattern) is not None


def can_match(pattern: str) -> bool:
    """Whether the name of a profile can match *pattern*; only what precedes the first wildcard counts."""
    begin = _LITERAL.match(pattern)
    assert begin is not None, "it also matches nothing"
    endings = [_EXAMPLE[place:] for place in range(len(_EXAMPLE) + 1)] if begin[0] != pattern else [""]
    return any(re.fullmatch(MIG_NAME, begin[0] + each) for each in endings)


def likely_name(text: str) -> str:
    """Return the name that *text* probably means, such as the resource ``nvidia.com/mig-1g.10gb.me``; else empty."""
    found = _WRITTEN_OTHERWISE.fullmatch(text)
    if found is None:
        return ""
    return found[1].lower() + (f"+{found[2].lower()}" if found[2] else "")


def without_part(pattern: str) -> str:
    """Return the pattern of the GPU instances that the compute instances of *pattern* share; empty if it is no name."""
    rest = _PART.sub("", pattern, count=1)
    return rest if re.fullmatch(MIG_NAME, rest) else ""


def most_memory_mib(name: str) -> int:
    """Return more memory than a device of the profile *name* can have, in MiB; 0 if *name* is a pattern.

    The size in the name is rounded to the nearest GiB.
    """
    found = re.fullmatch(MIG_NAME, name)
    return (2 * int(found[3]) + 1) * _HALF_GIB_OF_MIB if found else 0


def profile_name(
    *, device_memory_mib: int, mig_memory_mib: int, gi_slices: int, ci_slices: int, attribute: str = ""
) -> str:
    """Return the name of a profile: ``1g.5gb``, ``1c.3g.20gb``, ``1g.24gb+me.all``.

    Args:
        device_memory_mib: Memory of the whole GPU; 0 if NVML does not report it.
        mig_memory_mib: Memory of the instance.
        gi_slices: Slices of its GPU instance.
        ci_slices: Slices of its compute instance.
        attribute: Suffix after the size, with its sign: ``+me``, ``-me``, ``+gfx``.
    """
    total_mib = device_memory_mib or mig_memory_mib  # then, it is rounded up to the next GiB
    eighths = -(-_EIGHTHS * mig_memory_mib // total_mib) if total_mib else 0
    total_gib = -(-total_mib // _MIB_OF_GIB)
    size_gb = (eighths * total_gib + _EIGHTHS // 2) // _EIGHTHS  # rounds halves up; round() would round them to even
    compute = "" if ci_slices == gi_slices else f"{ci_slices}c."
    return f"{compute}{gi_slices}g.{size_gb}gb{attribute}"


def compute_slices(profile: str) -> int:
    """Return the number of slices of the compute instance of *profile*; 0 if the name does not contain it."""
    found = re.fullmatch(MIG_NAME, profile)
    return int(found[1] or found[2]) if found else 0


def mixed_resource(profile: str) -> str | None:
    """Return the resource of a profile with the strategy ``mixed``, including its domain; None if it has none."""
    return f"{MIG_RESOURCES}{profile.replace('+', '.')}" if is_whole_instance(profile) else None
