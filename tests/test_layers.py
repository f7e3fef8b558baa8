"""The import rules of pyproject.toml: they hold, and each of them notices a planted violation."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

LAYERS = "imports go down only"
CIRCLES = "nothing in a package imports in a circle"
WIRE = "wire imports nothing of ours but errors"
GRPC = "only wire, cri, emulator and deviceplugin import grpc, google and hpack"
PURE = "the pure packages do no I/O"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in *folder*."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package and its settings."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "criproxy", tmp_path / "criproxy", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def contracts() -> dict[str, dict[str, Any]]:
    """Return import-linter's contracts by name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


def test_the_package_keeps_every_contract(copy: Path) -> None:
    """The code as it is imports only what its layer may."""
    result = lint_imports(copy)

    assert result.returncode == 0, result.stdout
    assert f"Contracts: {len(contracts())} kept, 0 broken." in result.stdout


@pytest.mark.parametrize(
    ("place", "line", "broken"),
    [
        pytest.param("model/planted.py", "import criproxy.engine", LAYERS, id="upward"),
        pytest.param("control/planted.py", "import criproxy.cli", LAYERS, id="upward-to-the-top"),
        pytest.param("store/planted.py", "import criproxy.observe", LAYERS, id="sideways"),
        pytest.param("newcomer/__init__.py", "", LAYERS, id="package-without-a-layer"),
        pytest.param("wire/planted.py", "import criproxy.model", WIRE, id="wire-imports-model"),
        pytest.param("wire/planted.py", "import criproxy.cri.api_pb2", WIRE, id="wire-imports-cri"),
        pytest.param("model/planted.py", "import grpc", GRPC, id="grpc-in-model"),
        pytest.param("control/planted.py", "from google.protobuf import message", GRPC, id="protobuf-in-control"),
        pytest.param("policy/planted.py", "import hpack", GRPC, id="hpack-in-policy"),
        pytest.param("engine/planted.py", "import os", PURE, id="os-in-engine"),
        pytest.param("policy/planted.py", "def late() -> None:\n    import time", PURE, id="time-in-policy"),
        pytest.param("alloc/planted.py", "from random import random", PURE, id="random-in-alloc"),
        pytest.param("model/planted.py", "from pathlib import Path", PURE, id="pathlib-in-model"),
        pytest.param("policy/planted.py", "import criproxy.wire.calls", PURE, id="wire-in-policy"),
        pytest.param("model/cpuset.py", "import criproxy.model.grant", CIRCLES, id="circle-of-two-modules"),
        pytest.param("store/schema.py", "def late():\n    import criproxy.store.store", CIRCLES, id="late-in-a-circle"),
        pytest.param("control/node/planted.py", "import criproxy.control.sync.drift", CIRCLES, id="circle-of-rooms"),
    ],
)
def test_a_planted_violation_is_found(copy: Path, place: str, line: str, broken: str) -> None:
    """One wrong import breaks exactly the contract that forbids it."""
    planted = copy / "criproxy" / place
    planted.parent.mkdir(exist_ok=True)
    with planted.open("a") as file:
        file.write(line + "\n")

    result = lint_imports(copy)

    assert result.returncode == 1
    assert [broken] == re.findall("^(.*) BROKEN", result.stdout, re.MULTILINE)


def test_wire_is_kept_from_every_other_part() -> None:
    """The list of what wire may not import names every package and module but errors."""
    parts = {path.stem for path in (ROOT / "criproxy").iterdir() if (path / "__init__.py").exists()}
    parts |= {path.stem for path in (ROOT / "criproxy").glob("*.py")}
    expected = {f"criproxy.{part}" for part in parts - {"__init__", "__main__", "errors", "wire"}}

    assert expected == set(contracts()[WIRE]["forbidden_modules"])
