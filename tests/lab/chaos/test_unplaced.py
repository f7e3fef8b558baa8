"""The checker allows containers that started without a place what criproxy promises about them, and no more."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from lab.chaos.checker.unplaced import Gap, Overlap, Start, Time, Told, told_in, too_long, unlisted
from tests.lab.chaos.scene import Scene, owner_and_other

GAP = Gap(100, 110)
START = Start("p/s", 105)
LISTED = (104.5, 110.8)


def judged(start: Start, listed: Sequence[Time], overlap: Time, gaps: Sequence[Gap] = (GAP,)) -> list[str]:
    """What is wrong with a container that runs beside the owner ``o``, and then leaves its CPUs."""
    told = [Told(f"default/{start.title}", time) for time in listed]
    both = Overlap(("o", "s"), ("p/o", "p/s"), "two on one CPU", overlap)
    return [*unlisted([start], gaps, told), *too_long([both], {"s": start}, gaps, told)]


def assert_words(found: Sequence[str], words: Sequence[str]) -> None:
    """There are as many sentences, and each has its words."""
    assert len(found) == len(words), found
    assert all(each in sentence for each, sentence in zip(words, found, strict=True)), found


@pytest.mark.parametrize(
    ("listed", "overlap", "words"),
    [
        pytest.param([LISTED], (105, 110.7), [], id="as-promised"),
        pytest.param([LISTED], (105, 110.85), [], id="moved-a-moment-after-the-decision"),
        pytest.param([], (105, 110.7), ["not listed: p/s", "is listed at no time"], id="not-listed"),
        pytest.param([(98, 99)], (105, 110.7), ["not listed: p/s", "is listed at no time"], id="only-its-predecessor"),
        pytest.param([(104.5, 109)], (105, 110.7), ["p/s is listed 00:01:44.500 to 00:01:49.000"], id="listed-shorter"),
        pytest.param([(106, 110.8)], (105, 110.7), ["not listed", "at no time"], id="listed-later"),
        pytest.param([(105.3, 110.8)], (105, 110.7), [], id="its-start-ended-later"),
        pytest.param([(104.5, 112.6)], (105, 110.7), ["placed late: p/s"], id="placed-late"),
        pytest.param([(104.5, 112.6)], (105, 112.5), ["placed late", "at 00:01:52.000"], id="overlaps-too-long"),
        pytest.param([LISTED], (111, 111.5), ["p/s is listed"], id="on-them-again"),
        pytest.param([(104.5, 111.9)], (111.4, 111.5), ["p/o may not at 00:01:51.400"], id="its-owner-starts-there"),
    ],
)
def test_each_is_listed_and_leaves_in_time(listed: Sequence[Time], overlap: Time, words: Sequence[str]) -> None:
    """An overlap ends within 2 s after criproxy is back, and within the time that criproxy lists."""
    assert_words(judged(replace(START, former_s=99), listed, overlap), words)


@pytest.mark.parametrize(
    ("begun_s", "gaps", "overlap", "words"),
    [
        pytest.param(110.2, [GAP], (110.2, 110.7), [], id="its-question-was-lost"),
        pytest.param(110.7, [GAP], (110.7, 110.75), ["at 00:01:50.700"], id="started-when-criproxy-was-back"),
        pytest.param(105, [], (105, 106), ["has not been away"] * 2, id="criproxy-was-there"),
        pytest.param(105, [Gap(105.3, 110)], (105, 110), [], id="the-end-of-the-connection-is-seen-later"),
        pytest.param(105, [Gap(100, inf)], (105, 110), [], id="still-away"),
        pytest.param(105, [Gap(100, 106), Gap(107, 110)], (105, 110), [], id="away-again"),
        pytest.param(105, [Gap(100, 106), Gap(109, 110)], (105, 110), ["back since 00:01:46"] * 2, id="back-too-long"),
    ],
)
def test_who_starts_when_criproxy_is_back_meets_nobody(
    begun_s: float, gaps: Sequence[Gap], overlap: Time, words: Sequence[str]
) -> None:
    """The barrier is back with criproxy."""
    assert_words(judged(Start("p/s", begun_s), [LISTED], overlap, gaps), words)


def test_an_owner_that_was_created_in_a_gap_may_share_until_others_have_left() -> None:
    """It starts where it may, and gets CPUs of its own within the same time."""
    told, starts = [Told("default/p/o", (104.5, 113))], {"o": Start("p/o", 112)}

    def found(until_s: float) -> list[str]:
        return [*too_long([Overlap(("o", "s"), ("p/o", "p/s"), "two", (112, until_s))], starts, [GAP], told)]

    assert found(113) == []
    assert_words(found(114.1), ["at 00:01:54.000"])


def test_who_cannot_be_known_need_not_be_listed() -> None:
    """It came and went while criproxy was away, or the database was lost; the overlap ends as any other."""
    start = replace(START, is_excused=True)
    assert judged(start, [], (105, 110.7)) == []
    assert len(judged(start, [], (105, 112.5))) == 1


@pytest.mark.parametrize(
    ("listed", "overlap", "gone", "words"),
    [
        pytest.param([(103, 110.8)], (103, 110.7), (), [], id="listed"),
        pytest.param([], (103, 110.7), (), ["p/o is listed at no time; p/s is listed at no time"], id="not-listed"),
        pytest.param([(90, 95)], (103, 110.7), (), ["p/s is listed 00:01:30.000 to 00:01:35.000"], id="another"),
        pytest.param([], (103, 105), ("s",), [], id="gone-when-criproxy-was-back"),
        pytest.param([], (103, 112.5), ("s",), ["p/s may not at 00:01:52.000"], id="too-long"),
        pytest.param([(98, 110.8)], (98, 110.7), (), ["p/s may not at 00:01:38.000"], id="began-before"),
        pytest.param([(111, 111.5)], (111, 111.5), (), ["p/s may not at 00:01:51.000"], id="began-after"),
    ],
)
def test_who_has_a_place_and_starts_elsewhere(
    listed: Sequence[Time], overlap: Time, gone: Sequence[str], words: Sequence[str]
) -> None:
    """Only in a gap, and listed as those without a place."""
    told = [Told("default/p/s", time) for time in listed]
    both = Overlap(("o", "s"), ("p/o", "p/s"), "two on one CPU", overlap)
    assert_words([*too_long([both], {}, [GAP], told, gone)], words)


def test_events_tell_from_when_to_when() -> None:
    """By the time of the event, or another if they say so."""
    at = {"container": "default/p/s", "time": "1970-01-01T00:01:50.800Z"}
    events = [
        {**at, "facts": {}},
        {**at, "facts": {"unplaced_since_s": 104.5}},
        {**at, "facts": {"unplaced_since_s": 104.5, "unplaced_until_s": 106}},
    ]

    assert [*told_in(events)] == [Told("default/p/s", LISTED), Told("default/p/s", (104.5, 106))]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """An owner of CPUs 1 and 2, and somebody on CPU 0, both with a place and with processes."""
    scene = owner_and_other(tmp_path, tmp_path / "bundles")
    for key in ("o", "s"):
        scene.write(key, procs=f"{os.getpid()}\n")
        bundle(tmp_path, key, {"cpu": {"cpus": "0"}})
    assert scene.look() == []
    scene.say(away=True, at_s=time.time())
    return scene


def bundle(folder: Path, key: str, resources: dict[str, object], kind: str = "container") -> None:
    """What containerd leaves of a specification."""
    names = {"container-type": kind, "sandbox-name": "p", "container-name": key}
    annotations = {f"io.kubernetes.cri.{name}": value for name, value in names.items()}
    (folder / "bundles" / key).mkdir(parents=True)
    specification = {"annotations": annotations, "linux": {"resources": resources}}
    (folder / "bundles" / key / "config.json").write_text(json.dumps(specification))


def test_only_who_has_no_cpus_in_its_specification_is_without_a_place(scene: Scene, tmp_path: Path) -> None:
    """Only that has to be listed; who has a place is told if it is on an owner's CPU."""
    bundle(tmp_path, "u", {"cpu": {"shares": 2}})
    scene.say(id="u", container="p/u")
    for key in ("u", "s"):
        scene.run(key, "0-2")
    scene.write("u", procs=f"{os.getpid()}\n")

    assert scene.look() == []
    words = ["not listed: p/u", "p/o owns 1,2, and p/s runs on 0,1,2", "p/o owns 1,2, and p/u runs on 0,1,2"]
    assert_words(sorted(scene.samples.starts.verdict([])), words)
    assert scene.samples.starts.verdict([]) == []


def test_who_is_listed_is_right(scene: Scene, tmp_path: Path) -> None:
    """As long as it is moved in time."""
    bundle(tmp_path, "u", {})
    scene.say(id="u", container="p/u")
    scene.run("u", "0-2")
    scene.write("u", procs=f"{os.getpid()}\n")
    begun_s = time.time()
    assert scene.look() == []

    assert scene.samples.starts.verdict([Told("default/p/u", (begun_s - 1, begun_s + 1))]) == []
    assert scene.samples.starts.judged == 1


def test_who_executes_nothing_need_not_be_listed(
    scene: Scene, tmp_path: Path, waiting: subprocess.Popen[bytes]
) -> None:
    """Sandboxes are no containers, and who only waits for its start has not started."""
    for key, kind, process in (("x", "sandbox", os.getpid()), ("u", "container", waiting.pid)):
        bundle(tmp_path, key, {}, kind)
        scene.run(key, "0-2")
        scene.write(key, procs=f"{process}\n")

    assert scene.look() == []
    assert scene.samples.starts.verdict([]) == []

    scene.write("u", procs=f"{os.getpid()}\n")
    assert scene.look() == []
    assert_words(scene.samples.starts.verdict([]), ["not listed: p/u"])
