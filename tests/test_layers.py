"""The rules of the layout: imports, sizes of files and functions, and no part that is reached through another part.

They hold, and each of them notices a planted violation.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chains import chains
from tests.conftest import ROOT

LAYERS = "imports go down only"
ROOMS = "the rooms of node import down only"
PLACEMENT = "the rooms of placement import down only"
VIEWS = "views know values only"
OBJECTS = "the agent's objects know values only"
LAB = "what is installed imports neither laboratory nor tests"
CIRCLES = "nothing in a package imports in a circle"
WIRE = "wire imports nothing of ours but errors"
SIMULATOR = "the daemon imports no simulator"
GRPC = "only wire, cri and deviceplugin import what messages need"
PURE = "the pure packages do no I/O"


PLANTS = {
    "model/upward.py": ("import criproxy.placement", LAYERS),
    "store/sideways.py": ("import criproxy.process", LAYERS),
    "node/record/upward.py": ("import criproxy.node.sync", ROOMS),
    "placement/policies/upward.py": ("import criproxy.placement.rules", PLACEMENT),
    "stranger/__init__.py": ("", LAYERS),
    "wire/knows_model.py": ("import criproxy.model", WIRE),
    "api/views/knows_node.py": ("import criproxy.node", VIEWS),
    "agent/objects/with_client.py": ("import criproxy.agent.kubernetes", OBJECTS),
    "daemon/with_lab.py": ("import lab", LAB),
    "api/with_simulator.py": ("import criproxy.simulate", SIMULATOR),
    "cri/with_grpc.py": ("import grpc", GRPC),
    "node/sync/with_protobuf.py": ("from google.protobuf import message", GRPC),
    "placement/policies/with_hpack.py": ("import hpack", GRPC),
    "placement/rules/with_os.py": ("import os", PURE),
    "placement/policies/with_time.py": ("def late() -> None:\n    import time", PURE),
    "placement/policies/with_wire.py": ("import criproxy.wire.calls", PURE),
}
"""Files with one wrong import each, and the contract that forbids it; nobody imports them."""
CIRCLE_PLANTS = {
    "model/there.py": "import criproxy.model.back",
    "model/back.py": "import criproxy.model.there",
    "store/early.py": "import criproxy.store.late",
    "store/late.py": "def late() -> None:\n    import criproxy.store.early",
}
"""Two modules that import each other, and two of which one does it late."""


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
    for place, line in ({place: line for place, (line, _) in PLANTS.items()} | CIRCLE_PLANTS).items():
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


@pytest.mark.parametrize("place", PLANTS)
def test_a_planted_violation_is_found(broken: dict[str, str], place: str) -> None:
    """One wrong import breaks exactly the contract that forbids it."""
    module = ".".join(("criproxy", *Path(place.removesuffix("/__init__.py")).with_suffix("").parts))

    named = [name for name, report in broken.items() if re.search(rf"\b{re.escape(module)}\b", report)]
    assert named == [PLANTS[place][1]]


@pytest.mark.parametrize("package", ["model", "store", "node"])
def test_a_planted_circle_is_found(broken: dict[str, str], package: str) -> None:
    """Two modules or two rooms that import each other are found, also if one does it late."""
    assert f"No cycles are allowed in criproxy.{package}." in broken[CIRCLES]


def test_wire_is_kept_from_every_other_part() -> None:
    """The list of what wire may not import names every package and module but errors."""
    parts = {path.stem for path in (ROOT / "criproxy").iterdir() if (path / "__init__.py").exists()}
    parts |= {path.stem for path in (ROOT / "criproxy").glob("*.py")}
    expected = {f"criproxy.{part}" for part in parts - {"__init__", "__main__", "errors", "wire"}}

    assert expected == set(contracts()[WIRE]["forbidden_modules"])


MAX_ENTRIES, MAX_ENTRIES_AT_THE_TOP, MAX_LINES, MAX_FUNCTION_LINES = 14, 20, 350, 45
SHORT = ("node", "api", "daemon")
"""What of the package has no file that is too long; no function of the whole package is."""
NOT_YET = {
    "cli/offline/simulate.py": "its command has all options of a simulation",
}
"""Files that have something too long, and why."""


def sources(*names: str) -> list[Path]:
    """Return the Python files below *names* of the package."""
    places = [ROOT / "criproxy" / name for name in names]
    return [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]


def full_folders(package: Path) -> list[str]:
    """Return the folders with too many modules and folders for one glance; ``__init__`` and generated ones are none."""
    folders = [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    entries = {
        folder: [
            path
            for path in folder.iterdir()
            if (path.suffix == ".py" and path.stem not in ("__init__", "__main__") and not path.stem.endswith("_pb2"))
            or any(path.glob("*.py"))
        ]
        for folder in folders
    }
    limits = {folder: MAX_ENTRIES_AT_THE_TOP if folder == package else MAX_ENTRIES for folder in folders}
    return [f"{path.name}: {len(found)} entries" for path, found in entries.items() if len(found) > limits[path]]


def test_the_rooms_are_small() -> None:
    """A listing fits into a glance."""
    assert full_folders(ROOT / "criproxy") == []


def too_long(path: Path, most_lines: int) -> Iterator[str]:
    """A file of more than *most_lines* lines, and the functions of it that are too long."""
    text = path.read_text()
    if (lines := len(text.splitlines())) > most_lines:
        yield f"{path.name}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path.name}: {node.name}: {lines} lines"


@pytest.mark.parametrize(("where", "most_lines"), [("", sys.maxsize), *((name, MAX_LINES) for name in SHORT)])
def test_files_and_functions_are_short(where: str, most_lines: int) -> None:
    """At most 350 lines in a file of the controller and what serves it, and 45 in any function."""
    files = [path for path in sources(where) if path.relative_to(ROOT / "criproxy").as_posix() not in NOT_YET]

    assert [text for path in files for text in too_long(path, most_lines)] == []


def test_no_part_of_the_controller_is_reached_through_another_part() -> None:
    """A part that needs another one gets it as an argument: what it depends on stands at its beginning."""
    assert chains(ROOT / "criproxy/node", *sources("api", "daemon")) == []


PARTS = """
from dataclasses import dataclass

class Door:
    def open(self) -> None: ...

class Room:
    door: Door

    def __init__(self, door: Door | None = None) -> None:
        self.other = door or Door()

    def enter(self) -> None: ...

@dataclass
class Context:
    room: Room

@dataclass
class Size:
    room: Room
"""
"""A door and a room do something and are parts; a context and a value are none."""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        pytest.param("self.room.door.open()", "self.room.door", id="chain"),
        pytest.param("getattr(self.room, 'door').open()", "getattr(self.room, 'door')", id="getattr"),
        pytest.param("room = self.room; room.door.open()", "room.door", id="alias"),
        pytest.param("if room := self.room: room.door.open()", "room.door", id="alias-in-a-condition"),
        pytest.param("given.door.open()", "given.door", id="parameter"),
        pytest.param("self.context.room.door.open()", "self.context.room.door", id="behind-the-context"),
        pytest.param("self.context.room.enter()", "", id="one-part-of-the-context"),
        pytest.param("self.room.enter()", "", id="one-part"),
    ],
)
def test_a_planted_chain_is_found(tmp_path: Path, code: str, found: str) -> None:
    """However the other part is reached; what only connects parts, and values, may be gone through."""
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "user.py").write_text(
        f"class User:\n    context: Context\n    room: Room\n    size: Size\n"
        f"    def use(self, given: Room) -> None:\n        {code}\n"
    )

    assert chains(tmp_path) == ([f"user.py:6: {found}"] if found else [])


def test_one_part_starts_python() -> None:
    """It keeps the modules of the current directory away, and lets the process end with ours."""
    naming = [path for path in sources("") if "sys.executable" in path.read_text()]

    assert [path.name for path in naming] == ["tether.py"]
