"""Scenario files as a whole: what is in them, and what is wrong with them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.errors import UsageError
from criproxy.model.cpuset import format_cpuset
from criproxy.simulate.scenario.assertions import OF_ONE, OF_SEVERAL
from criproxy.simulate.scenario.machine import MACHINE_KEYS, NODE_KEYS
from criproxy.simulate.scenario.pods import POD_KEYS
from criproxy.simulate.scenario.steps import STEPS
from criproxy.simulate.scenario.vectors import VECTOR_KEYS, load, read
from tests.conftest import ROOT

CASE = "{id: %s, topology: {threads: none, nodes: {0: {cpus: 0-3, mem: 1G}}}, policy: static, steps: []}"

NEAR_MISS = """
vectors:
  - {id: A, topology: four_4, policy: static, steps: []}
topologies:
  four4: {threads: none, nodes: {0: {cpus: 0, mem: 1G}}}
"""


def written(folder: Path, text: str) -> Path:
    """A file with *text*."""
    file = folder / "cases.yaml"
    file.write_text(text)
    return file


def cases(*names: str) -> str:
    """A file with cases of these ids."""
    return "vectors:\n" + "".join(f"  - {CASE % name}\n" for name in names)


def test_all_cases_or_some(tmp_path: Path) -> None:
    """Those that are named, in the order of the file."""
    file = written(tmp_path, cases("A", "B", "C"))

    assert [vector.id for vector in load(file)] == ["A", "B", "C"]
    assert [vector.id for vector in load(file, ["C", "A"])] == ["A", "C"]
    with pytest.raises(UsageError, match="has no case 'D'; it has A, B, C"):
        load(file, ["D"])


def test_a_machine_of_its_own_and_isolated_cpus() -> None:
    """A case may describe its machine in place, or change one that has a name."""
    text = cases("A").replace("steps: []", "isolcpus: 2-5, steps: []")

    contents = read(text, Path("cases.yaml"))

    assert not contents.all_mistakes
    assert contents.vectors[0].topology is not None
    assert format_cpuset(contents.vectors[0].topology.isolated_cpus) == "2-3"


def test_a_file_of_many_values_is_read(tmp_path: Path) -> None:
    """What bounds a policy file is no bound for scenarios."""
    assert len(load(written(tmp_path, cases(*(f"C{number}" for number in range(2000)))))) == 2000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cases.yaml:1:1: must be a group such as {name: value}, not nothing"),
        ("a: [", "cases.yaml:1:"),
        ("version: 1", "cases.yaml:1:1: 'vectors' is missing"),
        ("vectors: []\nvektors: []", "cases.yaml:2:1: vektors: unknown key 'vektors'; did you mean 'vectors'?"),
        ("vectors: [{id: A}]", "'topology' is missing"),
        ("vectors: [{title: x}]", "'id' is missing"),
        (cases("A", "A"), "cases.yaml:3:1: a case with the id 'A' is in line 2 already"),
        (cases("A").replace("static,", "static, polisy: x,"), "unknown key 'polisy'; did you mean 'policy'?"),
        (cases("A").replace("steps: []", "kind: units, steps: []"), "did you mean 'unit'?"),
        (cases("A").replace("steps: []", "applies: [all], steps: []"), "must be one of crirm, nri"),
        ("topologies: {n4: {nodes: {}}}\nvectors: []", "topologies.n4.nodes: no node has a CPU"),
        (NEAR_MISS, "there is no topology 'four_4'; did you mean 'four4'?"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    """Exit status 2, and every mistake with its place."""
    with pytest.raises(UsageError) as error:
        load(written(tmp_path, text))

    assert said in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Neither what is not there nor what is no text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")

    for file in (tmp_path / "none", binary, tmp_path):
        with pytest.raises(UsageError, match=r"there is no such file|it must be a scenario file|not UTF-8"):
            load(file)


def test_what_is_not_known_beside_the_cases() -> None:
    """It is told, and the cases are read all the same."""
    contents = read(f"{cases('A')}machines: {{}}\nx: 1\n", Path("cases.yaml"))

    assert [mistake.line for mistake in contents.mistakes] == [3, 4]
    assert [vector.id for vector in contents.vectors] == ["A"]


def test_all_mistakes_at_once() -> None:
    """One wrong case does not hide another, wrong or not."""
    contents = read(f"vectors: [{{id: A}}, {{id: B}}, 3, {CASE % 'C'}]", Path("cases.yaml"))

    assert (list(contents.wrong), len(contents.mistakes)) == (["A", "B"], 1)
    assert [vector.id for vector in contents.vectors] == ["C"]


def test_a_wrong_case_matters_only_to_who_asks_for_it(tmp_path: Path) -> None:
    """With ids, the rest of the file is not judged; a machine that is wrong is told once for all its cases."""
    file = written(tmp_path, cases("A") + "  - {id: B}\n")
    machine = "topologies: {m: {nodes: {}}}\nvectors:\n"
    both = read(f"{machine}  - {{id: A, topology: m, policy: x, steps: []}}\n" + "  - 3\n", file)

    assert [vector.id for vector in load(file, ["A"])] == ["A"]
    with pytest.raises(UsageError, match="'topology' is missing"):
        load(file, ["B"])
    with pytest.raises(UsageError, match="'topology' is missing"):
        load(file)
    assert len(both.all_mistakes) == 2


# ---------------------------------------------------------------- the page about them


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
