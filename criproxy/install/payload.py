"""What this program has with it, and can put on a node."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.install import paths

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Payload:
    """What this program has with it, for a node that has no package of criproxy."""

    home: str = ""
    """The virtual environment that can be copied to the node; empty: there is none."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Texts of the unit files by name."""
    policy: str | None = None


def payload_for(host_root: Path) -> Payload:
    """Return what can be put on the node with the root directory *host_root*.

    In a container, that is the program itself, with its virtual environment, and the units and the policy file of the
    container's image. On the node itself, the program is in its place, and a checkout has the units and the policy.
    """
    is_node = host_root.resolve() == Path("/")
    home = "" if is_node or not Path(paths.PROGRAM).exists() or Path(sys.prefix) != Path(paths.HOME) else paths.HOME
    folders = () if is_node else paths.UNIT_FOLDERS
    units = next(filter(None, map(_units, (*folders, f"{_CHECKOUT}/systemd"))), {})
    policy = None if is_node else _text(paths.POLICY)
    return Payload(home, units, policy or _text(f"{_CHECKOUT}/policies/default.yaml"))


def _units(folder: str) -> dict[str, str]:
    texts = {name: _text(f"{folder}/{name}") for name in (*paths.UNITS, *paths.OPTIONAL_UNITS)}
    return {name: text for name, text in texts.items() if text is not None}


def _text(path: str) -> str | None:
    with suppress(OSError):
        return Path(path).read_text()
    return None
