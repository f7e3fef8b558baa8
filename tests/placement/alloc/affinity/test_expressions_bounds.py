"""Whatever a tenant writes into an expression, it is compared in a bounded time, or refused with a sentence."""

import pytest

from criproxy.placement.alloc.affinity import affinity, expressions
from criproxy.placement.alloc.affinity.affinity import parse_affinities
from criproxy.placement.alloc.affinity.expressions import Expression, to_expression


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(
            {"key": ":name" * (expressions.MAX_KEYS + 1), "operator": "Exists"}, "at most 8 keys, not 9", id="keys"
        ),
        pytest.param(
            {"key": "name", "operator": "Matches", "values": ["x" * (expressions.MAX_PATTERN_CHARS + 1)]},
            "at most 256 characters, not 257", id="pattern",
        ),
        pytest.param({"key": "name", "operator": "x" * 9000, "values": []}, "more characters", id="operator"),
        pytest.param({"key": "name", "operator": "In", "x" * 9000: []}, "more characters", id="name"),
        pytest.param("x" * 9000, "more characters", id="text"),
    ],
)  # fmt: skip
def test_what_is_too_long_is_refused_in_a_few_words(data: object, says: str) -> None:
    """What is too much, and how much is the most."""
    with pytest.raises(ValueError, match=says) as caught:
        to_expression(data)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("Equals", ("x" * (expressions.MAX_VALUE_CHARS + 1),), False),
        ("In", ("x" * (expressions.MAX_VALUE_CHARS + 1),), False),
        ("Matches", ("*",), False),
        ("MatchesNot", ("*",), True),
        ("NotIn", ("y",), True),
        ("Exists", (), True),
    ],
)
@pytest.mark.parametrize("key", ["tags/a", ":tags/a:tags/a"])
def test_a_value_that_is_too_long_is_like_no_other(
    key: str, operator: str, values: tuple[str, ...], *, expected: bool
) -> None:
    """It is there, and differs from every text and every pattern."""
    assert Expression(key, operator, values).matches(lambda _: "x" * (expressions.MAX_VALUE_CHARS + 1)) is expected


def test_joint_values_are_never_longer_than_needed() -> None:
    """Eight annotations of 250,000 characters are not put together."""
    assert not Expression(":a" * expressions.MAX_KEYS, "Matches", ("*",)).matches(lambda _: "x" * 250_000)
    assert Expression(":a:b", "Equals", ("x" * 511 + ":" + "x" * 511,)).matches(lambda _: "x" * 511)


def match(operator: str, values: list[str], key: str = "name") -> object:
    """An affinity that looks at names, or at another key."""
    return {"match": {"key": key, "operator": operator, "values": values}}


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        pytest.param(["b"] * (affinity.MAX_AFFINITIES + 1), "c: it has 33 entries, and 32 is the most", id="entries"),
        pytest.param(
            [match("MatchesAny", ["a*"] * affinity.MAX_PATTERNS), match("Matches", ["b*"])],
            "c: it has 9 patterns, and 8 is the most", id="patterns",
        ),
        pytest.param(
            [match("MatchesAny", ["*", "a" * (affinity.MAX_CHARS_OF_PATTERNS // 2)]),
             match("Matches", ["a" * (affinity.MAX_CHARS_OF_PATTERNS // 2)])],
            "c: it has 257 characters in its patterns, and 256 is the most", id="characters",
        ),
        pytest.param(
            [match("Exists", [], f":labels/{number}:labels/x{number}") for number in range(9)],
            "c: it has 18 keys, and 16 is the most", id="keys",
        ),
        pytest.param(
            [match("In", ["a"] * (affinity.MAX_VALUES + 1))], "c: it has 257 values, and 256 is the most", id="values"
        ),
    ],
)  # fmt: skip
def test_a_container_has_no_more_affinities_than_can_be_compared(entries: list[object], says: str) -> None:
    """What is too much is refused, with the most that there may be."""
    with pytest.raises(ValueError, match=says):
        parse_affinities({"c": entries}, "c", anti=False)


def test_a_key_counts_once() -> None:
    """However many affinities look at it: 32 names are one key."""
    assert (
        len(parse_affinities({"c": [f"d{number}" for number in range(affinity.MAX_AFFINITIES)]}, "c", anti=False)) == 32
    )


def test_both_annotations_count_together() -> None:
    """Each affinity takes time, whichever annotation says it."""
    near = parse_affinities({"c": ["d"] * 20}, "c", anti=False)
    with pytest.raises(ValueError, match="c: it has 33 affinities, and 32 is the most"):
        parse_affinities({"c": ["e"] * 13}, "c", anti=True, besides=near)
    assert len(parse_affinities({"c": ["e"] * 12}, "c", anti=True, besides=near)) == 12


def test_what_others_say_to_one_container_counts_too() -> None:
    """Mutual affinities come from as many lists as there are containers."""
    lists = {f"other{number}": ["c"] for number in range(affinity.MAX_AFFINITIES + 1)}
    with pytest.raises(ValueError, match="33 affinities, and 32 is the most"):
        parse_affinities(lists, "c", anti=False)


@pytest.mark.parametrize("weight", [10**5000, "x" * 9000], ids=["number", "text"])
def test_what_is_no_weight_is_told_in_a_few_words(weight: object) -> None:
    """Also a number that Python does not even write."""
    with pytest.raises(ValueError, match=r"c: the weight is a whole number") as caught:
        parse_affinities({"c": [{"match": {"operator": "AlwaysTrue"}, "weight": weight}]}, "c", anti=False)
    assert len(str(caught.value)) < 300
