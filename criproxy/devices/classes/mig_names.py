"""The names of MIG profiles, such as ``1g.10gb`` and ``1c.3g.20gb+me``, and which patterns can match one."""

import re

MIG_NAME = r"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb([+-].*)?"
"""Groups: the slices of the compute instance, if it is smaller; those of the GPU instance; its size in GB; the rest."""
_PART = re.compile(r"[0-9*?]+c\.")
"""The beginning of the name of a compute instance that is smaller than its GPU instance."""
_LITERAL = re.compile(r"[^*?\[]*")
_EXAMPLE = "1c.3g.20gb"
_HALF_GIB_OF_MIB = 512
_WRITTEN_OTHERWISE = re.compile(r"(?i)(?:nvidia\.com/)?(?:mig[- ])?([0-9]+g\.[0-9]+gb)(?:\.([a-z.]+))?")


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
