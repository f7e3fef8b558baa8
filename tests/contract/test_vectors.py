"""Reference vectors, by the commands that run them: placements of CRI-RM and nri-plugins, and NVIDIA's own answers."""

import re
from pathlib import Path

from tests.contract.programs import VECTORS, command

UNITS = 7
"""Cases of CRI-RM's that are no placements, and are tested where their unit is."""


def test_the_placements_of_predecessors_hold(shared_dir: Path) -> None:
    """``criproxy simulate`` finds that every case is as CRI-RM and nri-plugins place it, by the rules of each."""
    answer = command("simulate", shared_dir / "scenarios/crirm-vectors.yaml")

    lines = answer.out.splitlines()
    held = re.findall(r"^V\d\d +(?:crirm|nri) +ok ", answer.out, re.MULTILINE)
    assert answer.status == 0, "\n".join(line for line in lines if " ok " not in line)
    assert lines[-1] == f"{len(held)} ok, 0 FAILED, {UNITS} unit"
    assert len(held) >= 26


def test_further_placements_of_predecessors_hold() -> None:
    """The same on machines with dies, level 3 caches and several kinds of memory."""
    answer = command("simulate", "tests/scenarios/peers.yaml")

    assert answer.status == 0, "\n".join(line for line in answer.out.splitlines() if " ok " not in line)
    assert answer.out.splitlines()[-1] == "52 ok, 0 FAILED"


def test_nvidias_cases_pass(shared_dir: Path) -> None:
    """``python -m tests.vectors`` judges each case as NVIDIA's code did, but for the differences on purpose."""
    answer = command("--dir", shared_dir / "nvidia-vectors", program=VECTORS)

    lines = answer.out.splitlines()
    passed = sum(line.startswith("ok ") for line in lines)
    assert answer.status == 0, "\n".join(line for line in lines if not line.startswith("ok "))
    assert lines[-1].startswith(f"{passed} of {passed} cases pass, ")
    assert passed >= 542
