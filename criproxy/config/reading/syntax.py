"""The YAML library's errors about a text that is no YAML, in words for the authors of policy files."""

import re

import yaml

from criproxy.config.reading.mistake import Mistake

_MEANINGS = (
    (r"character '\\t' that cannot start", "a tab; YAML is indented with spaces only"),
    (r"character '(@|`)' that cannot start", r"a text cannot begin with \1: put it in quotes"),
    (r"character '%' that cannot start", "a text cannot begin with %: put it in quotes"),
    (r"mapping values are not allowed", "a ':' does not fit here: quote the text, or check the indentation"),
    (r"sequence entries are not allowed", "a list cannot begin here: give each '- ' a line of its own"),
    (r"mapping keys are not allowed", "an option cannot begin here: check the line above and the indentation"),
    (r"could not find expected ':'", "a ':' is missing after the name of the option"),
    (r"found unexpected end of stream", "a quote is not closed before the end of the file"),
    (r"unexpected document separator", "a quote is not closed before '---'"),
    (r"expected <block end>", "this line does not fit the lines above: check its indentation"),
    (r"but got '<stream end>'|node content, but found '<stream end>'", "a bracket is not closed"),
    (r"expected ',' or '(.)'", r"a ',' or the closing '\1' is missing"),
    (r"expected '<document start>'", "this does not fit what is above: check brackets, quotes and indentation"),
    (r"expected the node content", "a value is missing before this"),
    (r"unknown escape character", r"no such escape in double quotes: use single quotes, or \\\\ for a backslash"),
    (r"undefined tag handle", "a text cannot begin with !: put it in quotes"),
    (r"incompatible YAML document", "only YAML 1.1 and 1.2 can be read: leave the %YAML line out"),
    (r"block scalar", "after | and > only - or +, and a comment, can stand: put the text on the next line"),
    (r"directive", "a line cannot begin with %: put it in quotes"),
)
"""Part of the library's sentence → ours."""


def from_marked(error: yaml.MarkedYAMLError) -> Mistake:
    """The mistake that the parser, or our own bounds, stopped at."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = " ".join(filter(None, [error.context, error.problem]))
    for pattern, meaning in _MEANINGS:
        if found := re.search(pattern, said):
            since = error.context_mark
            opened = ""
            if "not closed" in meaning and since and mark and since.index < mark.index:  # else: of what is missing
                opened = f" (it was opened in line {since.line + 1})"
            return Mistake(line, column, f"{found.expand(meaning)}{opened}")
    return Mistake(line, column, said)


def from_reader(error: yaml.reader.ReaderError, text: str) -> Mistake:
    """The mistake of a character that YAML forbids."""
    line = text.count("\n", 0, error.position) + 1
    column = error.position - text.rfind("\n", 0, error.position)
    name = f"U+{int(error.character):04X}"
    hint = "; is this a text file?" if int(error.character) < 0x80 else ""
    return Mistake(line, column, f"the character {name} is not allowed{hint}")
