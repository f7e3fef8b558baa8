"""The plan of a run follows from its seed, and reaches every phase."""

from collections import Counter

from lab.chaos.phases import RUNTIMES, Phase, plan


def test_the_plan_follows_from_the_seed() -> None:
    """The same seed gives the same plan, another seed or runtime another one."""
    assert plan(7, "containerd", 50) == plan(7, "containerd", 50)
    assert plan(7, "containerd", 50) != plan(8, "containerd", 50)
    assert plan(7, "containerd", 50) != plan(7, "embedded", 50)


def test_every_phase_comes_as_often_as_the_others() -> None:
    """500 kills on two runtimes hit each phase far more than 20 times."""
    counts = Counter(kill.phase for runtime in RUNTIMES for kill in plan(1, runtime, 250))

    assert set(counts) == set(Phase)
    assert min(counts.values()) >= 82
    assert max(counts.values()) <= 84


def test_everything_that_can_go_wrong_comes_along() -> None:
    """Cut connections, restarts, foreign writers, lost databases, kills in a start and rests without a kill."""
    kills = plan(1, "embedded", 250)

    for name in ("cut", "restart", "foreign", "lost", "calm"):
        assert 5 < sum(getattr(kill, name) for kill in kills) < 125
    assert 5 < sum(kill.early_ms is not None for kill in kills) < 125
