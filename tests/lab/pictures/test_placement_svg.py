"""Pictures of placements: which container may run where."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from criproxy.simulate.scenario.seen import Moment, Placed
from lab.pictures.placement_columns import columns_of
from lab.pictures.placement_svg import draw, draw_case, words
from tests.placement.policies import shapes

SVG = "{http://www.w3.org/2000/svg}"
TWO = shapes.shaped([["0-3"], ["4-7"]])
CASES = """
topologies:
  two: {threads: consecutive, nodes: {0: {cpus: 0-3, mem: 2G}, 1: {cpus: 4-7, mem: 2G}}}
vectors:
  - id: V1
    title: an owner <pushes> others
    topology: two
    policy: static
    config: {reserved: "cpuset:0"}
    steps:
      - create: {pod: web, qos: besteffort, count: 2}
      - expect: [{c: webc0, cpus: 0-7}]
      - create: {pod: db, qos: guaranteed, cpu: 2}
      - create: {pod: big, qos: guaranteed, cpu: 9, expect: error}
      - delete: [web]
  - id: V2
    applies: [crirm, nri]
    topology: two
    policy: none
    steps: [{create: {pod: p, qos: besteffort}}]
  - {id: function, kind: unit, call: best_pool}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Some cases."""
    path = tmp_path / "cases.yaml"
    path.write_text(CASES)
    return path


def texts(svg: str) -> list[str]:
    """All lines of text in a picture, in its order."""
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


def bars(svg: str, css: str) -> list[tuple[int, int]]:
    """The left and right end of each bar of a class, the legend's left out."""
    found = [each for each in ET.fromstring(svg).iter(f"{SVG}rect") if each.get("class") == css]  # noqa: S314
    return [(int(each.attrib["x"]), int(each.attrib["x"]) + int(each.attrib["width"])) for each in found[:-1]]


def test_a_panel_for_each_moment(file: Path) -> None:
    """Where something is expected and at the end, with what has happened; each container of a pod by its name."""
    assert texts(draw_case(file, "V1")) == [
        *("an owner <pushes> others", "NUMA node 0", "NUMA node 1", *map(str, range(8))),
        *("web starts", "web c0", "web c1"),
        *("db starts; big is refused; web ends", "db"),
        *("these CPUs are exclusive to it", "these CPUs are shared", "memory of these NUMA nodes"),
    ]


def test_a_bar_is_over_its_cpus() -> None:
    """Neighbours are one bar; what is owned and what is shared are told apart; memory is below as wide as its nodes."""
    columns = columns_of(TWO)
    placed = Placed(frozenset({0, 1, 2, 4}), frozenset({1}), exclusive=frozenset({0, 1}), pod="p")

    svg = draw("t", TWO, [Moment(("p starts",), {"pc0": placed})])

    at = {span.id: span for span in columns.cpus}
    left = bars(svg, "own")[0][0] - at[0].x
    assert bars(svg, "own") == [(left + at[0].x, left + at[1].end)]
    assert bars(svg, "shared") == [(left + at[cpu].x, left + at[cpu].end) for cpu in (2, 4)]
    assert bars(svg, "memory") == [(left + columns.nodes[1].x, left + columns.nodes[1].end)]


def test_the_same_in_words() -> None:
    """For those who cannot see it; who is in a pool of some name is called so."""
    placed = {
        "pc0": Placed(frozenset({0, 1}), frozenset({0}), exclusive=frozenset({0}), pod="p", pool="gold[0]"),
        "q": Placed(frozenset(range(8)), frozenset({0, 1})),
    }
    first = Moment(("p starts", "q starts", "r is refused", "s is refused", "11 s pass"), placed)

    assert words(TWO, [first, Moment(("p ends", "q ends"), {})]) == (
        "p, q start; r, s are refused; 11 s pass: p in gold[0] has CPU 0 exclusively and shares CPU 1, memory of "
        "NUMA node 0; q shares CPUs 0-7, memory of all NUMA nodes. p, q end: no container is placed."
    )
