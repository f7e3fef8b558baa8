"""``criproxy simulate --load`` as users type it."""

import json
import re
from pathlib import Path

import pytest

from criproxy.cli.offline.simulate_load import AT_CARDS, MEASURES, informative
from criproxy.placement.records.trace import Header, header_line
from criproxy.simulate.hosts import machine
from tests.cli.offline.test_simulate import simulate

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"
EXAMPLE = ROOT / "docs/examples/loads/mixed.yaml"
SPEC = """
machine: 1s/2n/4c/2t
duration: 5m
every: 5s
pods:
  - {pod: db, qos: guaranteed, cpu: 2, mem: 1Gi, lifetime: 2m}
  - {pod: web, qos: burstable, cpu_req: 250m, lifetime: 1m, weight: 3}
"""


WITHOUT_CARDS = informative(MEASURES, ())
GPUS = ROOT / "docs/examples/loads/gpus.yaml"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A load."""
    path = tmp_path / "mix.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def policies(tmp_path: Path) -> list[str]:
    """The options for two policies."""
    for name in ("static", "none"):
        (tmp_path / f"{name}.yaml").write_text(f"policy: {name}\n")
    return [word for name in ("static", "none") for word in ("--policy", str(tmp_path / f"{name}.yaml"))]


def test_a_table_side_by_side(spec: Path, policies: list[str]) -> None:
    """A line about the load, a column for each policy, a row for each measure."""
    result = simulate("--load", spec, *policies)

    head, columns, *rest = result.stdout.splitlines()
    rows, verdict = rest[: len(WITHOUT_CARDS)], rest[len(WITHOUT_CARDS) :]
    assert result.exit_code == 0
    assert re.fullmatch(r"mix: \d+ containers in 0.0833 h, 8 CPUs on 2 NUMA nodes, \d+ pods not sent .*", head)
    assert columns.split() == ["static", "none"]
    assert [row.split("  ")[0] for row in rows] == [measure.title for measure in WITHOUT_CARDS]
    assert verdict[:2] == ["", "For this load, use static."]


def test_one_policy_alone(spec: Path, policies: list[str]) -> None:
    """There is nothing to choose, so nothing is advised."""
    result = simulate("--load", spec, *policies[:2])

    assert result.stdout.splitlines()[-1].startswith(MEASURES[-1].title)


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    """A short load with cards."""
    path = tmp_path / "gpus.yaml"
    path.write_text(GPUS.read_text().replace("duration: 2h", "duration: 10m"))
    return path


def test_how_many_are_next_to_their_cards(policies: list[str], gpus: Path, tmp_path: Path) -> None:
    """Where containers have cards, the table has a row for it, and the JSON has the numbers."""
    arguments = ["--load", gpus, *policies]

    table = simulate(*arguments).stdout
    static, none = json.loads(simulate(*arguments, "--format", "json").stdout)["policies"]

    (row,) = [line for line in table.splitlines() if line.startswith(AT_CARDS.title)]
    assert row.split()[-4:] == [f"{100 * static['at_cards']:.1f}", "%", "0.0", "%"]
    assert static["with_cards"] == none["with_cards"] > 5
    assert static["at_cards"] > none["at_cards"] == 0


def test_without_cards_there_is_nothing_to_tell(spec: Path, policies: list[str]) -> None:
    """Neither a row nor a number."""
    (only,) = json.loads(simulate("--load", spec, *policies[:2], "--format", "json").stdout)["policies"]

    assert (only["with_cards"], only["at_cards"]) == (0, None)


def test_cards_of_a_real_machine(policies: list[str], gpus: Path, shared_dir: Path, tmp_path: Path) -> None:
    """Its accelerators come before those that the file puts into the machine: eight on NUMA node 0."""
    (tmp_path / "aware.yaml").write_text("policy: topology-aware\n")
    root = shared_dir / "topologies/snapshots/xeon-2s2n-smt-pci.tar.xz"
    more = ["--policy", tmp_path / "aware.yaml", "--host-root", root, "--format", "json"]

    static, _, aware = json.loads(simulate("--load", gpus, *policies, *more).stdout)["policies"]

    assert aware["at_cards"] >= 0.75 > static["at_cards"]  # eight cards ask for more CPUs than that node has


def test_on_another_machine(spec: Path, policies: list[str]) -> None:
    """One that is named comes before that of the file."""
    result = simulate("--load", spec, *policies, "--machine", "2s/4n/16c/2t", "--format", "json")

    assert json.loads(result.stdout)["machine"] == {"cpus": 32, "nodes": 4}


def test_an_empty_trace(policies: list[str], tmp_path: Path) -> None:
    """Nothing happens, and that is said."""
    trace = tmp_path / "quiet.jsonl"
    trace.write_text(header_line(Header(machine())) + "\n")

    result = simulate("--load", trace, *policies)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("quiet: 0 containers in 0 h")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--load", "SPEC"), "give the policies to compare: --policy FILE"),
        (("SPEC", "--load", "SPEC", "--policy", "NONE"), "either a scenario FILE or --load"),
        (("SPEC", "--policy", "NONE", "--policy", "NONE"), "a scenario FILE takes one"),
        ((), "FILE"),
    ],
)
def test_wrong_use(spec: Path, policies: list[str], arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2, and what would be right."""
    words = {"SPEC": str(spec), "NONE": policies[3]}

    result = simulate(*(words.get(argument, argument) for argument in arguments))

    assert result.exit_code == 2
    assert said in result.output + str(result.exception)


def test_the_example(tmp_path: Path) -> None:
    """The load of the documentation is one."""
    short = tmp_path / "short.yaml"
    short.write_text(EXAMPLE.read_text().replace("duration: 3h", "duration: 20m"))
    result = simulate("--load", short, "--policy", ROOT / "policies/topology-aware.yaml", "--format", "json")

    assert json.loads(result.stdout)["policies"][0]["containers"] > 50
