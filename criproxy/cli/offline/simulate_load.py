"""``criproxy simulate --load``: simulates hours on a node with each of several policies, and compares them."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from criproxy.cli.render import lazy_rich as rich
from criproxy.cli.render.console import show, watched
from criproxy.config.load import load as load_policy
from criproxy.errors import ConfigError, UsageError
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.simulate.load import Load
from criproxy.simulate.load_run import Outcome, Run
from criproxy.simulate.loads import read_load


def compare(
    file: Path, policies: Sequence[Path], output: str, topology: Topology | None, cards: Sequence[CpuSet]
) -> None:
    """Simulate a load with each policy file, and print the results.

    Args:
        file: a specification or a trace.
        policies: the policy files.
        output: ``table`` or ``json``.
        topology: the machine; None: that of the file.
        cards: its cards; see `simulate.load_cards`.

    Raises:
        UsageError: a file is invalid, or there is none.
        PolicyAtFault: a policy failed to place a container.
    """
    if not policies:
        raise UsageError("give the policies to compare: --policy FILE, once for each")
    load = read_load(file, topology, cards)
    outcomes = [run.play(watched(load.events, f"Policy {run.name}")) for run in _runs(load, policies)]
    if output == "json":
        click.echo(json.dumps(as_json(load, outcomes)))
    else:
        _print(load, outcomes)


def _runs(load: Load, policies: Sequence[Path]) -> list[Run]:
    """Return one run for each policy."""
    host = os.uname().nodename
    try:
        return [
            Run.by(load_policy(path, host, topology=load.topology), name, load)
            for name, path in zip(names(policies), policies, strict=True)
        ]
    except ConfigError as error:
        raise UsageError(str(error)) from error


def names(policies: Sequence[Path]) -> list[str]:
    """Return a name for each policy file: without its directory if that is unique."""
    stems = [path.stem for path in policies]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, policies, strict=True)]


def _print(load: Load, outcomes: list[Outcome]) -> None:
    click.echo(heading(load, outcomes))
    table = rich.Table(box=None, pad_edge=False)
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for measure in informative(MEASURES, outcomes):
        winners = best(measure, outcomes)
        cells = [
            rich.Text(_value(measure, outcome), style="bold green" if index in winners else "")
            for index, outcome in enumerate(outcomes)
        ]
        table.add_row(measure.title, *cells)
    show(table)
    if len(outcomes) > 1:
        click.echo("\n".join(["", f"{headline(outcomes)}.", *reasons(outcomes)]))


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of an outcome."""

    key: str
    """The key in JSON."""
    title: str
    value: Callable[[Outcome], float]
    shown: Callable[[float], str]
    best: Callable[[Sequence[float]], float] | None
    """Selects the best of several values, as they are `shown`; None: no value is better."""
    wins: str = ""
    """What the policy with the best value achieves; only for measures that decide the recommendation."""
    digits: int = 0
    """The number of decimals; smaller differences do not count."""

    def decisive(self, outcome: Outcome) -> float:
        """Return the value by which outcomes are sorted: the smaller, the better."""
        number = round(self.value(outcome), self.digits)
        return -number if self.best is max else number


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _one_decimal(value: float) -> str:
    return f"{value:.1f}"


AT_CARDS = Measure(
    key="at_cards",
    title="next to their cards",
    value=lambda outcome: outcome.at_cards_share,
    shown=_percent,
    best=max,
    wins="it puts the most containers next to their cards",
    digits=2,
)
DECIDING = (
    Measure(
        key="refused",
        title="refused",
        value=lambda outcome: outcome.refused,
        shown=_whole,
        best=min,
        wins="it leaves the fewest containers without a place",
    ),
    Measure(
        key="crowded",
        title="crowded",
        value=lambda outcome: outcome.mean.crowded,
        shown=_percent,
        best=min,
        wins="its containers lack the least of the CPU that they request",
        digits=2,
    ),
    AT_CARDS,
    Measure(
        key="distance",
        title="distance to memory",
        value=lambda outcome: outcome.mean.distance,
        shown=_one_decimal,
        best=min,
        wins="its containers are nearest to their memory",
        digits=1,
    ),
    Measure(
        key="fragmentation",
        title="fragmentation",
        value=lambda outcome: outcome.mean.fragmentation,
        shown=_percent,
        best=min,
        wins="it keeps the most room in one piece for large containers",
        digits=2,
    ),
    Measure(
        key="moves",
        title="moves",
        value=lambda outcome: outcome.moves,
        shown=_whole,
        best=min,
        wins="it moves running containers least",
    ),
)
"""The measures that decide the recommendation: the first one in which two policies differ."""

INFORMATIVE = (
    Measure("cpu_on_one_node", "CPUs on one NUMA node", lambda outcome: outcome.mean.cpu_on_one_node, _percent, max),
    Measure("memory_on_one_node", "memory on one node", lambda outcome: outcome.mean.memory_on_one_node, _percent, max),
    Measure("owned_cpus", "exclusive CPUs", lambda outcome: outcome.mean.owned_cpus, _one_decimal, None),
    Measure("updates", "updates sent", lambda outcome: outcome.updates, _whole, min),
)
"""The other measures."""

MEASURES = (*DECIDING, *INFORMATIVE)


def informative(measures: Sequence[Measure], outcomes: Sequence[Outcome]) -> list[Measure]:
    """Return the measures that are meaningful for these outcomes: without cards, those of cards are not."""
    cards = any(outcome.with_cards for outcome in outcomes)
    return [measure for measure in measures if cards or measure is not AT_CARDS]


def best(measure: Measure, outcomes: Sequence[Outcome]) -> set[int]:
    """Return the indexes of the outcomes with the best value; none if all are equal."""
    if measure.best is None or len(outcomes) < 2:
        return set()
    values = [measure.value(outcome) for outcome in outcomes]
    top = measure.shown(measure.best(values))
    winners = {index for index, value in enumerate(values) if measure.shown(value) == top}
    return winners if len(winners) < len(outcomes) else set()


def recommended(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the best outcome by the measures `DECIDING`; the first one of several."""
    return min(outcomes, key=_order)


def as_good(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes that are no worse than the `recommended` one in any deciding measure, including itself."""
    top = _order(recommended(outcomes))
    return [outcome for outcome in outcomes if _order(outcome) == top]


def decided(first: Outcome, other: Outcome) -> Measure | None:
    """Return the measure in which the `recommended` outcome is better than another; None if there is none."""
    pairs = zip(DECIDING, _order(first), _order(other), strict=True)
    return next((measure for measure, one, two in pairs if one != two), None)


def _order(outcome: Outcome) -> tuple[float, ...]:
    return tuple(measure.decisive(outcome) for measure in DECIDING)


def as_json(load: Load, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return all results as JSON values; times in seconds, shares from 0 to 1."""
    return {
        "load": load.name,
        "duration_s": load.duration_s,
        "events": len(load.events),
        "turned_away_pods": load.turned_away,
        "machine": {"cpus": len(load.topology.cpus), "nodes": len(load.topology.nodes)},
        "take": [outcome.name for outcome in as_good(outcomes)] if len(outcomes) > 1 else [],
        "policies": [_policy(outcome) for outcome in outcomes],
    }


def _policy(outcome: Outcome) -> dict[str, Any]:
    known = informative(MEASURES, [outcome])
    numbers = {each.key: round(each.value(outcome), 4) if each in known else None for each in MEASURES}
    return {
        "policy": outcome.name,
        "containers": outcome.asked,
        "mean_containers": round(outcome.mean.containers, 4),
        **numbers,
        "with_cards": outcome.with_cards,
        "refusals": list(outcome.sentences),
    }


def heading(load: Load, outcomes: Sequence[Outcome]) -> str:
    """Describe the load, in a line."""
    machine = load.topology
    parts = [
        f"{load.name}: {outcomes[0].asked:,} containers in {load.duration_s / 3600:.3g} h",
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
    winners = [outcomes[index] for index in sorted(best(measure, outcomes))]
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
