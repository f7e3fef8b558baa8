"""The recommendation of a policy for a load, in sentences for readers who do not know the policies."""

from collections.abc import Iterator, Sequence

from criproxy.cli.pictures.load_measures import (
    DECIDING,
    MEASURES,
    Measure,
    as_good,
    best,
    decided,
    informative,
    recommended,
)
from criproxy.simulate.load import Load
from criproxy.simulate.load_run import Outcome


def heading(load: Load, outcomes: Sequence[Outcome]) -> str:
    """Describe the load, in a line."""
    machine = load.topology
    parts = [
        f"{load.name}: {outcomes[0].asked:,} containers in {load.duration_s / 3600:.3g} h",
        *([f"{load.nodes:,} equal nodes"] if load.nodes > 1 else []),
        f"{len(machine.cpus)} CPUs on {len(machine.nodes)} NUMA nodes",
    ]
    if load.turned_away:
        parts.append(f"{load.turned_away:,} pods not sent because the node was full")
    return ", ".join(parts)


def headline(outcomes: Sequence[Outcome]) -> str:
    """Return the recommendation, in a line."""
    equal = [outcome.name for outcome in as_good(outcomes)]
    if len(equal) > 1:
        return f"For this load, {_listed(equal)} do equally well"
    return f"For this load, use {equal[0]}"


def reasons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the reasons and the drawbacks, one sentence each."""
    first = recommended(outcomes)
    rest = [(outcome, measure) for outcome in outcomes if (measure := decided(first, outcome))]
    if not rest:
        titles = [each.title for each in informative(DECIDING, outcomes)]
        yield f"They are equal in every measure that decides: {_listed(titles)}."
        return
    last = max((measure for _, measure in rest), key=DECIDING.index)
    yield f"Why: {last.wins}, and no other policy is noticeably better in a more important measure."
    yield from (f"{_lost(outcome, measure, first)}." for outcome, measure in rest)
    if first.refused:
        share = f"{100 * first.refused_share:.1f} % of the containers"
        yield f"Even so, {first.refused:,} were refused, {share}: the node may be too small for this load."
    better = [text for each in MEASURES if (text := _beaten(each, first, outcomes))]
    yield f"Others are better at {'; '.join(better)}." if better else "It is the best at everything."


def _beaten(measure: Measure, first: Outcome, outcomes: Sequence[Outcome]) -> str:
    """Return which policies are better than *first* in a measure, and by how much; empty if there are none."""
    winners = [outcomes[place] for place in sorted(best(measure, outcomes))]
    if not winners or first in winners:
        return ""
    names = _listed([outcome.name for outcome in winners])
    return f"'{measure.title}' ({_value(measure, winners[0])} with {names}, compared with {_value(measure, first)})"


def _lost(outcome: Outcome, measure: Measure, first: Outcome) -> str:
    """Return where another policy is worse."""
    lost, won = _value(measure, outcome), _value(measure, first)
    return f"With {outcome.name}, '{measure.title}' is {lost}, compared with {won}"


def _value(measure: Measure, outcome: Outcome) -> str:
    return measure.shown(measure.value(outcome))


def _listed(words: Sequence[str]) -> str:
    """Join words as in ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
