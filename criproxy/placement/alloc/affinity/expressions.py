"""Expressions that match containers by what they are: the language of affinities and of balloon types.

An expression is ``{key, operator, values}``, as in CRI-RM and nri-plugins. What a key means for a container is the
caller's business; here is what operators and joint keys mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from criproxy.model.text.annotations import MAX_LABEL_CHARS
from criproxy.model.text.bounded import bounded_text
from criproxy.placement.alloc.affinity.globs import fits

Attribute = Callable[[str], str | None]
"""The value of a key for one container; None where it has none."""

MAX_KEYS = 8
"""Of a joint key."""
MAX_PATTERN_CHARS = 256
MAX_VALUE_CHARS = MAX_LABEL_CHARS
"""Of the value of a key that is compared: a longer one is like no other."""
_MAX_SHOWN = 80
"""Characters of what is wrong, in a sentence about it."""

_Test = Callable[[str, Sequence[str]], bool]

_TESTS: Mapping[str, _Test] = {
    "Equals": lambda value, values: value == values[0],
    "In": lambda value, values: value in values,
    "Matches": lambda value, values: fits(values[0], value),
    "MatchesAny": lambda value, values: any(fits(pattern, value) for pattern in values),
}
_OPPOSITES = {"NotEqual": "Equals", "NotIn": "In", "MatchesNot": "Matches", "MatchesNone": "MatchesAny"}
_WITHOUT_VALUES = frozenset({"Exists", "NotExist", "NotExists", "AlwaysTrue"})
_WITH_PATTERNS = frozenset({"Matches", "MatchesNot", "MatchesAny", "MatchesNone"})
_WITH_ONE_VALUE = frozenset({"Equals", "NotEqual", "Matches", "MatchesNot"})
OPERATORS = (*_TESTS, *_OPPOSITES, *sorted(_WITHOUT_VALUES))
"""Every operator."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition that a container meets or does not.

    Raises:
        ValueError: the operator is unknown, or has too many or too few values, or a pattern or a joint key is too long;
            one sentence.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"unknown operator {shown(self.operator)}; operators are: {', '.join(OPERATORS)}")
        if self.operator in _WITHOUT_VALUES and self.values:
            raise ValueError(f"{self.operator} takes no values, but has {len(self.values)}")
        if self.operator in _WITH_ONE_VALUE and len(self.values) != 1:
            raise ValueError(f"{self.operator} takes one value, but has {len(self.values)}")
        if self.key.startswith(":") and (count := len(keys_of(self.key))) > MAX_KEYS:
            raise ValueError(f"a joint key has at most {MAX_KEYS} keys, not {count}")
        if (longest := max(map(len, self.patterns), default=0)) > MAX_PATTERN_CHARS:
            raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS} characters, not {longest}")

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those of its values that have wildcards."""
        return self.values if self.operator in _WITH_PATTERNS else ()

    def matches(self, attribute: Attribute) -> bool:
        """Whether a container with these attributes meets the condition."""
        return self.holds(partial(compared_value, attribute=attribute))

    def holds(self, value_of: Attribute) -> bool:
        """Whether a container meets the condition whose values *value_of* reads like `compared_value`.

        One without the key differs from every value, and so does one whose value is longer than `MAX_VALUE_CHARS`.
        """
        if self.operator == "AlwaysTrue":
            return True
        value = value_of(self.key)
        if self.operator in _WITHOUT_VALUES:
            return (value is not None) is (self.operator == "Exists")
        positive = _OPPOSITES.get(self.operator, self.operator)
        is_short = value is not None and len(value) <= MAX_VALUE_CHARS
        return (is_short and _TESTS[positive](value or "", self.values)) is (positive == self.operator)


ALWAYS = Expression("", "AlwaysTrue")


def compared_value(key: str, attribute: Attribute) -> str | None:
    """The value of *key*, which may be joint, no longer than is needed to see that it is too long."""
    return joint_value(key, lambda part: _cut(attribute(part)))


def joint_value(key: str, attribute: Attribute) -> str | None:
    """The value of *key*, which may be joint: ``:a:b`` is the values of a and b with a colon between.

    ``:,-a,b`` names other separators: that of the keys, and that of the values. A joint key has a value if any of its
    keys has.
    """
    if not key.startswith(":"):
        return attribute(key)
    keys, joiner = _split(key)
    found = [attribute(part) for part in keys]
    return None if all(value is None for value in found) else joiner.join(value or "" for value in found)


def _cut(value: str | None) -> str | None:
    """*value*, no longer than is needed to see that it is too long: a joint one is many of them."""
    return value[: MAX_VALUE_CHARS + 1] if value else value


def keys_of(key: str) -> Sequence[str]:
    """The keys that *key* is made of: itself, if it is not joint."""
    return _split(key)[0] if key.startswith(":") else (key,)


def _split(key: str) -> tuple[Sequence[str], str]:
    """The keys of a joint one, and what is between their values."""
    separator, joiner, rest = ":", ":", key[1:]
    if len(rest) > 2 and not any(character.isalnum() or character == "/" for character in rest[:2]):
        separator, joiner, rest = rest[0], rest[1], rest[2:]
    return rest.split(separator), joiner


def to_expression(data: object) -> Expression:
    """The expression that plain data, read from YAML or JSON, says.

    Raises:
        ValueError: it says none; one sentence.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"an expression is {{key: …, operator: …, values: […]}}, not {shown(data)}")  # noqa: TRY004
    if unknown := sorted(str(name) for name in data.keys() - {"key", "operator", "values"}):
        raise ValueError(f"unknown field {shown(unknown[0])}: an expression has key, operator and values")
    key, operator, values = data.get("key", ""), data.get("operator"), data.get("values") or []
    if not isinstance(key, str) or not isinstance(operator, str):
        raise ValueError("an expression needs a key and an operator, both texts")  # noqa: TRY004
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        raise ValueError(f"the values of an expression are a list, not {shown(values)}")
    if not key and operator != "AlwaysTrue":
        raise ValueError(f"{bounded_text(operator, _MAX_SHOWN)} needs a key")
    return Expression(key, operator, tuple(map(_text, values)))


def shown(value: object) -> str:
    """A few characters of *value*, whatever it is: numbers of thousands of digits cannot even be written."""
    is_long = isinstance(value, int) and value.bit_length() > _MAX_SHOWN
    return "a very long number" if is_long else bounded_text(repr(value), _MAX_SHOWN)


def _text(value: object) -> str:
    """YAML reads some texts as something else."""
    return str(value).lower() if isinstance(value, bool) else str(value)
