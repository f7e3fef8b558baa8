"""``.ci/setup.sh``, which makes a fresh checkout ready."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
echo "$*" >> "{log}"
[ "$1" = --version ] && echo "Python 3.11.2"
exit 0
"""
"""An interpreter that only says what it was asked for."""


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    """A checkout, ``new``, whose .venv is a link to that of another one, ``other``."""
    new, other = tmp_path / "new", tmp_path / "other"
    (new / ".ci").mkdir(parents=True)
    for name in (".ci/setup.sh", ".ci/pip.lock", ".ci/requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, new / name)
    (other / ".venv/bin").mkdir(parents=True)
    (new / ".venv").symlink_to(other / ".venv")
    return tmp_path


def setup(checkouts: Path) -> subprocess.CompletedProcess[str]:
    """Run it in the new checkout, without the network."""
    environ = {**os.environ, "CRIPROXY_NO_APT": "1"}
    command = ["bash", str(checkouts / "new/.ci/setup.sh")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_nothing_is_installed_into_the_venv_of_another_checkout(checkouts: Path) -> None:
    """It would import criproxy from here from then on; who links it is told what to do."""
    log, python = checkouts / "log", checkouts / "other/.venv/bin/python"
    python.write_text(PYTHON.format(log=log))
    python.chmod(0o755)

    done = setup(checkouts)

    assert done.returncode == 1
    assert f".venv is a symbolic link to {checkouts}/other/.venv" in done.stderr
    assert "remove the link" in done.stderr
    assert "pip" not in log.read_text()
