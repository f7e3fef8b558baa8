"""The messages of NRI against its facts: a part of them, but that as it is."""

import json
import re
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from criproxy.nri import api_pb2 as nri
from tests.cri.test_api import facts_of

LEFT_OUT = (
    "Field FieldOwners CompoundFieldOwners OwningPlugins PluginInstance LogRequest LogRequest.Level HostFunctions "
    "ValidateContainerAdjustmentRequest ValidateContainerAdjustmentResponse"
).split()
"""Validation, and logs of WASM plugins."""


def services(facts: Any) -> Any:  # noqa: ANN401 (JSON)
    """Those that are there, with their methods."""
    return {name: [each for each in methods if each["request"] not in LEFT_OUT] for name, methods in facts.items()}


def messages(facts: Any) -> Any:  # noqa: ANN401 (JSON)
    """Each with its fields by number."""
    return {name: sorted(fields, key=itemgetter("number")) for name, fields in facts.items()}


def enums(facts: Any) -> Any:  # noqa: ANN401 (JSON)
    """Each without its end, which moves."""
    return {name: {key: value for key, value in values.items() if key != "LAST"} for name, values in facts.items()}


@pytest.mark.parametrize("part", [services, messages, enums])
def test_what_is_there_is_as_the_facts_say(shared_dir: Path, part: Callable[[Any], Any]) -> None:
    """Numbers, names, types and labels."""
    text = (shared_dir / "reference" / "nri-v1alpha1.json").read_text()
    text = re.sub(r'("value":\s*)("Linux\w+")', r'\1{"message": \2}', text)  # as the values of maps elsewhere
    facts = json.loads(text)[part.__name__]

    assert facts_of(nri.DESCRIPTOR)[part.__name__] == part({k: v for k, v in facts.items() if k not in LEFT_OUT})
