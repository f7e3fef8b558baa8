"""Random histories of use, and who is over a quota in them: found by looking back over a whole history.

The oracle shares no code with `quota_judgement`, which remembers as little as it can from one reading to the next. All
times are whole numbers of ticks, eighths of a second, so that floating point has nothing to round.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from hypothesis import strategies as st

from criproxy.deviceplugin.usage.quota_judgement import Judgement
from criproxy.deviceplugin.usage.quota_verdicts import Key, Over, limits_of
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.plan import OverQuota, QuotaActions, QuotaPlan
from criproxy.devices.usage.values import ContainerUse, Grant, Quantity
from tests.deviceplugin.usage.hosts import grant

TICKS_PER_S = 8
KIND, CARD, MEMORY_MIB, CORES_PERCENT = "nvidia", "GPU-a", 8192, 25
NAMES = ("meek", "greedy", "system")
EXEMPT = "system"
"""The container whose namespace is exempt."""
QUANTITIES: tuple[Quantity, ...] = ("memory", "cores")
ACTIONS: tuple[OverQuota, ...] = ("observe", "annotate", "stop", "kill-process")

Between = Literal["nothing", "restart", "plan"]
Used = tuple[int, int | None]
"""Memory in MiB, and computing units in percent."""
Said = tuple[int, str, Quantity, str]
"""The number of a reading, a container, a quantity, and the action, or ``within``."""


@dataclass(frozen=True, slots=True)
class Read:
    """One step: what happens first, and then a complete reading."""

    before: Between
    tick: int
    plan: QuotaPlan
    used: Mapping[str, Used]
    """By container, those that are there."""


@dataclass(frozen=True, slots=True)
class _Sample:
    number: int
    tick: int
    plan: QuotaPlan
    value: float


class _Span(NamedTuple):
    """The time for which one reading stands."""

    is_over: bool
    ticks: int


_USED = st.tuples(
    st.sampled_from([0, MEMORY_MIB, MEMORY_MIB + 1, MEMORY_MIB + 512, MEMORY_MIB + 513, 9000, 16384]),
    st.sampled_from([0, 0, 25, 26, 35, 36, 100, 400, None]),
)
_PLANS = st.builds(
    QuotaPlan,
    period_s=st.sampled_from([0.5, 1.0, 2.0]),
    grace_s=st.sampled_from([0.0, 2.0, 5.0]),
    samples=st.sampled_from([1, 3, 7]),
    margin_mib=st.sampled_from([0, 512]),
    cores_margin_percent=st.sampled_from([0, 10]),
    over_time_percent=st.sampled_from([0, 20, 50, 100]),
    actions=st.builds(QuotaActions, memory=st.sampled_from(ACTIONS), cores=st.sampled_from(ACTIONS)),
    by_class=st.just({"other": QuotaActions(memory="stop", cores="stop")}),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Read]:
    """Phases of readings in which containers use the same, or one thing and another by turns, in any rhythm.

    A reading that is not complete is a pause between two.
    """
    plan, tick, steps = draw(_PLANS), 0, list[Read]()
    for _ in range(draw(st.integers(1, 8))):
        before: Between = draw(st.sampled_from(["nothing", "nothing", "restart", "plan"]))
        plan = draw(_PLANS) if before == "plan" else plan
        present = draw(st.sets(st.sampled_from(NAMES), min_size=1))
        used = {name: draw(_USED) for name in NAMES if name in present}
        glitch = dict.fromkeys(used, (0, 400)) if draw(st.integers(0, 3)) == 0 else used
        rest = {name: draw(_USED) for name in sorted(used)} if draw(st.booleans()) else used
        busy, idle = draw(st.integers(1, 7)), draw(st.integers(1, 3))
        step_ticks, pause_ticks = draw(st.sampled_from([4, 8, 8, 16, 25])), draw(st.sampled_from([0, 0, 1, 40]))
        paused_at = draw(st.sampled_from([0, 0, 8]))
        for number in range(draw(st.sampled_from([1, 1, 2, 3, 5, 8, 12, 20]))):
            tick += step_ticks + (pause_ticks if number == paused_at else 0)
            now = used if number % (busy + idle) < busy else rest
            steps.append(Read(before, tick, plan, glitch) if number == 0 else Read("nothing", tick, plan, now))
    return steps


def judged(steps: Sequence[Read]) -> list[Said]:
    """What the judgement says of a history, beside a daemon that remembers open incidents over its restarts."""
    judgement, at_daemon, said = Judgement(kind=KIND, plan=steps[0].plan), dict[Key, OverQuota](), list[Said]()
    for number, step in enumerate(steps):
        if step.before == "restart":
            judgement = Judgement(kind=KIND, plan=step.plan)
            for key, action in at_daemon.items():
                judgement = judgement.resumed(key, action)
        judgement = judgement.with_plan(step.plan)
        judgement, verdicts = judgement.after(
            step.tick / TICKS_PER_S, limits_of(_grants(step))[KIND][CARD], _uses(step)
        )
        for each in verdicts:
            what = each.action if isinstance(each, Over) else "within"
            said.append((number, each.key.container_id, each.key.quantity, what))
            if isinstance(each, Over):
                assert each.key not in at_daemon or _is_more(each.action, at_daemon[each.key])
                at_daemon[each.key] = each.action
            else:
                del at_daemon[each.key]
    return said


def _grants(step: Read) -> Iterator[Grant]:
    quota = Quota(profile="gpu-8g", memory_mib=MEMORY_MIB, cores_percent=CORES_PERCENT)
    for name in step.used:
        yield grant(name, CARD, container_id=name, kind=KIND, quota=quota, exempt=name == EXEMPT)


def _uses(step: Read) -> Iterator[ContainerUse]:
    for name, (memory_mib, cores) in step.used.items():
        if memory_mib or cores is None or cores:  # who uses nothing is in no reading
            yield ContainerUse(container_id=name, kind=KIND, card=CARD, memory_mib=memory_mib, cores_percent=cores)


def expected(steps: Sequence[Read]) -> list[Said]:
    """What must be said of a history."""
    said = [each for name in NAMES for quantity in QUANTITIES for each in _of_quota(steps, name, quantity)]
    return sorted(said, key=lambda each: each[0])


def _of_quota(steps: Sequence[Read], name: str, quantity: Quantity) -> Iterator[Said]:
    """One quota of one container, reading by reading, each time with all that was read before."""
    series: list[_Sample] = []
    spans: list[_Span] = []
    is_open, done = False, ""
    for number, step in enumerate(steps):
        if step.before == "restart" or _is_other(steps, number):
            series, spans = [], []
        if name not in step.used:
            series, spans = [], []
            if is_open:
                is_open = False
                yield number, name, quantity, "within"
            continue
        if series and step.tick - series[-1].tick > 3 * step.plan.period_s * TICKS_PER_S:
            series = []
        used = step.used[name][QUANTITIES.index(quantity)]
        if used is None:
            continue
        series.append(_Sample(number, step.tick, step.plan, min(used, 100) if quantity == "cores" else used))
        value = _value(series, quantity)
        if value is not None and len(series) > 1:
            spans.append(_Span(value > _most(step.plan, quantity), _stands_for_ticks(series)))
        if is_open and value is not None and value <= _allowed(quantity):
            is_open, spans = False, []
            yield number, name, quantity, "within"
        elif _is_over(series, quantity) or _is_often(spans, step.plan):
            asked = step.plan.actions.memory if quantity == "memory" else step.plan.actions.cores
            action = "observe" if name == EXEMPT else asked
            if not is_open or _is_more(action, done):
                is_open, done = True, action
                yield number, name, quantity, action


def _stands_for_ticks(series: Sequence[_Sample]) -> int:
    """The time for which the last reading of a *series* stands: since the one before, but at most a period."""
    return min(series[-1].tick - series[-2].tick, int(series[-1].plan.period_s * TICKS_PER_S))


def _is_often(spans: Sequence[_Span], plan: QuotaPlan) -> bool:
    """Whether there is a time up to now of which a container was over for more than a share and what is tolerated."""
    tolerated_ticks = max(plan.grace_s + plan.period_s, plan.samples * plan.period_s) * TICKS_PER_S
    times = accumulate(each.ticks for each in reversed(spans))
    over = accumulate(each.ticks * each.is_over for each in reversed(spans))
    is_more = (100 * a > plan.over_time_percent * b + 100 * tolerated_ticks for a, b in zip(over, times, strict=True))
    return bool(spans) and spans[-1].is_over and any(is_more)


def _is_more(action: str, than: str) -> bool:
    """Whether a container feels an action more than another one."""
    felt = {"observe": 0, "annotate": 1, "kill-process": 2, "stop": 3}
    return felt[action] > felt[than]


def _is_other(steps: Sequence[Read], number: int) -> bool:
    return number > 0 and steps[number - 1].plan != steps[number].plan


def _allowed(quantity: Quantity) -> int:
    return MEMORY_MIB if quantity == "memory" else CORES_PERCENT


def _most(plan: QuotaPlan, quantity: Quantity) -> int:
    """The quota with its margin."""
    return _allowed(quantity) + (plan.margin_mib if quantity == "memory" else plan.cores_margin_percent)


def _value(series: Sequence[_Sample], quantity: Quantity) -> float | None:
    """What the last reading of a *series* means; None where there are too few for a mean."""
    if quantity == "memory":
        return series[-1].value
    wanted = max(5, series[-1].plan.samples)
    last = [each.value for each in series[-wanted:]]
    return sum(last) / wanted if len(last) == wanted else None


def _is_over(series: Sequence[_Sample], quantity: Quantity) -> bool:
    """Whether the last readings of a *series* were all beyond quota and margin, enough of them and long enough."""
    plan = series[-1].plan
    for over, end in enumerate(range(len(series), 0, -1), 1):
        value = _value(series[:end], quantity)
        if value is None or value <= _most(plan, quantity):
            break
        if over >= plan.samples and series[-1].tick - series[end - 1].tick > plan.grace_s * TICKS_PER_S:
            return True
    return False
