"""What is remembered of a decision is bounded, whatever was said about it."""

from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.record.outbox import record_of
from criproxy.node.record.refusals import Refusals
from criproxy.placement.records.history import Entry


def test_a_record_keeps_the_first_sentences_and_says_how_many_there_were() -> None:
    """Of 8,000 sentences the history has sixteen, and each is cut; so are texts among the facts."""
    about = Container(key="k", pod="s", name="c")
    sentences = tuple(f"annotation {number} is not acted on" for number in range(8000))
    record = record_of(Entry(about, Kind.GRANTED, sentences, {"pool": "p" * 5000, "n": 1}), Refusals())
    assert len(record.sentences) == 17
    assert record.sentences[-1] == "and 7984 more"
    assert len(str(record.facts["pool"])) < 2100
    record = record_of(Entry(about, Kind.REFUSED, ("x" * 300_000,), {}), Refusals())
    assert record.sentences[0].endswith("… (298000 more characters)")


def test_what_status_lists_as_refused_is_short() -> None:
    """It is sent to whoever asks, again and again."""
    refusals = Refusals()
    record_of(Entry(Container(key="k", pod="s", name="c"), Kind.REFUSED, ("x" * 300_000,), {}), refusals)
    (refusal,) = refusals.listed()
    assert len(refusal.text) < 2100
