"""One frame of `criproxy top`, on screens of all sizes."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.api.views.top.cards import CardRow, Share
from criproxy.api.views.top.events import Event
from criproxy.api.views.top.machine import blocks_of, owners_of
from criproxy.api.views.top.rates import Rates
from criproxy.api.views.top.scene import Scene, Sort, chosen
from criproxy.api.views.top.snapshot import Row, Snapshot
from criproxy.cli.render import words
from criproxy.cli.screen.render.frame import extent, frame, once
from criproxy.cli.screen.render.lines import Line, middle, width_of
from criproxy.cli.screen.render.view import Page, View, pressed
from criproxy.model.machine.use import MemoryUse
from criproxy.simulate.machines import GIB, machine

SMALL, LARGE = machine(nodes=2, cores=2, threads=2), machine(nodes=8, cores=24, threads=2, packages=2)
HOSTILE = "shop/\\x1b[2J[red]/\u0300\u0300界界界main"
"""As `snapshot` leaves the name of a tenant: printable, and wider or narrower than its characters are many."""
ROWS = (
    Row(id="w", title="shop/web/main", state="running", cpus=frozenset({2, 6}), exclusive=frozenset({2, 6})),
    Row(id="d", title="shop/db/main", state="running", cpus=frozenset(range(8)), memory_limit_bytes=GIB),
    Row(id="h", title=HOSTILE, state="running", cpus=frozenset({3}), in_place=False, error="EBUSY"),
    Row(id="e", title="shop/job/main", state="exited"),
)
CARDS = (
    CardRow(
        "nvidia", "GPU-13f6e2a1-58b4", 0, False, 900, 16384, 40.0, [Share("ml/train/main", 900, 600, 40, 25, True)]
    ),
    CardRow("ascend", "0000:81:00.0", shares=None),
    CardRow("ascend", "0000:82:00.0", shares=[]),
)
START_S = words.seconds("2026-01-01T12:00:00.000Z")
EVENTS = [Event("2026-01-01T12:00:00.000Z", f"event {number}", number == 3) for number in range(30)]


def scene(rows: Sequence[Row] = ROWS, large: bool = False) -> Scene:
    """A node with everything on it."""
    topology = LARGE if large else SMALL
    told = Snapshot(
        source="daemon",
        time="2026-01-01T12:00:00.000Z",
        started="2026-01-01T12:00:00.000Z",
        policy="static",
        notices=[(True, f"trouble {number}") for number in range(4)],
        sets={
            "allowed": topology.cpus,
            "exclusive": frozenset({2, 6}),
            "free": frozenset({1}),
            "reserved": frozenset({0}),
        },
        capacity=7,
        rows=rows,
        pods=3,
    )
    load = {cpu: cpu % 10 / 9 for cpu in topology.online_cpus}
    used = Rates(load, {"w": 1900, "d": 250}, {"w": GIB // 2, "d": GIB - 1}, MemoryUse(16 * GIB, 4 * GIB))
    return Scene(
        host="worker-1", clock="12:00:01", told=told, rates=used, blocks=blocks_of(topology),
        owners=owners_of(told, {}), cards=CARDS, events=EVENTS,
    )  # fmt: skip


def texts(lines: Sequence[Line]) -> list[str]:
    """Without styles."""
    return ["".join(text for text, _ in line) for line in lines]


@given(
    st.integers(1, 250), st.integers(1, 80), st.sampled_from(Page), st.booleans(), st.booleans(), st.integers(0, 1000)
)
def test_a_frame_fits_into_any_screen(
    width: int, height: int, page: Page, large: bool, helping: bool, skipped: int
) -> None:
    """It has as many lines as the screen, and none is wider or moves the cursor."""
    shown = texts(frame(scene(large=large), View(page=page, helping=helping, skipped=skipped), width, height))

    assert len(shown) == height
    assert all(width_of(text) <= width for text in shown)
    assert all(text.isprintable() for text in shown)


def test_the_usual_screen_shows_everything() -> None:
    """80 columns and 24 lines: node, problems, CPUs, containers by use, devices, events, keys."""
    shown = texts(frame(scene(), View(), 80, 24))

    assert shown[0].startswith(" criproxy top  worker-1  policy static")
    assert "exclusive 2 of 7  free 1" in shown[1]
    assert shown[2:5] == ["WRONG: trouble 0", "WRONG: trouble 1", "2 more; criproxy status --check"]
    assert any("a exclusive" in text for text in shown)
    names = [text.split()[-1] for text in shown if "shop/" in text]
    assert names[:2] == ["shop/web/main", "shop/db/main"]
    assert any("GPU-13" in text and "UNHEALTHY" in text for text in shown)
    assert any(text.startswith("── Devices 1 more line; press 4 to show all ─") for text in shown)
    assert any("event 29" in text for text in shown)
    assert "q quit" in shown[-1]


def test_a_scene_has_its_time_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen screen is drawn again and again, and stays the same."""
    for now_s in (START_S + 100.0, START_S + 200.0):
        clock = SimpleNamespace(time=lambda now_s=now_s: now_s, strptime=time.strptime)
        monkeypatch.setattr(words, "time", clock)

        assert "  up 1 min 5 s " in texts(frame(replace(scene(), at_s=START_S + 65.0), View(frozen=True), 80, 24))[0]


def test_the_help_fits_on_the_usual_screen_and_explains_the_marks() -> None:
    """The map has no CPU that is offline: its mark is for one that the daemon does not know to be online yet."""
    shown = texts(frame(Scene(), View(helping=True), 80, 24))

    (line,) = [text for text in shown if text.startswith("- x ")]
    assert line.split(maxsplit=2)[2] == "not for pods; has just come online"
    assert "Press any key to go back." in shown


@pytest.mark.parametrize("width", [40, 59, 60, 80, 110, 200])
def test_names_are_shown_on_every_screen(width: int) -> None:
    """A list of numbers without the names to which they belong would be of no use."""
    shown = texts(frame(scene(), View(page=Page.CONTAINERS), width, 12))

    assert any("shop/web/main" in text for text in shown)
    assert any("CONTAINER" in text for text in shown)


@pytest.mark.parametrize("width", [80, 110, 200])
def test_what_containers_use_of_a_card_is_below_what_the_card_has(width: int) -> None:
    """So that the amounts can be compared, on a wide screen, too."""
    card, share = [text for text in texts(frame(scene(), View(page=Page.DEVICES), width, 12)) if "900 of" in text]

    assert card.index(" MiB") == share.index(" MiB")


@given(st.integers(40, 250), st.integers(10, 80), st.booleans())
def test_no_part_is_only_a_heading(width: int, height: int, large: bool) -> None:
    """What has no room for a line of its own is left out with its heading."""
    shown = texts(frame(scene(large=large), View(), width, height))

    for text, below in pairwise(shown):
        if text.startswith(("── Devices", "── Events")):
            assert not below.startswith(("──", " 1 all"))


def test_384_cpus_are_a_character_each_by_socket_and_node() -> None:
    """All of them fit into 80x24, with room for containers."""
    shown = texts(frame(scene(large=True), View(), 80, 24))
    bars = [text for text in shown if sum(text.count(bar) for bar in "▁▂▃▄▅▆▇█") > 40]

    assert len(bars) == 8
    assert [text[:15].split() for text in bars][:5:4] == [["socket", "0", "node", "0"], ["socket", "1", "node", "4"]]
    assert sum("shop/" in text for text in shown) >= 1


def test_a_tall_screen_has_marks_below_the_bars() -> None:
    """So that owners can be told without colours; the list of containers has the same marks."""
    shown = texts(frame(scene(large=True), View(), 160, 60))

    assert any("a" in text and text.count("·") > 40 for text in shown)
    assert any(text.startswith("a") and "shop/web/main" in text for text in shown)


@pytest.mark.parametrize(
    ("text", "sort", "reverse", "names"),
    [
        pytest.param("", Sort.CPU, False, "wdh", id="cpu"),
        pytest.param("", Sort.MEMORY, False, "dwh", id="memory"),
        pytest.param("", Sort.EXCLUSIVE, False, "whd", id="exclusive"),
        pytest.param("", Sort.NAME, False, "hdw", id="name"),
        pytest.param("", Sort.NAME, True, "wdh", id="reversed"),
        pytest.param("SHOP/W", Sort.CPU, False, "w", id="filter"),
        pytest.param("[red]", Sort.CPU, False, "h", id="filter-is-text"),
    ],
)
def test_the_order_of_containers(text: str, sort: Sort, reverse: bool, names: str) -> None:
    """What has ended is left out; of what nobody knows the use, it comes last."""
    assert "".join(row.id for row in chosen(scene(), text, sort, reverse=reverse)) == names


def test_a_container_that_is_not_where_it_should_be_says_why() -> None:
    """In its line."""
    (shown,) = [text for text in texts(frame(scene(), View(page=Page.CONTAINERS), 100, 24)) if "[red]" in text]

    assert "shared !" in shown
    assert "EBUSY" in shown


def test_before_the_first_answer() -> None:
    """The load of the machine is shown, and why there is no more."""
    shown = texts(frame(Scene(problem="no daemon listens", blocks=blocks_of(SMALL)), View(), 80, 24))

    assert "no daemon listens" in shown[2]
    assert any("no answer" in text for text in shown)
    assert any("waiting" in text for text in texts(frame(Scene(), View(), 80, 24)))


@pytest.mark.parametrize("large", [False, True], ids=["8-cpus", "384-cpus"])
@pytest.mark.parametrize("page", Page)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 30), (60, 18), (160, 50), (40, 120)])
def test_page_down_leaves_no_line_out(width: int, height: int, page: Page, large: bool) -> None:
    """From the top to the end, the screens show each line of the list, in as few turns as possible."""
    many = [replace(ROWS[1], id=f"id{number}", title=f"ns/p{number}/c") for number in range(30)]
    node, view, seen = scene(many, large=large), View(page=page), set[str]()
    there = extent(node, view, width, height)
    for _ in range(ceil(there.count / there.room)):
        seen |= listed(frame(node, view, width, height))
        turned = pressed(view, "pagedown", there.room, there.last)
        assert turned is not None
        view = turned

    every = listed(frame(node, View(page=page), width, 2000))
    assert {text for text in every if page is not Page.ALL or "ns/p" in text} <= seen


def listed(lines: Sequence[Line]) -> set[str]:
    """What lists have on a screen: all lines but headings, which have numbers in them."""
    return {text for text in texts(lines) if text and not text.startswith("── ")}


def test_once_has_all_lines() -> None:
    """However many there are."""
    many = [replace(ROWS[1], id=f"id{number}", title=f"ns/p{number}/c") for number in range(500)]
    shown = texts(once(scene(many, large=True), View(), 1 << 16))

    assert sum(text.rstrip().endswith("/c") for text in shown) == 500
    assert sum("event" in text for text in shown) == 30


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        pytest.param("shop/web/main", 13, "shop/web/main", id="fits"),
        pytest.param("shop/web/main", 15, "shop/web/main  ", id="filled"),
        pytest.param("shop/web-7f9c-x2/main", 13, "shop/w…2/main", id="without-its-middle"),
        pytest.param("界界界界界界", 9, "界界…界界", id="wide"),
    ],
)
def test_a_long_name_keeps_its_ends(text: str, width: int, expected: str) -> None:
    """The end tells names of one owner apart."""
    assert middle(text, width) == expected
