"""The table of candidates on a terminal."""

from rich.console import Group

from criproxy.api.views.candidates import values
from criproxy.cli.render.candidates import render_choices
from criproxy.placement.alloc.rank import Candidates, Measure, Row, Unit
from criproxy.placement.answers.choice import Choice, Decided
from criproxy.placement.answers.leavers import Leavers
from tests.asking import printed

MEASURES = (
    Measure("it is already there"),
    Measure("its memory fits"),
    Measure("it is smaller", Unit.FEWER),
    Measure("it has more memory", Unit.MORE_BYTES),
    Measure("it has more free CPU", Unit.MORE_MILLI),
)
GIB = 1 << 30
ROWS = (
    Row("NUMA node 1", (1, 0, 0, -GIB, -2500)),
    Row("NUMA node 0", (1, 0, 0, -GIB, 250)),
    Row("NUMA node 3", (1, 0, 0, -GIB, 250)),
    Row("the machine", (1, 1, 2, -4 * GIB, -9000)),
    Row("NUMA node 2", lacks="2 CPUs"),
)
TABLE = Candidates("pools", MEASURES, ROWS, "NUMA node 1", omitted=7)


def shown(*choices: Choice, width: int = 80) -> list[str]:
    """What a terminal of that width shows, line by line."""
    told = [values(choice, "2026-11-20T12:31:05.100Z") for choice in choices]
    return printed(Group(*render_choices(told)), width)


def test_criteria_in_which_they_differ_are_columns() -> None:
    """Numbered, with their names above; the others are named below."""
    assert shown(Choice(Decided.PLACED, TABLE)) == [
        "",
        "How the pools compared when it was placed, at 12:31:05 UTC",
        "  1  its memory fits",
        "  2  it is smaller (lower is better)",
        "  3  it has more memory",
        "  4  it has more free CPU",
        "  pools          1  2      3      4",
        "  NUMA node 1  yes  0  1 GiB    2.5  chosen by criterion 4",
        "  NUMA node 0  yes  0  1 GiB  -0.25  lost on criterion 4",
        "  NUMA node 3  yes  0  1 GiB  -0.25  lost on criterion 4",
        "  the machine   no  2  4 GiB      9  lost on criterion 1",
        "  NUMA node 2                        lacks 2 CPUs",
        "  and 7 more",
        "  the same for all: it is already there",
    ]


def test_those_alike_come_in_their_order() -> None:
    """No criterion is named where none decided; a note is told."""
    rows = (Row("a", (1,), note="its pod is there"), Row("b", (1,)))
    table = Candidates("balloons", (Measure("x"),), rows, "a", "its annotation names the type")

    assert shown(Choice(Decided.RESIZED, table))[2:] == [
        "  its annotation names the type",
        "  balloons",
        "  a         its pod is there; chosen",
        "  b         equal, but comes later",
        "  the same for all: x",
    ]


def test_one_chosen_without_room_says_both() -> None:
    """What it lacks is no reason against it, where all lack something."""
    table = Candidates("pools", (), (Row("the machine", lacks="200m"),), "the machine", "no pool has that much left")

    assert "  the machine  chosen; lacks 200m" in shown(Choice(Decided.NOW, table))


def test_who_would_have_to_leave_follows() -> None:
    """Each on a line, and then how sure that is."""
    lines = shown(Choice(Decided.REFUSED, None, Leavers(("shop/a/main", "shop/b/main"), omitted=1)))

    assert lines == [
        "",
        "Which containers would have to leave for it to fit, at 12:31:05 UTC",
        "  shop/a/main",
        "  shop/b/main",
        "  and 1 more",
        "  it would fit without these 3 containers; a shorter list may exist: the search",
        "  was cut short",
    ]


def test_a_narrow_terminal_cuts_nothing() -> None:
    """Names and reasons are folded, numbers stay whole."""
    lines = shown(Choice(Decided.PLACED, TABLE), width=40)

    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)
    assert any("1 GiB" in line for line in lines)
