"""The example of a policy package, installed as a user would: by pip, from its folder, here without a network."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

FOLDER = ROOT / "docs/examples/criproxy-policy-quiet"


def install(place: Path) -> Path:
    """Install it below *place*, and return the folder to import from."""
    source, target = place / "source", place / "packages"
    shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return target
