"""Who is over a quota, reading by reading: what the random histories of `tests.devices.usage` do not have."""

from dataclasses import replace
from math import inf, nan

import pytest

from criproxy.deviceplugin.usage.quota_judgement import Judgement
from criproxy.deviceplugin.usage.quota_verdicts import Key, Limit, Over, Within, limits_of
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.plan import OverQuota, QuotaActions, QuotaPlan
from criproxy.devices.usage.values import ContainerUse, Grant, Process, ProcessUse
from tests.deviceplugin.usage.hosts import grant

MEMORY = Key("c-1", "GPU-a", "memory")
CORES = Key("c-1", "GPU-a", "cores")
QUOTA = Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)
GRANT = grant("c-1", "GPU-a", container_id="c-1", kind="nvidia", quota=QUOTA)
JUDGE = Judgement(kind="nvidia", plan=QuotaPlan())
"""Grace 5 s, three readings, 512 MiB and 10 percent beyond the quota."""


def use(memory_mib: int = 0, cores: float | None = 0.0, *processes: ProcessUse) -> ContainerUse:
    """What the container uses of the card."""
    return ContainerUse(
        container_id="c-1", kind="nvidia", card="GPU-a", memory_mib=memory_mib, cores_percent=cores, processes=processes
    )


def limits(*grants: Grant) -> tuple[Limit, ...]:
    """What these grants allow of the card."""
    return limits_of(grants).get("nvidia", {}).get("GPU-a", ())


def read(
    judge: Judgement, *uses: tuple[float, ContainerUse | None], grant: Grant | None = GRANT
) -> tuple[Judgement, list[tuple[float, Over | Within]]]:
    """Judge readings at these times; None: the container is in none of them. What is said, and when."""
    said: list[tuple[float, Over | Within]] = []
    for at_s, each in uses:
        judge, verdicts = judge.after(at_s, limits(*filter(None, [grant])), [each] if each else [])
        said += [(at_s, verdict) for verdict in verdicts]
    return judge, said


def seconds(each: ContainerUse, first: int, last: int) -> list[tuple[float, ContainerUse | None]]:
    """The same use in one reading a second."""
    return [(float(at_s), each) for at_s in range(first, last + 1)]


def test_scenario_15() -> None:
    """9000 MiB with 8192 allowed and a margin of 512 are said once, in the first reading beyond the grace."""
    process = Process(pid=7, start_ticks=70)
    over = use(9000, 0.0, ProcessUse(process=process, card="GPU-a", memory_mib=9000))
    _, said = read(JUDGE, *seconds(over, 10, 60))

    expected = Over(
        key=MEMORY, kind="nvidia", used=9000.0, allowed=8192, over_since_s=10.0, action="stop", largest=process
    )
    assert said == [(16.0, expected)]


def lost(memory_mib: int, cores: float | None = 0.0) -> ProcessUse:
    """What a process uses of the card that was gone before its container was found."""
    process = Process(pid=99, start_ticks=0)
    return ProcessUse(process=process, card="GPU-a", memory_mib=memory_mib, cores_percent=cores)


@pytest.mark.parametrize(
    ("own", "gone", "ends"),
    [
        pytest.param(None, lost(9000), False, id="all-of-it-may-be-its"),
        pytest.param(use(8000), lost(193), False, id="with-it-beyond-the-quota"),
        pytest.param(use(8000), lost(192), True, id="with-it-within-the-quota"),
        pytest.param(use(8193), lost(1), False, id="beyond-the-quota-without-it"),
        pytest.param(None, lost(0, None), True, id="its-cores-are-another-quota"),
    ],
)
def test_a_process_that_is_gone_ends_no_incident(own: ContainerUse | None, gone: ProcessUse, *, ends: bool) -> None:
    """It may have been the container's: only if it is within the quota even then, the incident is over."""
    judge, _ = read(JUDGE, *seconds(use(9000), 0, 6))
    _, verdicts = judge.after(7.0, limits(GRANT), [own] if own else [], [gone])

    assert list(verdicts) == ([Within(MEMORY)] if ends else [])


@pytest.mark.parametrize("cores", [60.0, None], ids=["many", "not-known"])
def test_a_process_that_is_gone_may_have_used_the_cores(cores: float | None) -> None:
    """The reading does not count for the mean."""
    judge, _ = read(JUDGE, *seconds(use(0, 60.0), 0, 12))
    for at_s in (13.0, 14.0):
        judge, verdicts = judge.after(at_s, limits(GRANT), [], [lost(0, cores)])
        assert verdicts == ()
    judge, said = read(judge, *seconds(use(0, 0.0), 15, 19))

    assert [verdict for _, verdict in said] == [Within(CORES)]


def test_a_process_that_is_gone_accuses_nobody() -> None:
    """It may have been another container's; and neither does it protect who is over its quota without it."""
    judge = JUDGE
    for at_s in range(30):
        judge, verdicts = judge.after(float(at_s), limits(GRANT), [use(100)], [lost(16_000)])
        assert verdicts == ()
    for at_s in range(30, 36):
        judge, verdicts = judge.after(float(at_s), limits(GRANT), [use(9000)], [lost(16_000)])
        assert verdicts == ()
    judge, verdicts = judge.after(36.0, limits(GRANT), [use(9000)], [lost(16_000)])
    assert [verdict.key for verdict in verdicts] == [MEMORY]


def test_processes_of_neighbours_that_exit_do_not_make_a_container_exceed_its_share() -> None:
    """Within its quota as far as is known is within it: a neighbour that forks takes no such time from others."""
    judge = JUDGE
    for at_s in range(3600):
        is_busy = at_s % 7 == 0
        beside = [] if at_s % 7 in (0, 3, 6) else [lost(16_000)]
        judge, verdicts = judge.after(float(at_s), limits(GRANT), [use(14000 if is_busy else 4000)], beside)
        assert verdicts == ()


@pytest.mark.parametrize(
    ("samples", "readings", "said_at_s"),
    [
        pytest.param(3, [(0.0, use(9000)), (3.0, use(9000)), (5.5, use(9000))], [5.5], id="just-no-pause"),
        pytest.param(4, [(0.0, use(9000)), (3.0, use(9000)), *[(5.5, use(9000))] * 2], [], id="repeated"),
        pytest.param(3, seconds(use(0, 36.0), 0, 12), [10.0], id="cores"),
        pytest.param(3, seconds(use(0, nan), 0, 30), [], id="no-number"),
        pytest.param(3, seconds(use(0, inf), 0, 30), [], id="no-finite-number"),
    ],
)
def test_odd_readings(samples: int, readings: list[tuple[float, ContainerUse | None]], said_at_s: list[float]) -> None:
    """Each counts once, and what is no amount does not count."""
    _, said = read(JUDGE.with_plan(QuotaPlan(samples=samples)), *readings)

    assert [at_s for at_s, _ in said] == said_at_s


def test_who_is_over_too_often_is_said_so() -> None:
    """Never for longer than the grace, but for half of the time."""
    _, said = read(JUDGE, *((float(at_s), use(4000 + 10000 * (at_s % 2))) for at_s in range(30)))

    assert [(each.action, each.repeated) for _, each in said if isinstance(each, Over)] == [("stop", True)]


def test_a_pause_does_not_end_an_incident() -> None:
    """Nobody knows what it used meanwhile: neither an end nor another incident is said."""
    judge, _ = read(JUDGE, *seconds(use(9000), 0, 6))
    judge, said = read(judge, *seconds(use(9000), 100, 120))

    assert not said
    assert judge.over_since() == {MEMORY: 100.0}


@pytest.mark.parametrize(
    ("grant", "actions"),
    [
        pytest.param(GRANT, ["kill-process"], id="of-the-class"),
        pytest.param(replace(GRANT, exempt=True), ["observe"], id="exempt"),
        pytest.param(replace(GRANT, quota=replace(QUOTA, watched=False)), ["observe"], id="without-watch"),
        pytest.param(replace(GRANT, quota=None), [], id="whole-cards"),
        pytest.param(replace(GRANT, kind="amd"), [], id="another-class"),
        pytest.param(replace(GRANT, quota=replace(QUOTA, memory_mib=0)), [], id="no-quota-of-memory"),
        pytest.param(replace(GRANT, cards=("GPU-a", "GPU-a")), ["kill-process"], id="named-twice"),
        pytest.param(replace(GRANT, cards=("GPU-b",)), [], id="another-card"),
    ],
)
def test_actions(grant: Grant, actions: list[str]) -> None:
    """The class has its own action; an exempt container is only observed, and one that something else limits, too."""
    plan = QuotaPlan(by_class={"nvidia": QuotaActions(memory="kill-process")})
    _, said = read(JUDGE.with_plan(plan), *seconds(use(9000), 0, 10), grant=grant)

    assert [each.action for _, each in said if isinstance(each, Over)] == actions
    assert len(said) == len(actions)


def test_the_larger_of_two_quotas_counts() -> None:
    """A container with two vGPUs of one card is not held to the smaller one."""
    larger = replace(GRANT, quota=replace(QUOTA, memory_mib=12000))
    judge, said = JUDGE, list[Over | Within]()
    for at_s in range(20):
        judge, verdicts = judge.after(float(at_s), limits(GRANT, larger), [use(9000)])
        said += verdicts

    assert not said


def test_the_largest_process() -> None:
    """It is the one that uses most of the quantity; of equal ones the youngest."""

    def process(pid: int, start_ticks: int, memory_mib: int, cores: float | None) -> ProcessUse:
        named = Process(pid=pid, start_ticks=start_ticks)
        return ProcessUse(process=named, card="GPU-a", memory_mib=memory_mib, cores_percent=cores)

    processes = (process(1, 10, 4000, 90.0), process(2, 30, 5000, None), process(3, 20, 5000, 1.0))
    _, said = read(JUDGE, *seconds(use(14000, 91.0, *processes), 0, 12))

    largest = {each.key.quantity: each.largest for _, each in said if isinstance(each, Over)}
    assert largest == {"memory": Process(pid=2, start_ticks=30), "cores": Process(pid=1, start_ticks=10)}


def each_second(*percents: float) -> dict[int, float]:
    """Samples that a driver takes once a second: what is computed, by the second."""
    return dict(enumerate(percents))


@pytest.mark.parametrize(
    ("percents", "said_at_s"),
    [
        pytest.param(each_second(90, 90, 90, 90), [], id="too-few-samples-in-many-readings"),
        pytest.param(each_second(90, 90, 90, 90, 90, 90, 90), [6.0], id="grace-and-samples-of-their-own"),
        pytest.param(each_second(100, 0, 0, 0, 0, 0, 0, 0), [], id="one-sample-is-one-however-often-it-is-read"),
        pytest.param(each_second(*[90] * 7, 0, 0, 0, 0, 0), [6.0, 10.0], id="nor-is-it-over-by-repetition"),
    ],
)
def test_a_sample_counts_once(percents: dict[int, float], said_at_s: list[float]) -> None:
    """Cores are judged by the driver's samples, however often they are read: every tenth of a second here."""
    judge, said_s = replace(JUDGE, plan=QuotaPlan(period_s=0.1, grace_s=1.0, samples=2)), list[float]()
    for tick in range(10 * max(percents) + 10):
        newest = max(second for second in percents if second <= tick / 10)
        judge, verdicts = judge.after(tick / 10, limits(GRANT), [use(0, percents[newest])], sampled_s=float(newest))
        said_s += [tick / 10 for _ in verdicts]

    assert said_s == said_at_s


def test_memory_does_not_wait_for_samples() -> None:
    """Each reading has the memory of its own time."""
    judge, said_s = replace(JUDGE, plan=QuotaPlan(period_s=0.1, grace_s=1.0)), list[float]()
    for tick in range(30):
        judge, verdicts = judge.after(tick / 10, limits(GRANT), [use(9000, 90.0)], sampled_s=0.0)
        said_s += [tick / 10 for _ in verdicts]

    assert said_s == [1.1]


def test_no_sample_makes_more_of_an_incident() -> None:
    """A stronger action needs a new sample beyond the grace, too."""
    observe = replace(GRANT, exempt=True)
    plan = QuotaPlan(period_s=0.1, grace_s=1.0, samples=1, actions=QuotaActions(cores="stop"))
    judge, told = replace(JUDGE, plan=plan), list[tuple[float, OverQuota]]()
    for tick in range(80):
        sample_s, grant = tick // 10, observe if tick < 65 else GRANT
        judge, verdicts = judge.after(tick / 10, limits(grant), [use(0, 90.0)], sampled_s=float(sample_s))
        told += [(tick / 10, each.action) for each in verdicts if isinstance(each, Over)]

    assert told == [(6.0, "observe"), (7.0, "stop")]
