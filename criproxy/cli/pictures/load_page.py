"""The page of ``simulate --load --html``: one self-contained file for any browser, with a light and a dark theme."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from criproxy.cli.pictures.load_measures import DECIDING, TELLING, Measure, best, informative
from criproxy.cli.pictures.load_pictures import LEGEND, LINES, STYLE, chart, clock, heatmap
from criproxy.cli.pictures.load_verdict import heading, headline, reasons
from criproxy.simulate.load import Load
from criproxy.simulate.load_run import Outcome

CSS = f"""{STYLE}
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 64em; padding: 0 1em;
  color: var(--ink); background: var(--paper) }}
.verdict {{ background: var(--good); border-left: .4em solid var(--c2); padding: .1em 1.2em; margin: 1em 0 }}
.verdict h2 {{ margin: .5em 0 .2em }} .verdict p {{ margin: .4em 0 .8em }}
.wide {{ overflow-x: auto }} .wide svg {{ min-width: 46em; width: 100%; height: auto }}
table {{ border-collapse: collapse; width: 100% }} tbody th {{ font-weight: 600 }}
td, th {{ padding: .4em .9em; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top }}
th:first-child {{ text-align: left; min-width: 11em }} tr.group th {{ background: var(--box); font-weight: 400 }}
td.best {{ background: var(--good); font-weight: 600; white-space: nowrap }}
small {{ color: var(--dim); display: block; max-width: 36em; font-weight: 400 }}
figure {{ margin: 1.2em 0 }} figcaption {{ font-weight: 600 }} figcaption small {{ max-width: none }}
ul.keys {{ list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3em 1.4em; margin: .5em 0 }}
ul.keys svg {{ vertical-align: -.1em; margin-right: .4em }} ul.keys rect {{ stroke: var(--dim) }}
dt {{ font-weight: 600 }} dd {{ margin: 0 0 .5em }}
@media (max-width: 40em) {{
  tr {{ display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--line) }}
  tbody th {{ flex: 0 0 100%; box-sizing: border-box }} thead td {{ display: none }}
  td, thead th, thead th:first-child {{ flex: 1 0 0; min-width: 5em; padding: .3em; text-align: center; border: 0 }}
}}
"""
PICTURE = (
    "Each row is a CPU, or several CPUs of one NUMA node; time runs from left to right. The colour shows how much of "
    "its time is requested, if each container spreads evenly over its CPUs; yellow CPUs are exclusive to one "
    "container. Red means that containers request more than their CPUs provide."
)
CHARTS: tuple[tuple[str, str, float], ...] = (
    ("distance", "Distance from CPUs to memory (10 is the same NUMA node; lower is better)", 1),
    ("fragmentation", "Fragmentation of the unrequested CPU (%; lower is better)", 100),
    ("crowded", "Requested CPU that is missing (% of the requested CPU; lower is better)", 100),
    ("containers", "Containers that have a place (higher is better)", 1),
)
"""The scores with charts, their titles, and the factors to their units."""


def render(load: Load, outcomes: Sequence[Outcome]) -> str:
    """Return the whole page."""
    title = "Which policy?" if len(outcomes) > 1 else "A policy under a load"
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(load.name)}: {title}</title><style>{CSS}</style></head><body><main>",
            f"<h1>{title}</h1>",
            f"<p>{escape(heading(load, outcomes))}. Each policy got the same pods at the same times.</p>",
            *_verdict(outcomes),
            *_policies(outcomes),
            *_table(outcomes),
            "<h2>Over time</h2>" + ("<p>Of the first node.</p>" if load.nodes > 1 else ""),
            _keys((outcome.name, _sample(place)) for place, outcome in enumerate(outcomes)),
            *_charts(load, outcomes),
            "<h2>The CPUs over time</h2>",
            f"<p>{PICTURE}</p>",
            _keys((name, f'<rect class="{shade}" x="1" y="1" width="14" height="12"/>') for name, shade in LEGEND),
            *(_picture(load, outcome) for outcome in outcomes),
            *_refusals(outcomes),
            "</main></body></html>",
        ]
    )


def _policies(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Describe the policies, for readers who do not know them."""
    yield "<h2>What each policy does</h2><dl>"
    for outcome in outcomes:
        kind = f" (<code>policy: {escape(outcome.policy)}</code>)" if outcome.policy not in ("", outcome.name) else ""
        yield f"<dt>{escape(outcome.name)}{kind}</dt><dd>{escape(outcome.about)}</dd>"
    yield "</dl>"


def _verdict(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Name the recommended policy and the reasons."""
    if len(outcomes) < 2:
        return
    yield f'<section class="verdict"><h2>{escape(headline(outcomes))}</h2>'
    yield from (f"<p>{escape(sentence)}</p>" for sentence in reasons(outcomes))
    yield "</section>"


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{escape(outcome.name)}</th>' for outcome in outcomes)
    yield f'<h2>In numbers</h2><div class="wide" tabindex="0"><table><thead><tr><td></td>{heads}</tr></thead><tbody>'
    several = len(outcomes) > 1
    for measures, title in (
        (DECIDING, "Deciding measures, in this order: the first in which two policies differ noticeably decides."),
        (TELLING, "Other measures"),
    ):
        if several:
            yield f'<tr class="group"><th colspan="{1 + len(outcomes)}" scope="rowgroup">{title}</th></tr>'
        for measure in informative(measures, outcomes):
            name = f"{escape(measure.title)}<small>{escape(measure.meaning)}</small>"
            yield f'<tr><th scope="row">{name}</th>{_cells(measure, outcomes)}</tr>'
    yield "</tbody></table></div>" + ("<p>★ marks the best where they differ.</p>" if several else "")


def _cells(measure: Measure, outcomes: Sequence[Outcome]) -> str:
    winners = best(measure, outcomes)
    shown = [escape(measure.shown(measure.value(outcome))) for outcome in outcomes]
    return "".join(
        f'<td class="best"><span title="best">★</span> {text}</td>' if place in winners else f"<td>{text}</td>"
        for place, text in enumerate(shown)
    )


def _keys(keys: Iterable[tuple[str, str]]) -> str:
    """Return a legend of names and samples."""
    items = (
        f'<li><svg width="30" height="14" viewBox="0 0 30 14" aria-hidden="true">{look}</svg>{escape(name)}</li>'
        for name, look in keys
    )
    return f'<ul class="keys">{"".join(items)}</ul>'


def _sample(place: int) -> str:
    return f'<path class="c c{place % LINES}" d="M0 7H30"/>'


def _charts(load: Load, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a chart of each score, or a sentence if all values are equal."""
    for key, title, factor in CHARTS:
        lines = [[factor * getattr(sample.scores, key) for sample in outcome.samples] for outcome in outcomes]
        means = ", ".join(f"{o.name} {factor * getattr(o.mean, key):.1f}" for o in outcomes)
        if not any(max(line, default=0) > min(line, default=0) for line in lines):
            yield f"<p>{escape(title)}: the same throughout. {escape(means)}.</p>"
            continue
        same = len(lines) > 1 and all(line == lines[0] for line in lines)
        note = " The lines coincide: all policies do the same." if same else ""
        text = f"{title}, over {clock(load.duration_s)}. Means: {means}.{note}"
        caption = f"<figcaption>{escape(title)}<small>Means: {escape(means)}.{note}</small></figcaption>"
        yield f'<figure>{caption}<div class="wide" tabindex="0">{chart(text, lines, load.duration_s)}</div></figure>'


def _picture(load: Load, outcome: Outcome) -> str:
    mean = outcome.mean
    words = (
        f"{mean.containers:.0f} containers at a time; {mean.owned_cpus:.1f} of {len(load.topology.cpus)} CPUs are "
        "exclusive; "
        f"{100 * mean.crowded:.1f} % of the requested CPU is missing (means)."
    )
    picture = heatmap(f"CPUs by {outcome.name}: {words}", load.topology, outcome)
    caption = f"<figcaption>{escape(outcome.name)}<small>{escape(words)}</small></figcaption>"
    return f'<figure>{caption}<div class="wide" tabindex="0">{picture}</div></figure>'


def _refusals(outcomes: Sequence[Outcome]) -> Iterator[str]:
    if not any(outcome.sentences for outcome in outcomes):
        return
    yield "<h2>Refused</h2><p>The first few of each.</p>"
    for outcome in outcomes:
        if outcome.sentences:
            yield f"<h3>{escape(outcome.name)}: {outcome.refused:,}</h3><ul>"
            yield from (f"<li>{escape(sentence)}</li>" for sentence in outcome.sentences)
            yield "</ul>"
