"""Expressions mean what they mean in CRI-RM and nri-plugins."""

import pytest

from criproxy.placement.alloc.affinity.expressions import OPERATORS, Expression, joint_value, to_expression

THIS = {"name": "main", "namespace": "shop", "pod/labels/app": "web-1"}.get


@pytest.mark.parametrize(
    ("operator", "values", "with_key", "without_key"),
    [
        ("Equals", ("main",), True, False),
        ("Equals", ("other",), False, False),
        ("NotEqual", ("main",), False, True),
        ("NotEqual", ("other",), True, True),
        ("In", ("a", "main"), True, False),
        ("In", (), False, False),
        ("NotIn", ("a", "main"), False, True),
        ("NotIn", ("a",), True, True),
        ("Matches", ("ma*",), True, False),
        ("MatchesNot", ("ma*",), False, True),
        ("MatchesAny", ("x*", "*n"), True, False),
        ("MatchesNone", ("x*", "*n"), False, True),
        ("MatchesNone", ("x*",), True, True),
        ("Exists", (), True, False),
        ("NotExist", (), False, True),
        ("NotExists", (), False, True),
        ("AlwaysTrue", (), True, True),
    ],
)
def test_each_operator(operator: str, values: tuple[str, ...], with_key: bool, without_key: bool) -> None:
    """A container without the key differs from every value."""
    assert operator in OPERATORS
    assert Expression("name", operator, values).matches(THIS) is with_key
    assert Expression("absent", operator, values).matches(THIS) is without_key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "main"),
        (":namespace:name", "shop:main"),
        (":,-namespace,name", "shop-main"),
        (":namespace:absent", "shop:"),
        (":absent:gone", None),
        ("absent", None),
        (":name", "main"),
    ],
)
def test_joint_keys(key: str, value: str | None) -> None:
    """The values of several keys as one, with the separators that the key names."""
    assert joint_value(key, THIS) == value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("name", "an expression is"),
        ({"key": "name", "operator": "Like", "values": []}, "unknown operator 'Like'; operators are: Equals"),
        ({"key": "name", "operator": "Equals", "values": []}, "Equals takes one value, but has 0"),
        ({"key": "name", "operator": "Exists", "values": ["x"]}, "Exists takes no values"),
        ({"operator": "In", "values": ["x"]}, "In needs a key"),
        ({"key": "name", "operator": "In", "values": "x"}, "the values of an expression are a list"),
        ({"key": "name", "operator": "In", "valeus": ["x"]}, "unknown field 'valeus'"),
        ({"key": 1, "operator": "In"}, "both texts"),
    ],
)
def test_what_is_no_expression_is_told(data: object, says: str) -> None:
    """In one sentence."""
    with pytest.raises(ValueError, match=says):
        to_expression(data)


def test_values_that_yaml_reads_as_numbers_or_truth_are_texts_again() -> None:
    """A label's value is a text, however it is written."""
    assert to_expression({"key": "k", "operator": "In", "values": [1, True, "x"]}).values == ("1", "true", "x")
