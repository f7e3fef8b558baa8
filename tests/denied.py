"""Commands of a user who may not do everything: what a test cannot try as root, for whom every directory is open."""

import os
from pathlib import Path

_CAPABILITIES = "-dac_override,-dac_read_search"
WITHOUT_PRIVILEGES = (
    ("setpriv", f"--inh-caps={_CAPABILITIES}", f"--bounding-set={_CAPABILITIES}") if os.geteuid() == 0 else ()
)
"""What stands before a command for which closed directories are closed, also if root runs the tests."""


def closed(directory: Path) -> Path:
    """Make a directory that such a command may not look into."""
    directory.mkdir()
    directory.chmod(0o000)
    return directory
