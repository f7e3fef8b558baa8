"""Selectors of labels and fields, as far as the agent and kubectl criproxy use them in lists and watches."""

import re
from collections.abc import Callable
from typing import Any

from lab.apiserver.fields import Object

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")
_COMMA = re.compile(r",(?![^(]*\))")


def matcher(labels: str, fields: str) -> Callable[[Object], bool]:
    """Return whether an object fits both selectors."""
    of_labels = [_label_test(term.strip()) for term in _COMMA.split(labels) if term.strip()]
    of_fields = [_field_test(term.strip()) for term in fields.split(",") if term.strip()]

    def matches(obj: Object) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(test(found) for test in of_labels) and all(test(obj) for test in of_fields)

    return matches


def only_name(fields: str) -> str:
    """Return the name if *fields* selects one object by it; else empty."""
    return next((term.split("=")[-1] for term in fields.split(",") if term.startswith("metadata.name=")), "")


def _label_test(term: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(term):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        return lambda labels: (labels.get(key) in values) is (found["op"] == "in")
    if "=" in term:
        key, _, value = term.partition("=")
        return lambda labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda labels: term[1:] not in labels
    return lambda labels: term in labels


def _field_test(term: str) -> Callable[[Object], bool]:
    path, _, value = term.partition("=")

    def test(obj: Object) -> bool:
        found: Any = obj
        for step in path.split("."):
            found = found.get(step, "") if isinstance(found, dict) else ""
        return str(found) == value

    return test
