"""What this program has with it for a node on which no package has installed criproxy."""

import sys
from pathlib import Path

from criproxy import __version__
from criproxy.install.planning import paths
from criproxy.install.planning.facts import Brought

_CHECKOUT = Path(__file__).resolve().parents[2]


def brought(host_root: Path) -> Brought:
    """Return what can be put on the node with the root directory *host_root*.

    In a container, that is the program itself, with its virtual environment, and the units and the policy file of the
    container's image. On the node itself, the program is in its place, and a checkout has the units and the policy.
    """
    if _is_same(host_root):
        return Brought(__version__, "", _units(_CHECKOUT / "systemd"), _text(_CHECKOUT / "policies/default.yaml"))
    home = paths.HOME if Path(paths.PROGRAM).exists() and Path(sys.prefix) == Path(paths.HOME) else ""
    units = next(filter(None, map(_units, map(Path, (*paths.UNIT_FOLDERS, f"{_CHECKOUT}/systemd")))), {})
    policy = _text(Path(paths.POLICY)) or _text(_CHECKOUT / "policies/default.yaml")
    return Brought(__version__, home, units, policy)


def _is_same(host_root: Path) -> bool:
    return host_root.resolve() == Path("/")


def _units(folder: Path) -> dict[str, str]:
    names = (*paths.UNITS, *paths.OPTIONAL_UNITS)
    texts = {name: _text(folder / name) for name in names}
    return {name: text for name, text in texts.items() if text is not None}


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
