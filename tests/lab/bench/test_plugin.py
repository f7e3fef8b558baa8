"""What an NRI plugin costs is measured beside one that does nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab.chaos.plugged import unavailable
from tests.conftest import ROOT


@pytest.mark.e2e
@pytest.mark.slow
def test_a_short_run(tmp_path: Path) -> None:
    """Each of the four has its line, and those that answer another one about that."""
    if reason := unavailable():
        pytest.skip(reason)
    (peer := tmp_path / "peer").write_text(f'#!/bin/sh\nexec {sys.executable} -m lab.bench.plugin --idle "$1"\n')
    peer.chmod(0o755)
    command = [sys.executable, "-m", "lab.bench.plugin", "--rounds", "1", "--count", "2", "--peer", str(peer)]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    plugins = ["a plugin that does nothing", "criproxy", "the peer"]
    assert [line.partition(":")[0] for line in told[1:]] == ["no plugin", *plugins, *plugins]
    assert all(": answers take " in line for line in told[-3:])
