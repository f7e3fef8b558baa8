"""The candidates of decisions on a terminal: a table, and the containers that would have to leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import HEADING, QUIET, TROUBLE, indented, section
from criproxy.model.text.amounts import format_bytes
from criproxy.model.text.bounded import bounded

Values = dict[str, Any]
HEADINGS = {
    "placed": "How the {of} compared when it was placed",
    "refused": "How the {of} compared when it was refused",
    "resized": "How the {of} compared when it was resized",
    "resize refused": "How the {of} compared when its resize was refused",
    "now": "How the {of} compare now (the earlier comparison was not kept)",
}


def render_choices(choices: Iterable[Values]) -> Iterator[rich.RenderableType]:
    """Render the choices in an answer to `explain`, the oldest first."""
    for choice in map(bounded, choices):
        at = f", at {choice['time'][11:19]} UTC" if choice["time"] else ""
        if choice["candidates"]:
            title = HEADINGS[choice["decision"]].format(of=choice["candidates"]["of"])
            yield rich.Text(f"\n{title}{at}", style=HEADING)
            yield from _candidates(choice["candidates"])
        if leavers := choice["leavers"]:
            lines = [*leavers["containers"], *_more(leavers), leavers["text"]]
            yield from section(f"Which containers would have to leave for it to fit{at}", lines)


def _candidates(candidates: Values) -> Iterator[rich.RenderableType]:
    """Render a table with a column for each criterion in which candidates differ, below their meanings."""
    rows, criteria = candidates["rows"], candidates["criteria"]
    columns = [place for place in range(len(criteria)) if _differ(rows, place)]
    notes = [candidates["note"]] if candidates["note"] else []
    legend = [f"{number}  {_named(criteria[place])}" for number, place in enumerate(columns, 1)]
    alike = [each["name"] for place, each in enumerate(criteria) if place not in columns]
    same = [f"the same for all: {', '.join(alike)}"] if alike and len(columns) < len(criteria) and len(rows) > 1 else []
    yield indented([*notes, *legend], QUIET)
    yield _table(candidates, columns)
    yield indented([*_more(candidates), *same], QUIET)


def _table(candidates: Values, columns: Sequence[int]) -> rich.Table:
    criteria = candidates["criteria"]
    table = rich.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column(width=0)
    table.add_column(candidates["of"], overflow="fold")
    numbers = {criteria[place]["name"]: number for number, place in enumerate(columns, 1)}
    for number in numbers.values():
        table.add_column(str(number), justify="right", no_wrap=True)
    table.add_column("", overflow="fold", ratio=1)
    for row in candidates["rows"]:
        cells = [_shown(criteria[place], row["values"][place]) if row["values"] else "" for place in columns]
        chosen = row["name"] == candidates["chosen"]
        style = TROUBLE if row["lacks"] and not chosen else HEADING if chosen else ""
        table.add_row("", row["name"], *cells, _verdict(candidates, row, numbers), style=style)
    return table


def _verdict(candidates: Values, row: Values, numbers: dict[str, int]) -> str:
    """Return the result of a candidate, and the reason."""
    parts = [row["note"]] if row["note"] else []
    if row["name"] == candidates["chosen"]:
        decided = candidates["decided_by"]
        parts.append(f"chosen by criterion {numbers[decided]}" if decided else "chosen")
    if row["lacks"]:
        parts.append(f"lacks {row['lacks']}")
    elif row["loses_by"]:
        parts.append(f"lost on criterion {numbers[row['loses_by']]}")
    elif row["name"] != candidates["chosen"]:
        parts.append("equal, but comes later")
    return "; ".join(parts)


def _differ(rows: Sequence[Values], place: int) -> bool:
    return len({row["values"][place] for row in rows if row["values"]}) > 1


def _named(criterion: Values) -> str:
    return f"{criterion['name']}{' (lower is better)' if criterion['unit'] == 'fewer' else ''}"


def _shown(criterion: Values, value: int | bool) -> str:
    match criterion["unit"]:
        case "holds":
            return "yes" if value else "no"
        case "more-milli":
            return f"{value / 1000:g}"
        case "more-bytes":
            return format_bytes(value)
        case _:
            return str(value)


def _more(values: Values) -> list[str]:
    return [f"and {values['omitted']} more"] if values["omitted"] else []
