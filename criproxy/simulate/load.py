"""Loads: what a kubelet asks of a node over hours; and specifications, of which `loads` makes some.

docs/simulate.md describes the file of a specification.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.config.document import parse
from criproxy.errors import UsageError
from criproxy.model.machine.topology import Topology
from criproxy.model.planned import PodPlan
from criproxy.model.text.amounts import parse_seconds
from criproxy.placement.records.trace import Traced
from criproxy.simulate.hosts import shaped
from criproxy.simulate.scenario.place import At, Wrong, read_text
from criproxy.simulate.scenario.pods import POD_KEYS, read_pods

SPEC_KEYS = ("machine", "cards", "seed", "duration", "every", "fill", "pods")
MAX_BYTES = 1 << 20
MAX_ARRIVALS = 1_000_000
MAX_CARDS = 1024
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of pod."""

    plan: PodPlan
    """As it is in each; its name is the beginning of each one's name."""
    weight: int
    """How often it comes, in proportion to the others."""
    lifetime_s: float
    """Mean of its exponentially distributed life."""
    cards: int = 0
    """That each of its containers gets, but for init containers."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A load to be made."""

    kinds: tuple[Kind, ...]
    topology: Topology | None = None
    seed: int = 0
    duration_s: float = 3600
    every_s: float = 30
    """Mean time between two arrivals, exponentially distributed."""
    fill_percent: int = PERCENT
    """Of CPUs and memory: pods that would ask for more together are not sent to the node, as by the scheduler."""
    cards: int | Mapping[int, int] = 0
    """How many the machine has, spread over its NUMA nodes; or how many each of these has."""


@dataclass(frozen=True, slots=True)
class Load:
    """What happens to a node."""

    name: str
    topology: Topology
    events: tuple[Traced, ...]
    """In the order of their time."""
    duration_s: float
    turned_away: int = 0
    """Pods that the scheduler did not send, since the node was full already."""


def read_spec(file: Path) -> Spec:
    """The specification in *file*.

    Raises:
        UsageError: it cannot be read or used: a line for each mistake that was found.
    """
    wanted = "a load specification (YAML), or a trace if its name ends in .jsonl"
    document = parse(read_text(file, MAX_BYTES, wanted))
    if document.mistakes:
        raise UsageError("\n".join(mistake.located(file) for mistake in document.mistakes))
    try:
        return _spec(At(document, (), document.data))
    except Wrong as wrong:
        raise UsageError(wrong.mistake.located(file)) from None


def _spec(at: At) -> Spec:
    fields = at.fields(SPEC_KEYS, required=("pods",))
    spec = Spec(
        kinds=tuple(_kind(item) for item in fields["pods"].items()),
        topology=fields["machine"].read(shaped) if "machine" in fields else None,
        seed=fields["seed"].number() if "seed" in fields else 0,
        duration_s=_seconds(fields, "duration", 3600.0),
        every_s=_seconds(fields, "every", 30.0),
        fill_percent=fields["fill"].read(_percent) if "fill" in fields else PERCENT,
        cards=_cards(fields["cards"]) if "cards" in fields else 0,
    )
    if not spec.kinds:
        raise fields["pods"].wrong("must have at least one kind of pod")
    if spec.duration_s / spec.every_s > MAX_ARRIVALS:
        raise fields["every" if "every" in fields else "duration"].wrong(f"makes more than {MAX_ARRIVALS:,} pods")
    return spec


def _kind(at: At) -> Kind:
    fields = at.fields(("weight", "lifetime", "cards", *POD_KEYS), required=("pod", "lifetime"))
    weight = fields["weight"].number(1) if "weight" in fields else 1
    pod = {name: field for name, field in fields.items() if name in POD_KEYS}
    cards = _few(fields["cards"]) if "cards" in fields else 0
    return Kind(read_pods(at, pod), weight, _seconds(fields, "lifetime"), cards)


def _cards(at: At) -> int | Mapping[int, int]:
    if not isinstance(at.data, dict):
        return _few(at)
    return {field.key_number("a NUMA node"): _few(field) for field in at.entries().values()}


def _few(at: At) -> int:
    if (count := at.number(1)) > MAX_CARDS:
        raise at.wrong(f"must be at most {MAX_CARDS}")
    return count


def _seconds(fields: dict[str, At], name: str, default_s: float = 0.0) -> float:
    if name not in fields:
        return default_s
    seconds = fields[name].read(parse_seconds)
    if seconds <= 0:
        raise fields[name].wrong("must be longer than nothing, such as 30s")
    return seconds


def _percent(text: str) -> int:
    number = text.removesuffix("%").strip()
    if not (number.isascii() and number.isdigit() and len(number) < 4 and int(number) > 0):
        raise ValueError(f"must be a share of the node such as 90%, not {text[:20]!r}")
    return int(number)
