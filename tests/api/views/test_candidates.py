"""What decisions were chosen from, as `criproxy explain` tells it."""

import pytest

from criproxy.api.views.candidates import recorded, values
from criproxy.model.record import Fact, Kind, Record
from criproxy.placement.alloc.rank import Candidates, Measure, Row, Unit
from criproxy.placement.answers.choice import Choice, Decided
from criproxy.placement.answers.leavers import Leavers

MEASURES = (Measure("it is already there"), Measure("it is smaller", Unit.FEWER), Measure("more", Unit.MORE_MILLI))
ROWS = (Row("node 1", (1, 0, -500)), Row("node 0", (1, 0, 200)), Row("all", (1, 2, -9)), Row("node 2", lacks="1 CPU"))
TABLE = Candidates("pools", MEASURES, ROWS, "node 1", "before", 2)


def record(facts: dict[str, Fact]) -> Record:
    """A record of the history that tells of a choice."""
    return Record(1.25, "r-1", "shop/web/main", Kind.CONSIDERED, (), "r-1", facts)


def test_candidates_as_json() -> None:
    """Values as people mean them, by what each loses to the first, and what those without room lack."""
    (told,) = recorded([record(Choice(Decided.PLACED, TABLE).facts())])

    assert told == {
        "time": "1970-01-01T00:00:01.250Z",
        "decision": "placed",
        "candidates": {
            "of": "pools",
            "chosen": "node 1",
            "decided_by": "more",
            "note": "before",
            "criteria": [
                {"name": "it is already there", "unit": "holds"},
                {"name": "it is smaller", "unit": "fewer"},
                {"name": "more", "unit": "more-milli"},
            ],
            "rows": [
                {"name": "node 1", "values": [False, 0, 500], "loses_by": None, "lacks": "", "note": ""},
                {"name": "node 0", "values": [False, 0, -200], "loses_by": "more", "lacks": "", "note": ""},
                {"name": "all", "values": [False, 2, 9], "loses_by": "it is smaller", "lacks": "", "note": ""},
                {"name": "node 2", "values": [], "loses_by": None, "lacks": "1 CPU", "note": ""},
            ],
            "omitted": 2,
        },
        "leavers": None,
    }


@pytest.mark.parametrize(
    ("leavers", "said"),
    [
        pytest.param(
            Leavers(("a",), shortest=True), "it would fit without this container; no shorter list makes room", id="one"
        ),
        pytest.param(
            Leavers(("a", "b"), omitted=3),
            "it would fit without these 5 containers; a shorter list may exist: the search was cut short",
            id="many",
        ),
        pytest.param(
            Leavers(shortest=True),
            "it would not fit even without the containers of all other pods",
            id="larger-than-the-node",
        ),
        pytest.param(
            Leavers(steps=100),
            "a search of 100 steps found no list of containers whose removal makes room",
            id="cut-short",
        ),
    ],
)
def test_who_would_have_to_leave(leavers: Leavers, said: str) -> None:
    """In a sentence that says how sure it is."""
    told = values(Choice(Decided.REFUSED, None, leavers), "")

    assert told["leavers"]["text"] == said
    assert (told["candidates"], told["leavers"]["containers"]) == (None, list(leavers.containers))


@pytest.mark.parametrize("facts", [{}, {"decided": "guessed"}, {"decided": "placed", "candidates": {"of": 3}}])
def test_what_cannot_be_read_is_left_out(facts: dict[str, Fact]) -> None:
    """Another version may have written it in its own way."""
    assert list(recorded([record(facts)])) == []
