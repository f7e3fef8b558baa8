"""The page of ``simulate --load --html``: one file that needs no other, for any browser."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from criproxy.cli.load_measures import MEASURES, Measure, best, recommended
from criproxy.cli.load_pictures import COLOURS, LEGEND, chart, heatmap
from criproxy.cli.simulate_load import heading
from criproxy.sim.load import Load
from criproxy.sim.load_run import Outcome, Sample

CSS = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 64em; padding: 0 1em; color: #1b1f24 }
table { border-collapse: collapse } td, th { padding: .3em .9em; border-bottom: 1px solid #d8dee4; text-align: right }
td:first-child, th:first-child { text-align: left } td.best { background: #dff5e3; font-weight: 600 }
td small { color: #59636e; display: block; max-width: 34em } figure { margin: 1em 0 } svg { max-width: 100% }
i.key { display: inline-block; width: .9em; height: .9em; margin: 0 .3em -.1em 1em; border: 1px solid #59636e }
"""
PICTURE = (
    "A row is a CPU, or a few of one NUMA node; from left to right time passes. "
    "The colour says how much of it is asked for, each container spread evenly over its CPUs."
)
ORDER = (
    "Refusals come first: a container without a place does no work. Then crowding, as its CPUs have too little for it; "
    "the distance, as programs wait for memory; fragmentation, as large containers still have to come; then moves. "
    "Updates and moves are the price of keeping containers apart: a policy that places nobody has none."
)
CHARTS = (
    ("Distance from CPUs to memory (10 is local)", lambda sample: sample.scores.distance),
    ("Fragmentation of unasked CPU (%)", lambda sample: 100 * sample.scores.fragmentation),
    ("Containers that have a place", lambda sample: sample.scores.containers),
)


def render(load: Load, outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(load.name)}: policies compared</title><style>{CSS}</style></head><body>",
            f"<h1>{escape(', '.join(each.name for each in outcomes))}</h1>",
            f"<p>{escape(heading(load, outcomes))}. Each policy got the same pods at the same times.</p>",
            *_summary(outcomes),
            *_table(outcomes),
            "<h2>Over time</h2>" + ("<p>Of the first node.</p>" if load.nodes > 1 else ""),
            _keys((outcome.name, COLOURS[place % len(COLOURS)]) for place, outcome in enumerate(outcomes)),
            *(_line_chart(title, value, load, outcomes) for title, value in CHARTS),
            "<h2>The CPUs over time</h2>",
            f"<p>{PICTURE}</p>",
            _keys(LEGEND),
            *(_picture(load, outcome) for outcome in outcomes),
            *_refusals(outcomes),
            "</body></html>",
        ]
    )


def _summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Who is best at what, for those who want no table."""
    won: dict[str, list[str]] = {}
    for measure in MEASURES:
        for place in sorted(best(measure, outcomes)):
            won.setdefault(outcomes[place].name, []).append(measure.title)
    if not won:
        return
    first = recommended(outcomes)
    told = f"{first.refused:,} refused, the distance to memory is {first.mean.distance:.1f}"
    yield f"<p>For this load take <b>{escape(first.name)}</b>: {told}. Best at:</p><ul>"
    for outcome in sorted(outcomes, key=lambda each: -len(won.get(each.name, ()))):
        yield f"<li><b>{escape(outcome.name)}</b>: {escape(', '.join(won.get(outcome.name, ['nothing'])))}</li>"
    yield f"</ul><p>{ORDER}</p>"


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    heads = "".join(f"<th>{escape(outcome.name)}</th>" for outcome in outcomes)
    yield f"<table><tr><th></th>{heads}</tr>"
    for measure in MEASURES:
        title = f"{escape(measure.title)}<small>{escape(measure.meaning)}</small>"
        yield f"<tr><td>{title}</td>{_cells(measure, outcomes)}</tr>"
    yield "</table>"


def _cells(measure: Measure, outcomes: Sequence[Outcome]) -> str:
    winners = best(measure, outcomes)
    classes = [' class="best"' if place in winners else "" for place in range(len(outcomes))]
    shown = [measure.shown(measure.value(outcome)) for outcome in outcomes]
    return "".join(f"<td{css}>{text}</td>" for css, text in zip(classes, shown, strict=True))


def _keys(keys: Iterable[tuple[str, str]]) -> str:
    return "<p>" + "".join(f'<i class="key" style="background:{c}"></i>{escape(name)}' for name, c in keys) + "</p>"


def _line_chart(title: str, value: Callable[[Sample], float], load: Load, outcomes: Sequence[Outcome]) -> str:
    lines = [[value(sample) for sample in outcome.samples] for outcome in outcomes]
    return f"<figure>{chart(title, lines, load.duration_s)}</figure>"


def _picture(load: Load, outcome: Outcome) -> str:
    return f"<figure><h3>{escape(outcome.name)}</h3>{heatmap(load.topology, outcome)}</figure>"


def _refusals(outcomes: Sequence[Outcome]) -> Iterator[str]:
    if not any(outcome.sentences for outcome in outcomes):
        return
    yield "<h2>Refused</h2><p>The first few of each.</p>"
    for outcome in outcomes:
        if outcome.sentences:
            yield f"<h3>{escape(outcome.name)}: {outcome.refused:,}</h3><ul>"
            yield from (f"<li>{escape(sentence)}</li>" for sentence in outcome.sentences)
            yield "</ul>"
