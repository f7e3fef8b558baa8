"""Removes a private containerd whose owner was killed: ``python -m lab.containerd.keeper DIRECTORY``.

It waits for the end of its standard input, whose other end only the owner has.
"""

import shutil
import sys
from pathlib import Path

from lab.containerd import leftovers
from lab.containerd.cgroups import PodCgroups


def main() -> None:
    """Wait, and remove all that the owner has not removed."""
    directory = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if directory.exists():
        leftovers.end_daemon(directory)
        leftovers.remove(directory)
        PodCgroups(f"/{directory.name}").remove()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
