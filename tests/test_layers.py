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
ROOMS = "the rooms of control import down only"
WIRE = "wire imports nothing of ours but errors"
GRPC = "only wire, cri, emulator and deviceplugin import grpc, google and hpack"
PURE = "the pure packages do no I/O"


PLANTS = [
    pytest.param("model/upward.py", "import criproxy.engine", LAYERS, id="upward"),
    pytest.param("control/sync/to_the_top.py", "import criproxy.cli", LAYERS, id="upward-to-the-top"),
    pytest.param("store/sideways.py", "import criproxy.observe", LAYERS, id="sideways"),
    pytest.param("control/node/upward.py", "import criproxy.control.sync", ROOMS, id="upward-in-control"),
    pytest.param("control/devices/beside.py", "import criproxy.control.reconcile", ROOMS, id="beside-in-control"),
    pytest.param("newcomer/__init__.py", "", LAYERS, id="package-without-a-layer"),
    pytest.param("wire/knows_model.py", "import criproxy.model", WIRE, id="wire-imports-model"),
    pytest.param("wire/knows_cri.py", "import criproxy.cri.api_pb2", WIRE, id="wire-imports-cri"),
    pytest.param("model/with_grpc.py", "import grpc", GRPC, id="grpc-in-model"),
    pytest.param(
        "control/sync/with_protobuf.py", "from google.protobuf import message", GRPC, id="protobuf-in-control"
    ),
    pytest.param("policy/with_hpack.py", "import hpack", GRPC, id="hpack-in-policy"),
    pytest.param("engine/with_os.py", "import os", PURE, id="os-in-engine"),
    pytest.param("policy/with_time.py", "def late() -> None:\n    import time", PURE, id="time-in-policy"),
    pytest.param("alloc/with_random.py", "from random import random", PURE, id="random-in-alloc"),
    pytest.param("model/with_pathlib.py", "from pathlib import Path", PURE, id="pathlib-in-model"),
    pytest.param("policy/with_wire.py", "import criproxy.wire.calls", PURE, id="wire-in-policy"),
]
"""Files with one wrong import each, and the contract that forbids it; nobody imports them."""


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy of the package and its settings in *folder*."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(
        ROOT / "criproxy", folder / "criproxy", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What import-linter says of all plants at once, by contract: the part of its report that is about it."""
    folder = tmp_path_factory.mktemp("planted")
    for plant in PLANTS:
        place, line = str(plant.values[0]), plant.values[1]
        file = folder / "criproxy" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{line}\n")
    result = lint_imports(folder)
    assert result.returncode == 1
    parts = re.split(r"^(.*)\n-+\n", result.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def contracts() -> dict[str, dict[str, Any]]:
    """Return import-linter's contracts by name."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


def test_the_package_keeps_every_contract(tmp_path: Path) -> None:
    """The code as it is imports only what its layer may."""
    result = lint_imports(tmp_path)

    assert result.returncode == 0, result.stdout
    assert f"Contracts: {len(contracts())} kept, 0 broken." in result.stdout


@pytest.mark.parametrize(("place", "line", "contract"), PLANTS)
def test_a_planted_violation_is_found(broken: dict[str, str], place: str, line: str, contract: str) -> None:
    """One wrong import breaks exactly the contract that forbids it."""
    module = ".".join(("criproxy", *Path(place.removesuffix("/__init__.py")).with_suffix("").parts))

    assert [contract] == [name for name, report in broken.items() if re.search(rf"\b{re.escape(module)}\b", report)]


def test_wire_is_kept_from_every_other_part() -> None:
    """The list of what wire may not import names every package and module but errors."""
    parts = {path.stem for path in (ROOT / "criproxy").iterdir() if (path / "__init__.py").exists()}
    parts |= {path.stem for path in (ROOT / "criproxy").glob("*.py")}
    expected = {f"criproxy.{part}" for part in parts - {"__init__", "__main__", "errors", "wire"}}

    assert expected == set(contracts()[WIRE]["forbidden_modules"])
