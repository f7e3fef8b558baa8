"""Words of labels that NVIDIA's feature discovery makes of names: products, machines, families of architectures."""

import re
from collections.abc import Iterable

_ILLEGAL = re.compile("[^A-Za-z0-9_. -]")
_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    8: "ampere",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
"""By the major number of the compute capability; 7 is two of them."""
_TURING_SINCE = 5
"""The minor number of 7.x."""
_UNDEFINED = "undefined"


def sanitised(text: str) -> str:
    """*text* with a dash for each run of blanks, and without whatever no label may hold.

    Tabs and line feeds are no blanks. The result may be too long for a label, or begin or end as none may.
    """
    return "-".join(_ILLEGAL.sub("", text).split())


def product(parts: Iterable[str], *, shared: bool = False) -> str | None:
    """The value of ``.product``; None where nothing is known."""
    words = [sanitised(part) for part in parts if part]
    return "-".join([*words, "SHARED"] if shared else words) if words else None


def profile_word(profile: str) -> str:
    """A MIG profile as labels write it: ``1g.5gb.me`` for ``1g.5gb+me``."""
    return profile.replace("+", ".")


def family(compute_capability: tuple[int, int]) -> str:
    """The architecture of a compute capability, ``turing`` for 7.5."""
    major, minor = compute_capability
    if major == 7:
        return "turing" if minor >= _TURING_SINCE else "volta"
    return _FAMILIES.get(major, _UNDEFINED)
