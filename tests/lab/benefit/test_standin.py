"""An empty library is one that the loader takes."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from lab.benefit import standin


def test_the_loader_takes_it(tmp_path: Path) -> None:
    """It has its name, and no functions."""
    standin.write(tmp_path, ["libempty.so.1"])

    loaded = ctypes.CDLL(str(tmp_path / "libempty.so.1"))

    with pytest.raises(AttributeError, match="undefined symbol"):
        loaded.function  # noqa: B018 (looking it up is what fails)


def test_it_stands_for_the_name_that_others_are_linked_with(tmp_path: Path) -> None:
    """A library that was loaded once is not looked for again under the name that it gives itself."""
    standin.write(tmp_path, ["libempty.so.1"])
    (tmp_path / "libempty.so.1").rename(tmp_path / "other.so")
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); ctypes.CDLL('libempty.so.1')"
    subprocess.run([sys.executable, "-c", code, tmp_path / "other.so"], check=True)


def test_an_unknown_machine_has_none() -> None:
    """Rather than a file for another one."""
    with pytest.raises(KeyError):
        standin.library("libempty.so.1", "vax")
