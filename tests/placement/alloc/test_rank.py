"""A choice is a sort by named criteria, and can be explained: as a table, with what decided and what others lack."""

from criproxy.model.text.plain import from_plain, to_plain
from criproxy.placement.alloc.rank import Candidate, Candidates, Criterion, Measure, Row, Unit, compared


def candidate(index: int, *values: int) -> Candidate:
    """A candidate with a criterion for each value."""
    return Candidate(index, f"pool {index}", tuple(Criterion(f"c{i}", value) for i, value in enumerate(values)))


ORDER = [candidate(2, 0, 1), candidate(0, 0, 3), candidate(1, 4, 0)]
TABLE = compared("pools", ORDER, [Row("pool 3", lacks="2 CPUs")])


def test_the_first_is_chosen_by_what_differs_first() -> None:
    """Between the first two, and between any two."""
    assert (TABLE.chosen, TABLE.decided_by) == ("pool 2", Measure("c1"))
    assert TABLE.between(TABLE.rows[0], TABLE.rows[2]) == Measure("c0")
    assert TABLE.between(TABLE.rows[0], TABLE.rows[3]) is None


def test_only_the_first_are_kept_and_the_chosen_one() -> None:
    """How many are left out is said, however often something is."""
    fallback = compared("pools", ORDER, [Row("pool 3", lacks="2 CPUs")], chosen="pool 3")

    assert [row.name for row in TABLE.first(2).rows] == ["pool 2", "pool 0"]
    assert [row.name for row in fallback.first(2).rows] == ["pool 2", "pool 3"]
    assert (TABLE.first(9), TABLE.first(3).first(1).omitted) == (TABLE, 3)


def test_it_can_be_kept_as_plain_data() -> None:
    """With units, notes and what is lacking."""
    row = Row("b[0]", (1, -2), note="its pod is there")
    table = Candidates("balloons", (Measure("x"), Measure("y", Unit.MORE)), (row,), "b[0]", "type b", 3)

    assert from_plain(Candidates, to_plain(table)) == table
