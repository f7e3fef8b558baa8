"""The suite itself: it knows nothing inside criproxy, and its tables notice what differs."""

import re
from pathlib import Path


def test_nothing_inside_criproxy_is_known() -> None:
    """No file imports another module of criproxy than CRI's messages, or a test that may."""
    found = {
        f"{file.name}: {line}"
        for file in Path(__file__).parent.glob("*.py")
        for line in re.findall(r"^ *(?:from|import) .*\b(?:criproxy|tests)\b.*$", file.read_text(), re.MULTILINE)
        if not re.match(r" *from tests\.contract\b", line)
    }

    assert found == {"cri.py: from criproxy.cri import api_pb2"}
