"""The whole cluster, once in `make thorough`."""

import subprocess
import sys

import pytest

from lab.cache import directory
from lab.cluster import build, space
from lab.provenance import ROOT


@pytest.mark.thorough
@pytest.mark.e2e
@pytest.mark.timeout(2400)
def test_all_checks_are_ok() -> None:
    """`make cluster` finds nothing wrong; `make cluster` builds Kubernetes' programs, which takes ten minutes."""
    if reason := space.missing():
        pytest.skip(reason)
    if build.find() is None:
        pytest.skip(f"no programs of Kubernetes in {directory('cluster')} ({build.HOW}, builds them)")
    done = subprocess.run([sys.executable, "-m", "lab.cluster"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
