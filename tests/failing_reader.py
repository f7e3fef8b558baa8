"""``criproxy`` with a planted defect, for tests from outside: ``python -m tests.failing_reader serve …``."""

from importlib import import_module
from unittest.mock import patch

from criproxy.__main__ import run
from criproxy.config import document

LOAD = import_module("criproxy.config.load")
"""Its module, not the function of that name in its package."""
WORD = "planted-defect"
"""Reading a policy file with this word raises what nobody expects."""
RAISED = f"RuntimeError('{WORD}')"


def parse(text: str) -> document.Document:
    """Do what is done in `LOAD`, with the defect."""
    if WORD in text:
        raise RuntimeError(WORD)
    return document.parse(text)


if __name__ == "__main__":
    with patch.object(LOAD, "parse", parse):
        run()
