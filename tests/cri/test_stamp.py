"""The annotation that says who a container is and what it asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri.stamp import ANNOTATION, MISSED, Stamp, missed_text, read_missed, read_stamp
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
