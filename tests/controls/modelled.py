"""`criproxy controls` that looks for drift all the time, on a kernel that is a model wherever its machine is a folder.

python -m tests.controls.modelled controls OPTION …
"""

import sys
from pathlib import Path

import pytest

from criproxy.cli import main
from criproxy.controls import core, serve
from criproxy.controls.cpu_burst import CpuBurst
from criproxy.controls.journal import Journal
from criproxy.controls.parts import Part
from criproxy.controls.resctrl.part import RdtClasses
from tests.controls.resctrl.model import ResctrlModel
from tests.controls.trees import KernelModel

LOOK_S = 0.2


class ModelledControls(core.Controls):
    """Everything that it applies, to a `tests.controls.trees.Tree`."""

    def __init__(self, host_root: Path, journal: Journal, parts: tuple[Part, ...]) -> None:
        super().__init__(host_root, journal, parts, KernelModel())


def parts_of(host_root: Path, journal: Journal) -> tuple[Part, ...]:
    """Those that need no threads and no disks."""
    return RdtClasses(host_root, journal, ResctrlModel(host_root, tells=False)), CpuBurst(host_root, journal)


if __name__ == "__main__":
    patch = pytest.MonkeyPatch()
    patch.setattr(core, "LOOK_S", LOOK_S)
    if sys.argv[sys.argv.index("--host-root") + 1] != "/":
        patch.setattr(serve, "Controls", ModelledControls)
        patch.setattr(serve, "all_parts", parts_of)
    main()
