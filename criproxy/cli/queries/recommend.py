"""``criproxy recommend``: the numbers of replicas and vGPUs that follow from the use of the node."""

import json
import math
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from criproxy.cli.client import PATIENCE_S, ask, control_socket_option
from criproxy.cli.options import PathOption, WholeNumber
from criproxy.cli.render.console import print_lines
from criproxy.devices.usage import scaling_signals as usage
from criproxy.devices.usage.scaling import Limits, Proposal, Recommendation, Target, recommend
from criproxy.devices.usage.scaling_signals import DEFAULT_PERCENT, METRICS, PREFIX, MetricName, Sample, VgpuCount
from criproxy.errors import CriproxyError
from criproxy.model.text.amounts import counted
from criproxy.model.text.bounded import bounded_text

MOST_BYTES = 64 << 20
"""The maximum size of a file, larger than the metrics of a thousand nodes."""
MOST_CURRENT = 1_000_000
"""The maximum number of replicas, more than a cluster has pods."""
LEAST_PERCENT = 0.01
"""The minimum target."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Goals = tuple[tuple[MetricName, float], ...]
"""Metrics and their targets in percent."""


def _goals(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Goals:
    """Parse ``METRIC=PERCENT``, each metric once."""
    goals: dict[MetricName, float] = {}
    for name, percent in (_goal(value, context, option) for value in values):
        if name in goals:
            raise click.BadParameter(f"{name} has two targets", context, option)
        goals[name] = percent
    return tuple(goals.items())


def _goal(text: str, context: click.Context, option: click.Parameter) -> tuple[MetricName, float]:
    named, _, number = text.partition("=")
    known = {str(name): name for name in METRICS}
    if named not in known:
        raise click.BadParameter(f"{named!r} is not one of {', '.join(known)}", context, option)
    try:
        percent = float(number.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not LEAST_PERCENT <= percent < math.inf:
        text = f"{named} needs a percentage of at least {LEAST_PERCENT:g}, such as {named}=70"
        raise click.BadParameter(text, context, option)
    return known[named], percent


def _number(option: str, name: str, kind: click.ParamType[Any], default: float, unit: str, text: str) -> Decorator:
    shown: dict[str, Any] = {"show_default": True, "metavar": unit, "help": text}
    return click.option(option, name, type=kind, default=default, **shown)


def _tolerance(way: str, text: str) -> Decorator:
    return _number(f"--tolerance-{way}", f"tolerance_{way}", click.FloatRange(0, 100), 10.0, "PERCENT", text)


@click.command(short_help="Recommend a number of replicas and vGPUs, based on current usage.")
@click.option("-n", "--namespace", default="", help="Namespace of the replicas.  [default: all]")
@click.option(
    "--pods", default="*", show_default=True, metavar="PATTERN", help="Names of the replicas, with wildcards * and ?."
)
@click.option(
    "--current",
    type=WholeNumber(0, MOST_CURRENT),
    metavar="N",
    help="Current number of replicas.  [default: the number of matching pods with vGPUs]",
)
@_number("--min", "fewest", WholeNumber(min=1), 1, "N", "Minimum number of replicas.")
@_number("--max", "most", WholeNumber(min=1), 10, "N", "Maximum number of replicas.")
@click.option(
    "-t",
    "--target",
    "goals",
    callback=_goals,
    multiple=True,
    metavar="METRIC=PERCENT",
    help="Metric and target: cpu and memory of the node, vgpu-memory and vgpu-cores relative to the quotas. Repeat it "
    "for several metrics.  [default: cpu=70 memory=80 vgpu-memory=80 vgpu-cores=70, except those for which no replica "
    "has a quota]",
)
@_tolerance("up", "How far a value may exceed its target before more replicas are recommended.")
@_tolerance("down", "How far a value may fall below its target before fewer replicas are recommended.")
@click.option(
    "--metrics",
    "files",
    type=PathOption(),
    multiple=True,
    metavar="FILE",
    help="Read saved metrics of criproxy instead of asking the daemon; repeat it for several nodes.",
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@control_socket_option
def command(  # noqa: PLR0913 (one for each option)
    *,
    namespace: str,
    pods: str,
    current: int | None,
    fewest: int,
    most: int,
    goals: Goals,
    tolerance_up: float,
    tolerance_down: float,
    files: tuple[Path, ...],
    output: str,
    control_socket: str,
) -> None:
    """Print how many replicas Kubernetes' HorizontalPodAutoscaler would choose, and how many vGPUs they need.

    The formula is the autoscaler's: for each metric, ceil(current × value / target), or the current number if the value
    is within the tolerance. The result is the highest of these numbers. The command changes nothing. The daemon knows
    only the pods of its own node: for replicas on several nodes, use --current, or --metrics with the saved metrics of
    each node.
    """
    if fewest > most:
        raise click.UsageError(f"--min {fewest} is more than --max {most}")
    samples = (sample for file in files for sample in _samples(file))
    signals = usage.of_samples(samples) if files else usage.of_answer(ask(control_socket, "usage", {}, PATIENCE_S))
    own = usage.chosen(signals, lambda space, pod: namespace in ("", space) and fnmatchcase(pod, pods))
    replicas = len(usage.pods_of(own)) if current is None else current
    tolerances = tolerance_up / 100, tolerance_down / 100
    named = goals or tuple((name, percent) for name, percent in DEFAULT_PERCENT.items() if usage.applies(name, own))
    proposals = [
        usage.propose(name, _target(name, percent, tolerances), replicas, signals, own) for name, percent in named
    ]
    result = recommend(replicas, proposals, Limits(fewest=fewest, most=most))
    percent = dict(named).get("vgpu-memory", DEFAULT_PERCENT["vgpu-memory"])
    counts = usage.count_vgpus(_target("vgpu-memory", percent, tolerances), signals)
    if output == "json":
        click.echo(json.dumps(_values(result, counts)))
    else:
        for line in [*([] if own else [_nobody(namespace, pods)]), *_lines(result, counts)]:
            print_lines(line)


def _target(name: str, percent: float, tolerances: tuple[float, float]) -> Target:
    return Target(name=name, target=percent / 100, tolerance_up=tolerances[0], tolerance_down=tolerances[1])


def _samples(file: Path) -> Iterator[Sample]:
    from prometheus_client.parser import text_string_to_metric_families

    is_ours = False
    try:
        with file.open("rb") as stream:
            text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise CriproxyError(f"{file}: has more than {MOST_BYTES >> 20} MiB")
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                is_ours = is_ours or sample.name.startswith(PREFIX)
                yield sample.name, sample.labels, sample.value
    except (ValueError, LookupError) as error:
        raise CriproxyError(f"{file}: these are not metrics in the Prometheus text format: {error}") from error
    if not is_ours:
        raise CriproxyError(f"{file}: has no metrics of criproxy; save /metrics of criproxy serve in it")


def _nobody(namespace: str, pods: str) -> str:
    """Return that there are no replicas, which may be because of a mistyped name."""
    options = [f"--namespace {namespace}"] if namespace else []
    options += [f"--pods {pods}"] if pods != "*" else []
    some = f"no pod with a vGPU matches {' '.join(options)}"
    return bounded_text(f"Note: {some if options else 'no pod has a vGPU'}")


def _lines(result: Recommendation, counts: list[VgpuCount]) -> Iterator[str]:
    yield from map(_proposal, result.proposals)
    after = f" ({result.note})" if result.note else ""
    yield f"replicas: {result.current} now, {result.desired} recommended{after}"
    yield from map(_count, counts)


def _proposal(each: Proposal) -> str:
    target = each.target
    thresholds = f"scale up above {100 * target.up:.0f} %, down below {100 * target.down:.0f} %"
    value = "unknown" if each.value is None else f"{100 * each.value:.0f} %"
    wants = "" if each.replicas is None else f"; requests {counted(each.replicas, 'replica')}"
    missing = f", {each.missing} without a value" if each.missing else ""
    return f"{target.name}: {value}{missing}, {each.why.value} ({thresholds}){wants}"


def _count(count: VgpuCount) -> str:
    value = count.proposal.value
    use = "" if value is None else f", mean usage {100 * value:.0f} %"
    free = "free: unknown (the device plugin does not report)" if count.free is None else f"{count.free} free"
    lacking = f"; {count.lacking} more than exist: divide another card" if count.lacking else ""
    return f"vGPUs of {count.profile}: {count.given} allocated{use}, {free}, {count.wanted} needed{lacking}"


def _values(result: Recommendation, counts: list[VgpuCount]) -> dict[str, Any]:
    return {
        "current": result.current,
        "desired": result.desired,
        "wanted": result.wanted,
        "note": result.note,
        "metrics": [
            {
                "name": each.target.name,
                "value": each.value,
                "target": each.target.target,
                "up": each.target.up,
                "down": each.target.down,
                "replicas": each.replicas,
                "why": each.why.name.lower(),
                "missing": each.missing,
            }
            for each in result.proposals
        ],
        "vgpus": [
            {name: getattr(count, name) for name in ("profile", "given", "free", "wanted", "lacking")}
            | {"use": count.proposal.value}
            for count in counts
        ],
    }
