"""The annotation that says who a container is and what it asked for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import (
    ANNOTATION,
    MISSED,
    Stamp,
    missed_text,
    never_to_start,
    pod_totals,
    read_missed,
    read_stamp,
    stamped,
)
from criproxy.cri.translate import annotations_in
from criproxy.model.resources import MAX_MACHINE_MILLI
from criproxy.model.workload import Miss, Missed

STAMP = Stamp("r-1", "Guaranteed", cpu_milli=2000, cpu_limit_milli=2000, memory_limit_bytes=64, hints="0;1", stays=True)


def test_a_stamp_reads_back_as_it_was_written() -> None:
    """What CreateContainer got is what a later list gives back."""
    assert read_stamp({ANNOTATION: STAMP.to_text(), "io.kubernetes.container.hash": "1a"}) == STAMP


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no-json"),
        pytest.param("[]", id="no-object"),
        pytest.param('{"reservation":"r"}', id="class-missing"),
        pytest.param('{"reservation":1,"qos":"Burstable"}', id="id-is-a-number"),
    ],
)
def test_a_foreign_value_is_no_stamp(text: str) -> None:
    """A value that we cannot have written counts as none, without an error."""
    assert read_stamp({ANNOTATION: text}) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            missed_text(Missed(why=Miss.FAILED, since_s=1.5)), Missed(why=Miss.FAILED, since_s=1.5), id="ours"
        ),
        pytest.param('{"why": "failed", "more": 1}', Missed(why=Miss.FAILED), id="newer"),
        pytest.param('{"why": "bored"}', None, id="another-reason"),
        pytest.param("[" * 100_000, None, id="too-deep"),
        pytest.param('{"why": ["failed"]}', None, id="no-word"),
        pytest.param('{"why": "failed", "since_s": "x"}', None, id="no-time"),
        pytest.param("[]", None, id="no-object"),
        pytest.param("{", None, id="no-json"),
    ],
)
def test_why_a_container_has_no_place_is_read_from_its_annotation(value: str, expected: Missed | None) -> None:
    """What cannot be ours says nothing."""
    assert read_missed({MISSED: value}) == expected
    assert read_missed({}) is None


def test_in_a_specification_a_pod_cannot_forge_a_stamp() -> None:
    """Runtimes copy annotations of pods there, and no pod knows the ids of its containers when it is written."""
    ours, forged = STAMP.to_text(), Stamp("r-2", "Guaranteed", cpu_milli=64_000).to_text()
    annotations = {ANNOTATION: forged, MISSED: "{}", f"{MISSED}.c2": "{}", f"{ANNOTATION}.c1": ours}
    info = {"info": json.dumps({"runtimeSpec": {"annotations": annotations}})}

    assert annotations_in("c1", info) == {ANNOTATION: ours}


def test_no_annotation_is_no_stamp() -> None:
    """A container created beside criproxy has none."""
    assert read_stamp({}) is None


def test_what_a_newer_version_added_is_left_out() -> None:
    """Unknown keys, and known ones of an unexpected type, do not hide who the container is."""
    text = '{"reservation":"r","qos":"Burstable","pool":"fast","cpu_milli":"many"}'

    assert read_stamp({ANNOTATION: text}) == Stamp("r", "Burstable")


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    """The annotation of somebody else's container may hold anything."""
    assert read_stamp({ANNOTATION: text}) is None or text.lstrip().startswith("{")


# ---------------------------------------------------------------- of listed containers


def ours(name: str, *, pod_cpu_milli: int = 0, created_at: int = 0) -> api.Container:
    """A container of ours in the sandbox s, created under the reservation r-NAME."""
    stamp = Stamp(f"r-{name}", "Guaranteed", pod_cpu_milli=pod_cpu_milli).to_text()
    return api.Container(id=name, pod_sandbox_id="s", created_at=created_at, annotations={ANNOTATION: stamp})


FOREIGN = api.Container(id="foreign", pod_sandbox_id="s")


@pytest.mark.parametrize(
    ("sandbox", "container", "expected"),
    [
        pytest.param(api.SANDBOX_NOTREADY, api.CONTAINER_CREATED, {"c"}, id="left-by-a-reboot"),
        pytest.param(api.SANDBOX_READY, api.CONTAINER_CREATED, set(), id="about-to-start"),
        pytest.param(api.SANDBOX_NOTREADY, api.CONTAINER_RUNNING, set(), id="runs"),
    ],
)
def test_what_was_created_in_an_ended_sandbox_never_starts(sandbox: int, container: int, expected: set[str]) -> None:
    """Only that: what runs ends by itself."""
    sandboxes = [api.PodSandbox(id="s", state=sandbox)]  # type: ignore[arg-type]
    items = [api.Container(id="c", pod_sandbox_id="s", state=container)]  # type: ignore[arg-type]

    assert never_to_start(sandboxes, items) == expected


def test_a_container_of_ours_is_found_by_its_reservation() -> None:
    """Among those of others and other ones of ours."""
    items = [FOREIGN, ours("a"), ours("b")]

    assert stamped(items, "r-b") is items[2]
    assert stamped(items, "r-c") is None


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([FOREIGN, ours("a")], {}, id="nobody-says"),
        pytest.param(
            [ours("late", pod_cpu_milli=3000, created_at=2), ours("early", pod_cpu_milli=2000, created_at=1)],
            {"s": 3000},
            id="the-last-one-counts",
        ),
        pytest.param([ours("a", pod_cpu_milli=1 << 60)], {"s": MAX_MACHINE_MILLI}, id="more-than-any-machine-has"),
    ],
)
def test_the_cpu_of_a_pod_is_that_of_its_last_stamp(items: list[api.Container], expected: dict[str, int]) -> None:
    """An older container was created before a resize of the pod."""
    assert pod_totals(items) == expected
