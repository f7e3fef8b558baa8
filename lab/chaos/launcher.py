"""Starts criproxy as ``criproxy`` does, after planting a fault: ``python -m lab.chaos.launcher FAULT serve …``.

Without a fault (``none``) it only shortens a pause that is generous on purpose: after a create that ended without an
answer, criproxy asks twice, 5 s apart, before it believes that there is no container.
"""

import sys

from criproxy.node.settings import Settings

UNKNOWN_PAUSE_S = 2.0


def main() -> None:
    """Plant, and become criproxy."""
    fault = sys.argv.pop(1)
    defaults = Settings.__init__.__kwdefaults__
    assert defaults
    assert "unknown_pause_s" in defaults
    defaults["unknown_pause_s"] = UNKNOWN_PAUSE_S
    if fault != "none":
        from lab.chaos.plants import PLANTS

        PLANTS[fault]()
    from criproxy.cli import main as cli

    sys.exit(cli())


if __name__ == "__main__":
    main()
