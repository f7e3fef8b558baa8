"""What an installation from this checkout gets."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the package as `pip install .` does, from a copy, with the build tools that are here."""
    directory = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "criproxy", directory / "criproxy", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "out", "."]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = (directory / "out").glob("criproxy-*.whl")
    return zipfile.ZipFile(path)


def test_every_file_of_the_package_is_in_it(wheel: zipfile.ZipFile) -> None:
    """No module, type stub or data file is left out; pages for readers of the source are none of these."""
    files = [path for path in (ROOT / "criproxy").rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc")]

    assert {str(path.relative_to(ROOT)) for path in files} - set(wheel.namelist()) == set()


def test_it_brings_the_command(wheel: zipfile.ZipFile) -> None:
    """`criproxy` is what the units and the documentation call."""
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    assert "criproxy = criproxy.cli:main" in wheel.read(entry_points).decode()
