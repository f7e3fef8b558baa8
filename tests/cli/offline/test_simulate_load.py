"""``criproxy simulate --load`` as users type it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from criproxy.cli import main
from criproxy.cli.pictures.load_measures import AT_CARDS, MEASURES, informative
from criproxy.cli.pictures.load_pictures import LEGEND
from criproxy.placement.records.trace import Header, header_line
from criproxy.simulate.machines import machine

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


def simulate(*arguments: object) -> Result:
    """What the command says."""
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


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


def test_one_policy_alone(spec: Path, policies: list[str], tmp_path: Path) -> None:
    """There is nothing to choose, so nothing is advised, neither in the table nor on the page."""
    page = tmp_path / "page.html"

    result = simulate("--load", spec, *policies[:2], "--html", page)

    assert result.stdout.splitlines()[-1].startswith(MEASURES[-1].title)
    assert "<h1>A policy under a load</h1>" in page.read_text()
    assert "take static" not in page.read_text()
    assert "★" not in page.read_text()


def test_json(spec: Path, policies: list[str]) -> None:
    """The same for programs, and the same each time."""
    first, again = (simulate("--load", spec, *policies, "--format", "json") for _ in range(2))

    values = json.loads(first.stdout)
    assert first.stdout == again.stdout
    assert values["machine"] == {"cpus": 8, "nodes": 2}
    assert [each["policy"] for each in values["policies"]] == ["static", "none"]
    assert values["policies"][0]["containers"] == values["policies"][1]["containers"]
    assert values["policies"][1]["distance"] == 15
    assert values["take"] == ["static"]
    assert {measure.key for measure in MEASURES} <= values["policies"][0].keys()


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    """A short load with cards."""
    path = tmp_path / "gpus.yaml"
    path.write_text(GPUS.read_text().replace("duration: 2h", "duration: 10m"))
    return path


def test_how_many_are_next_to_their_cards(policies: list[str], gpus: Path, tmp_path: Path) -> None:
    """Where containers have cards, the table has a row for it, the page explains it, and the JSON has the numbers."""
    page, arguments = tmp_path / "page.html", ["--load", gpus, *policies]

    table = simulate(*arguments, "--html", page).stdout
    static, none = json.loads(simulate(*arguments, "--format", "json").stdout)["policies"]

    (row,) = [line for line in table.splitlines() if line.startswith(AT_CARDS.title)]
    assert row.split()[-4:] == [f"{100 * static['at_cards']:.1f}", "%", "0.0", "%"]
    assert AT_CARDS.meaning in page.read_text()
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
    more = ["--policy", tmp_path / "aware.yaml", "--host-root", root, "--nodes", "2", "--format", "json"]

    static, _, aware = json.loads(simulate("--load", gpus, *policies, *more).stdout)["policies"]

    assert aware["at_cards"] > 0.75 > static["at_cards"]  # eight cards ask for more CPUs than that node has


def test_on_another_machine(spec: Path, policies: list[str]) -> None:
    """One that is named comes before that of the file."""
    result = simulate("--load", spec, *policies, "--machine", "2s/4n/16c/2t", "--format", "json")

    assert json.loads(result.stdout)["machine"] == {"cpus": 32, "nodes": 4}


def test_a_page_that_needs_nothing_else(spec: Path, policies: list[str], tmp_path: Path) -> None:
    """It has a picture of the CPUs for each policy, valid SVG, every measure, and nothing from elsewhere."""
    page = tmp_path / "page.html"

    assert simulate("--load", spec, *policies, "--html", page).exit_code == 0

    text = page.read_text()
    HTMLParser().feed(text)
    drawn = [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]  # noqa: S314
    titles = [picture.findtext(f"{SVG}title") or "" for picture in drawn if picture.get("role") == "img"]
    assert [title.partition(":")[0] for title in titles[-2:]] == ["CPUs by static", "CPUs by none"]
    assert all(picture.get("role") == "img" or picture.get("aria-hidden") == "true" for picture in drawn)
    assert all(measure.title in text and measure.meaning.replace("'", "&#x27;") in text for measure in WITHOUT_CARDS)
    assert AT_CARDS.title not in text
    assert not re.search(r"<script|<link|<img|src=|url\(|@import", text)


def test_the_page_tells_which_to_take(spec: Path, policies: list[str], tmp_path: Path) -> None:
    """First of all, with the reason; then what each policy is, and the best numbers are marked by more than colour."""
    page = tmp_path / "page.html"

    simulate("--load", spec, *policies, "--html", page)

    text = page.read_text()
    assert text.index("<h2>For this load, use static</h2>") < text.index("<h2>What each policy does</h2>")
    assert (
        "<p>Why: its containers are nearest to their memory, "
        "and no other policy is noticeably better in a more important measure.</p>" in text
    )
    assert "Exclusive whole CPUs, and one shared pool that is never empty." in text
    assert re.search(r'<td class="best"><span title="best">★</span> 1\d\.\d</td><td>15\.0</td>', text)
    assert "all policies do the same" in text  # nobody is refused: the lines of how many have a place are one


def test_pictures_show_what_their_legends_say(spec: Path, policies: list[str], tmp_path: Path) -> None:
    """Every class of a picture is in the legend and has a colour, on light and on dark screens."""
    page = tmp_path / "page.html"

    simulate("--load", spec, *policies, "--html", page)

    text = page.read_text()
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    shades = {shade for _, shade in LEGEND}
    assert set(re.findall(r'<path class="(\w+)" d="M[\d.]+ [\d.]+h', text)) - {"grid"} <= shades
    for shade in shades:
        assert f"--{shade}: #" in light
        assert f"--{shade}: #" in dark
        assert f".{shade} {{ fill: var(--{shade}) }}" in dark


def test_names_are_no_markup(spec: Path, tmp_path: Path) -> None:
    """A file may be called anything, and the page shows just that."""
    policy, page = tmp_path / "<b>&.yaml", tmp_path / "page.html"
    policy.write_text("policy: none\n")

    simulate("--load", spec, "--policy", policy, "--html", page)

    assert "&lt;b&gt;&amp;" in page.read_text()
    assert "<b>&" not in page.read_text()


def test_an_empty_trace(policies: list[str], tmp_path: Path) -> None:
    """Nothing happens, and that is said."""
    trace, page = tmp_path / "quiet.jsonl", tmp_path / "page.html"
    trace.write_text(header_line(Header(machine())) + "\n")

    result = simulate("--load", trace, *policies, "--html", page)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("quiet: 0 containers in 0 h")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--load", "SPEC"), "give the policies to compare: --policy FILE"),
        (("SPEC", "--load", "SPEC", "--policy", "NONE"), "either a scenario FILE or --load"),
        (("SPEC", "--html", "page.html"), "--html is for --load"),
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


def test_a_page_that_cannot_be_written(spec: Path, policies: list[str], tmp_path: Path) -> None:
    """Exit status 1, and where."""
    result = simulate("--load", spec, *policies, "--html", tmp_path / "none/page.html")

    assert result.exit_code == 1
    assert "page.html cannot be written" in result.output + str(result.exception)


def test_the_example() -> None:
    """The load of the documentation is one."""
    result = simulate("--load", EXAMPLE, "--policy", ROOT / "policies/topology-aware.yaml", "--format", "json")

    assert json.loads(result.stdout)["policies"][0]["containers"] > 500


def test_a_fleet(spec: Path, policies: list[str]) -> None:
    """Each node has the load of the next seed: counts are the sums of what the nodes have by themselves."""
    alone = []
    for seed in (0, 1):
        spec.write_text(f"{SPEC}seed: {seed}\n")
        alone.append(json.loads(simulate("--load", spec, *policies, "--format", "json").stdout))
    spec.write_text(SPEC)

    result = simulate("--load", spec, *policies, "--nodes", 2, "--format", "json")

    fleet = json.loads(result.stdout)
    assert fleet["nodes"] == 2
    assert fleet["turned_away_pods"] == sum(node["turned_away_pods"] for node in alone)
    for place, values in enumerate(fleet["policies"]):
        for key in ("containers", "refused", "updates", "moves"):
            assert values[key] == sum(node["policies"][place][key] for node in alone)


def test_a_trace_is_of_one_node(policies: list[str], tmp_path: Path) -> None:
    """Nobody knows what other nodes were asked."""
    trace = tmp_path / "quiet.jsonl"
    trace.write_text(header_line(Header(machine())) + "\n")

    result = simulate("--load", trace, *policies, "--nodes", 2)

    assert result.exit_code == 2
    assert "--nodes is for loads that are made" in result.output + str(result.exception)
