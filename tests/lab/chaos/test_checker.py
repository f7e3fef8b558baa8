"""The checker sees what is wrong, and only that; it shares no code with criproxy."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri.api_pb2 import CONTAINER_RUNNING
from lab.chaos.checker.cgroups import CpuSet, Group, parse
from lab.chaos.checker.rest import Picture, Wrong, disagreements, problems
from lab.chaos.checker.runtime import Listed, Row, Saved
from tests.lab.chaos.scene import Scene, owner_and_other

ALL = parse("0-3")


def owner_and_sharer(owned: str, shared: str, **changes: object) -> Picture:
    """A node with an owner of two CPUs and a container that shares, as the kernel says; the store agrees."""
    groups = {"o": Group(parse(owned), parse("0")), "s": Group(parse(shared), parse("0"))}
    listed = {key: Listed(key, "pod", "p", key, 0, CONTAINER_RUNNING) for key in groups}
    rows = {}
    for key, group in groups.items():
        exclusive, has = group.cpus if key == "o" else frozenset(), (group.cpus, group.mems)
        rows[key] = Row(key, f"p/{key}", "running", False, group.cpus, exclusive, has)
    picture = Picture(ALL, groups, listed, {"pod"}, Saved(rows, {"pod"}), {"p/o": (2,), "p/s": (0,)})
    return replace(picture, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owned", "shared", "words"),
    [
        pytest.param("1-2", "0,3", "", id="everybody-is-where-they-belong"),
        pytest.param("1", "0,2-3", "lost place: p/o shall own 2 CPUs and runs on 1", id="too-small"),
        pytest.param("1-2", "0-3", "lost place: p/o owns 1,2, and p/s runs on 0,1,2,3", id="not-alone"),
        pytest.param("1-2", "0", "leaked place: p/s runs on 0, owners on 1,2; 3 are withheld", id="withheld"),
    ],
)
def test_places_are_judged_by_the_kernel(owned: str, shared: str, words: str) -> None:
    """Each kind of wrong place has its sentence."""
    assert_told(problems(owner_and_sharer(owned, shared)), words)


def assert_told(found: list[str], words: str) -> None:
    """One sentence has these words; nothing is wrong where there are none."""
    assert any(words in each for each in found) if words else found == []


@pytest.mark.parametrize(
    ("ready", "kept", "words"),
    [
        pytest.param({"u": "k"}, {"main": parse("3")}, "", id="right"),
        pytest.param({}, {"main": parse("3")}, "CPUs are kept for u, which has no sandbox", id="pod-has-ended"),
        pytest.param({"u": "k"}, {"main": parse("0,3")}, "are kept for k/main, which shall own 1 CPUs", id="too-many"),
        pytest.param({"u": "k"}, {"main": parse("1")}, "kept for k/main, and p/o runs on 1,2", id="of-another"),
        pytest.param({"u": "k"}, {}, "3 are withheld", id="for-nobody"),
    ],
)
def test_cpus_are_kept_for_pods_that_are_there(ready: dict[str, str], kept: dict[str, CpuSet], words: str) -> None:
    """Withheld for no other reason, nor from their owners, and no more than their container had."""
    picture = owner_and_sharer("1-2", "0", ready=ready)
    saved = replace(picture.saved, kept={"u": kept})
    assert_told(problems(replace(picture, saved=saved, owns={**picture.owns, "k/main": (1,)})), words)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"cpus": parse("0")}, "was granted 0 and runs on 0,3", id="granted"),
        pytest.param({"applied": None}, "has nothing applied", id="applied"),
        pytest.param({"key": "r-1", "pending": True}, "has a place and no id", id="reservation"),
        pytest.param({"key": "gone"}, "the runtime does not know it", id="gone"),
        pytest.param({"exclusive": parse("0,3")}, "owns 0,3 in the store", id="exclusive"),
    ],
)
def test_the_store_is_compared(row: dict[str, object], words: str) -> None:
    """Each difference has its sentence."""
    picture = owner_and_sharer("1-2", "0,3")
    changed = replace(picture.saved.rows["s"], **row)  # type: ignore[arg-type]
    rows = {**picture.saved.rows, changed.key: changed}

    assert_told(problems(replace(picture, saved=Saved(rows, {"pod"}))), words)


ALARM = "--check complains, and nothing is wrong: "
CPUSETS = "the kubelet's CPU manager also sets cpusets (1 times, last at 12:50: CPUs 0-1 for default/{}); criproxy …"
OWNS = Wrong("lost place: p/o owns 0,1, and p/s runs on 0", frozenset({"p/o", "p/s"}))


@pytest.mark.parametrize(
    ("found", "said", "words"),
    [
        pytest.param([], [], [], id="all-well"),
        pytest.param([OWNS], ["default/p/s should be on CPU 2 but is on 0"], [], id="told"),
        pytest.param([OWNS], [], [f"--check is silent: {OWNS.text}"], id="silent"),
        pytest.param([OWNS], ["CPU 7 …"], [f"--check is silent: {OWNS.text}"], id="about-another"),
        pytest.param([], ["the runtime has failed the last 2 creates of … after criproxy had answered"], [], id="ours"),
        pytest.param([], [CPUSETS.format("p/s")], [], id="our-cpuset"),
        pytest.param([], [CPUSETS.format("p/o")], [f"{ALARM}{CPUSETS.format('p/o')}"], id="no-cpuset-of-ours"),
        pytest.param([], ["CPU 7 …"], [f"{ALARM}CPU 7 …"], id="false-alarm"),
        pytest.param([Wrong("store: …")], [], [], id="what-it-need-not-know"),
    ],
)
def test_check_is_compared(found: list[Wrong], said: list[str], words: list[str]) -> None:
    """``status --check`` must name who is on owned CPUs, and nobody where nothing is wrong."""
    assert list(disagreements(found, said, disturbed={"p/s"})) == words


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """An owner of CPUs 1 and 2, and somebody on CPU 0."""
    return owner_and_other(tmp_path)


def test_two_on_one_cpu_are_seen_once(scene: Scene) -> None:
    """A pair is told when it begins to overlap, and again only when it begins again."""
    told = []
    for cpus in ("0", "0-1", "0-1", "0", "2"):
        scene.run("s", cpus)
        told.append(scene.look())

    assert told[1] == ["two on one CPU: p/o owns 1,2, and p/s runs on 0,1"]
    assert [len(each) for each in told] == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("who", ["s", "o"])
def test_who_only_waits_for_a_start_is_on_no_cpu(scene: Scene, waiting: subprocess.Popen[bytes], who: str) -> None:
    """Until something of it is executed: what a restart of containerd in the middle of a start leaves never is."""
    scene.run("s", "0-1")
    scene.write(who, procs=f"{waiting.pid}\n")
    assert scene.look() == []

    scene.write(who, procs=f"{waiting.pid}\n{os.getpid()}\n")
    assert len(scene.look()) == 1


@pytest.mark.parametrize("who", ["s", "o"])
def test_who_has_ended_in_the_middle_of_a_look_is_on_no_cpu(
    scene: Scene, who: str, waiting: subprocess.Popen[bytes]
) -> None:
    """As one that waited for its start, which was refused."""
    waiting.kill()
    waiting.wait()
    scene.run("s", "0-1")
    scene.write(who, procs=f"{waiting.pid}\n")

    assert scene.look() == []


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"disturbed": "s"}, id="somebody-else-moves-it"),
        pytest.param({"disturbed": "o"}, id="somebody-else-moves-the-owner"),
        pytest.param({"container": "p/o", "owns": [0, 2], "unsettled": True}, id="a-resize-is-under-way"),
    ],
)
def test_what_is_being_moved_is_not_judged_before_the_next_rest(scene: Scene, entry: dict[str, object]) -> None:
    """A line that is written before the change is known when the change is seen."""
    scene.look()
    scene.say(**entry)
    scene.run("s", "0-1")

    assert scene.look() == []
