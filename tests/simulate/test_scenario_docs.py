"""The page about scenarios: its example is the file that is there, and runs as the page says."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.simulate.scenario.assertions import OF_ONE, OF_SEVERAL
from criproxy.simulate.scenario.machine import MACHINE_KEYS, NODE_KEYS
from criproxy.simulate.scenario.pods import POD_KEYS
from criproxy.simulate.scenario.steps import STEPS
from criproxy.simulate.scenario.vectors import VECTOR_KEYS
from tests.conftest import ROOT

PAGE = (ROOT / "docs/simulate.md").read_text()
EXAMPLE = ROOT / "docs/examples/first-scenario.yaml"


def test_the_example_is_the_file() -> None:
    """All but its first line, which is a comment."""
    assert EXAMPLE.read_text().partition("\n")[2] in PAGE


@pytest.mark.parametrize(("memory", "exit_code"), [("1", 0), ("0", 1)])
def test_the_example_runs_as_the_page_says(
    tmp_path_factory: pytest.TempPathFactory, memory: str, exit_code: int
) -> None:
    """As it is, and with another expectation."""
    file = tmp_path_factory.mktemp("example") / "case.yaml"
    file.write_text(EXAMPLE.read_text().replace('mems: "1"', f'mems: "{memory}"'))

    result = CliRunner().invoke(main, ["simulate", str(file)])

    assert result.exit_code == exit_code
    assert all(f"    {line}\n" in PAGE for line in result.stdout.splitlines())


@pytest.mark.parametrize("example", sorted((ROOT / "docs/examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_runs(example: Path) -> None:
    """What pages tell of where containers are is so."""
    result = CliRunner().invoke(main, ["simulate", str(example)])

    assert result.exit_code == 0, result.stdout


@pytest.mark.parametrize("word", [*OF_ONE, *OF_SEVERAL, *MACHINE_KEYS, *NODE_KEYS, *POD_KEYS, *STEPS, *VECTOR_KEYS])
def test_the_page_has_every_word(word: str) -> None:
    """Whatever a file may say is explained."""
    table = PAGE.partition("## The file")[2]

    assert f"{word}`" in table or f"{word}:" in table or f"{word}," in table or word in {"n_packages", "src", "what"}
