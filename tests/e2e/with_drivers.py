"""Runs criproxy on this machine with other drivers: ``python -m tests.e2e.with_drivers FOLDER COMMAND …``.

What drivers say in /proc and /sys is then what FOLDER has there, for that process alone; everything else is the
machine's own. A create waits for it as long as a slow machine takes.
"""

import ctypes
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from criproxy.cli import main
from criproxy.daemon import start
from criproxy.node.settings import Settings
from tests.node.world import FAST

PLACES = ("proc/driver", "sys/bus/pci/devices", "sys/class/misc")
_OWN_MOUNTS = 0x20000
"""CLONE_NEWNS of unshare(2)."""


def replace_drivers(folder: Path) -> None:
    """Lay what *folder* has over the machine's, where nobody else sees it.

    Raises:
        OSError: this process may not mount.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_OWN_MOUNTS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for place in PLACES:
        if (folder / place).is_dir():
            subprocess.run(["mount", "--bind", str(folder / place), f"/{place}"], check=True)


if __name__ == "__main__":
    replace_drivers(Path(sys.argv.pop(1)))
    vars(start)["Settings"] = partial(Settings, device_limits=FAST.device_limits)
    main(prog_name="criproxy")
