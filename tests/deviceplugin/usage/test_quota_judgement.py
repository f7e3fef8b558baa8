"""Who is over a quota, reading by reading."""

from dataclasses import replace
from math import inf, nan

import pytest

from criproxy.deviceplugin.usage.quota_judgement import Judgement
from criproxy.deviceplugin.usage.quota_verdicts import Key, Limit, Over, Within, limits_of
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.plugin.plan import OverQuota, QuotaActions, QuotaPlan
from criproxy.devices.usage.values import ContainerUse, Grant, Process, ProcessUse

MEMORY = Key("c-1", "GPU-a", "memory")
CORES = Key("c-1", "GPU-a", "cores")
QUOTA = Quota(profile="gpu-8g", memory_mib=8192, cores_percent=25)
GRANT = Grant(
    container_id="c-1",
    namespace="default",
    pod="one",
    container="main",
    pod_uid="uid-1",
    kind="nvidia",
    resource="criproxy.io/gpu-8g",
    ids=("GPU-a/gpu-8g/0",),
    cards=("GPU-a",),
    quota=QUOTA,
)
JUDGE = Judgement(kind="nvidia", plan=QuotaPlan())
"""Grace 5 s, three readings, 512 MiB and 10 percent beyond the quota."""


def use(memory_mib: int = 0, cores: float | None = 0.0, *processes: ProcessUse) -> ContainerUse:
    """What the container uses of the card."""
    return ContainerUse(
        container_id="c-1",
        kind="nvidia",
        card="GPU-a",
        memory_mib=memory_mib,
        cores_percent=cores,
        processes=processes,
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
        key=MEMORY,
        kind="nvidia",
        used=9000.0,
        allowed=8192,
        over_since_s=10.0,
        action="stop",
        largest=process,
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


@pytest.mark.parametrize(
    ("plan", "readings", "said_at_s"),
    [
        pytest.param(QuotaPlan(), seconds(use(8704), 0, 30), [], id="at-the-margin"),
        pytest.param(QuotaPlan(), seconds(use(8705), 0, 30), [6.0], id="beyond-the-margin"),
        pytest.param(QuotaPlan(), seconds(use(9000), 0, 5), [], id="in-the-grace"),
        pytest.param(
            QuotaPlan(),
            [*seconds(use(9000), 0, 4), *seconds(use(8700), 5, 20), *seconds(use(9000), 21, 26)],
            [],
            id="a-while-below-the-margin",
        ),
        pytest.param(QuotaPlan(), [(0.0, use(9000)), (3.0, use(9000)), (5.5, use(9000))], [5.5], id="three-readings"),
        pytest.param(
            QuotaPlan(samples=4), [(0.0, use(9000)), (3.0, use(9000)), (5.5, use(9000))], [], id="too-few-readings"
        ),
        pytest.param(
            QuotaPlan(), [(0.0, use(9000)), (2.0, use(9000)), (5.5, use(9000)), (6.5, use(9000))], [], id="a-pause"
        ),
        pytest.param(QuotaPlan(grace_s=0.0, samples=1), seconds(use(9000), 0, 3), [1.0], id="no-grace"),
        pytest.param(
            QuotaPlan(grace_s=0.0, samples=3), [(0.0, use(9000)), (0.0, use(9000)), (0.0, use(9000))], [], id="repeated"
        ),
        pytest.param(QuotaPlan(), [*seconds(use(9000), 10, 14), (3.0, use(9000))], [], id="older-reading"),
    ],
)
def test_memory(plan: QuotaPlan, readings: list[tuple[float, ContainerUse | None]], said_at_s: list[float]) -> None:
    """Only readings in a row beyond quota and margin count, and each once."""
    _, said = read(JUDGE.with_plan(plan), *readings)

    assert [at_s for at_s, _ in said] == said_at_s


@pytest.mark.parametrize(
    ("cores", "said_at_s"),
    [
        pytest.param([35.0] * 30, [], id="at-the-margin"),
        pytest.param([36.0] * 30, [10.0], id="beyond-the-margin"),
        pytest.param([0.0, 0.0, 0.0, 0.0, 100.0] * 6, [], id="bursts"),
        pytest.param([0.0] * 5 + [400.0] + [0.0] * 10, [], id="a-mistake-of-the-driver"),
        pytest.param([None] * 30, [], id="not-known"),
        pytest.param([nan] * 30, [], id="no-number"),
        pytest.param([inf] * 30, [], id="no-finite-number"),
    ],
)
def test_cores(cores: list[float | None], said_at_s: list[float]) -> None:
    """Computing units are judged by the mean of five readings: the first one that can be over is the fifth."""
    _, said = read(JUDGE, *((float(at_s), use(0, each)) for at_s, each in enumerate(cores)))

    assert [at_s for at_s, _ in said] == said_at_s
    assert all(isinstance(each, Over) and (each.key, each.action) == (CORES, "observe") for _, each in said)


def cycles(busy: int, idle: int, count: int) -> list[tuple[float, ContainerUse | None]]:
    """A reading a second of a container that is over its quota and within it by turns."""
    return [(float(at_s), use(14000 if at_s % (busy + idle) < busy else 4000)) for at_s in range(count)]


@pytest.mark.parametrize(
    ("busy", "idle", "first_s"),
    [
        pytest.param(6, 1, 9.0, id="just-within-the-grace"),
        pytest.param(2, 1, 13.0, id="never-as-many-as-samples"),
        pytest.param(1, 1, 20.0, id="every-other-reading"),
        pytest.param(1, 3, 112.0, id="a-quarter-of-the-time"),
        pytest.param(1, 4, None, id="the-tolerated-share"),
        pytest.param(5, 20, None, id="the-tolerated-share-in-one-piece"),
    ],
)
def test_whoever_is_over_for_more_than_the_tolerated_share_is_found(
    busy: int, idle: int, first_s: float | None
) -> None:
    """A fifth of the time is tolerated, in pieces within the grace; more is found, whatever its rhythm."""
    _, said = read(JUDGE, *cycles(busy, idle, 3600))

    assert next((at_s for at_s, _ in said), None) == first_s
    found = [each for _, each in said if isinstance(each, Over)]
    assert {(each.key, each.action, each.repeated) for each in found} <= {(MEMORY, "stop", True)}


def test_a_pause_neither_counts_nor_forgives() -> None:
    """A container that was over often is found after a pause as soon as it would have been without one."""
    judge, said = read(JUDGE, *cycles(1, 1, 20))
    _, later = read(judge, *seconds(use(14000), 100, 110))

    assert not said
    assert [at_s for at_s, _ in later] == [101.0]


def test_processes_of_neighbours_that_exit_do_not_make_a_container_exceed_its_share() -> None:
    """Within its quota as far as is known is within it: a neighbour that forks takes no such time from others."""
    judge = JUDGE
    for at_s in range(3600):
        is_busy = at_s % 7 == 0
        beside = [] if at_s % 7 in (0, 3, 6) else [lost(16_000)]
        judge, verdicts = judge.after(float(at_s), limits(GRANT), [use(14000 if is_busy else 4000)], beside)
        assert verdicts == ()


def test_an_incident_lasts_until_the_quota_is_kept() -> None:
    """Just above the quota it is still the same one; within it, it is over, and the next one is another."""
    readings = [
        *seconds(use(9000), 0, 6),
        *seconds(use(8193), 7, 9),
        *seconds(use(9000), 10, 20),
        *seconds(use(8192), 21, 22),
        *seconds(use(9000), 23, 29),
    ]
    _, said = read(JUDGE, *readings)

    assert [(at_s, type(each)) for at_s, each in said] == [(6.0, Over), (21.0, Within), (29.0, Over)]


def test_a_container_that_is_gone_ends_its_incident() -> None:
    """Whether it has ended, or uses nothing any more."""
    judge, _ = read(JUDGE, *seconds(use(9000), 0, 6))

    assert read(judge, (7.0, None))[1] == [(7.0, Within(MEMORY))]
    assert read(judge, (7.0, None), grant=None)[1] == [(7.0, Within(MEMORY))]


def test_a_pause_does_not_end_an_incident() -> None:
    """Nobody knows what it used meanwhile: neither an end nor another incident is said."""
    judge, _ = read(JUDGE, *seconds(use(9000), 0, 6))
    judge, said = read(judge, *seconds(use(9000), 100, 120))

    assert not said
    assert judge.over_since() == {MEMORY: 100.0}


def test_a_restart_repeats_nothing() -> None:
    """An incident that the daemon knows is not said again; its end is, also where the container is gone meanwhile."""
    resumed = JUDGE.resumed(MEMORY)

    assert not read(resumed, *seconds(use(9000), 0, 30))[1]
    assert read(resumed, (0.0, use(100)))[1] == [(0.0, Within(MEMORY))]
    assert read(resumed, (0.0, None), grant=None)[1] == [(0.0, Within(MEMORY))]


def test_another_plan() -> None:
    """With it everybody begins anew, and the same plan changes nothing."""
    judge, _ = read(JUDGE, *seconds(use(9000), 0, 5))

    assert read(judge.with_plan(QuotaPlan()), (6.0, use(9000)))[1]
    assert not read(judge.with_plan(QuotaPlan(samples=2)), (6.0, use(9000)))[1]


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        pytest.param(("observe", "stop"), [6.0, 16.0], id="stronger"),
        pytest.param(("observe", "annotate"), [6.0, 16.0], id="a-little-stronger"),
        pytest.param(("kill-process", "stop"), [6.0, 16.0], id="from-a-process-to-all"),
        pytest.param(("stop", "kill-process"), [6.0], id="weaker"),
        pytest.param(("stop", "observe"), [6.0], id="much-weaker"),
    ],
)
def test_an_incident_is_said_again_when_more_is_to_be_done(actions: tuple[OverQuota, ...], said: list[float]) -> None:
    """Not before it has lasted for the grace by the other plan, and it is one incident with one end."""
    judge, found = JUDGE, list[tuple[float, Over | Within]]()
    for action, first in zip(actions, (0, 10), strict=True):
        judge = judge.with_plan(QuotaPlan(actions=QuotaActions(memory=action)))
        judge, more = read(judge, *seconds(use(9000), first, first + 9))
        found += more
    _, end = read(judge, (20.0, use(100)))

    assert [(at_s, each.action) for at_s, each in found if isinstance(each, Over)] == [
        *zip(said, actions, strict=False)
    ]
    assert end == [(20.0, Within(MEMORY))]


@pytest.mark.parametrize(("before", "said"), [("observe", [6.0]), ("stop", [])])
def test_after_a_restart_more_is_to_be_done(before: OverQuota, said: list[float]) -> None:
    """The plan may have become another one meanwhile."""
    _, found = read(JUDGE.resumed(MEMORY, before), *seconds(use(9000), 0, 9))

    assert [at_s for at_s, _ in found] == said


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
    assert largest == {
        "memory": Process(pid=2, start_ticks=30),
        "cores": Process(pid=1, start_ticks=10),
    }


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
