"""Words of labels that NVIDIA's feature discovery derives from names: products, machines, architectures."""

import re
from collections.abc import Iterable

_ILLEGAL = re.compile("[^A-Za-z0-9_. -]")
_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
"""By the major number of the compute capability."""
_SPLIT = {7: (5, "volta", "turing"), 8: (9, "ampere", "ada-lovelace")}
"""Major numbers of two architectures: the first minor number of the second one, and both."""
_UNDEFINED = "undefined"


def sanitised(text: str) -> str:
    """Return *text* with a dash for each run of blanks, and without characters that labels must not contain.

    Tabs and line feeds are not blanks. The result may be too long for a label, or begin or end with an invalid one.
    """
    return "-".join(_ILLEGAL.sub("", text).split())


def product(parts: Iterable[str], *, shared: bool = False) -> str | None:
    """Return the value of ``.product``; None if nothing is known."""
    words = [sanitised(part) for part in parts if part]
    return "-".join([*words, "SHARED"] if shared else words) if words else None


def profile_word(profile: str) -> str:
    """Return a MIG profile in the notation of labels: ``1g.5gb.me`` for ``1g.5gb+me``."""
    return profile.replace("+", ".")


def family(compute_capability: tuple[int, int]) -> str:
    """Return the architecture of a compute capability, for example ``turing`` for 7.5."""
    major, minor = compute_capability
    if major in _SPLIT:
        since, older, newer = _SPLIT[major]
        return newer if minor >= since else older
    return _FAMILIES.get(major, _UNDEFINED)
