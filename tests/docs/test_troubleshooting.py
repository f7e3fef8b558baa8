"""docs/troubleshooting.md quotes what criproxy prints, and README leads to every page."""

import ast
import re

from tests.conftest import ROOT

_QUOTE = re.compile(r"(?:^> .*\n?)+", re.MULTILINE)
_FILLED_IN = re.compile(r"[\s:;,]*…[\s:;,]*")
"""Where a quoted sentence has what differs from time to time, with the signs beside it."""


def test_readme_leads_to_every_page() -> None:
    """A page that nothing links to is not found."""
    readme = (ROOT / "README.md").read_text()

    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name})" not in readme] == []


def quoted(page: str) -> list[list[str]]:
    """The sentences in the block quotes of a page, each as its parts between what is filled in."""
    quotes = (" ".join(quote.replace("> ", " ").split()) for quote in _QUOTE.findall(page))
    return [[part for part in _FILLED_IN.split(quote.strip()) if part] for quote in quotes]


def literals() -> str:
    """All texts in the package, one a line, with … for what they fill in."""
    found = []
    for file in sorted((ROOT / "criproxy").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(map(str, parts)))
    return "\n".join(found)


def test_what_troubleshooting_quotes_is_what_criproxy_prints() -> None:
    """Each part of a quoted sentence is in a text of the package, so that a search for what was printed finds it."""
    sentences, known = quoted((ROOT / "docs/troubleshooting.md").read_text()), literals()

    assert len(sentences) > 40
    assert [part for parts in sentences for part in parts if len(part) > 2 and part not in known] == []


def test_a_quote_that_criproxy_never_prints_is_found() -> None:
    """Such as one whose sentence has changed since."""
    (parts,) = quoted("You see\n\n> container … asks\n> for … bananas\n")

    assert parts == ["container", "asks for", "bananas"]
    assert "bananas" not in literals()
