"""The measurement itself: a short one finds all containers and judges nobody; its verdict belongs to the rig."""

from tests.rigs.usage.measure import measure


def test_a_short_run_has_every_figure() -> None:
    """Each container is found by its process, and nobody is over a quota."""
    cost = measure(16, seconds=1.0, warm_s=0.0)

    assert (cost.containers, cost.incidents) == (16, 0)
    assert cost.watcher_percent > 0
    assert cost.nvml_percent > 0
    assert cost.percent == cost.watcher_percent + cost.nvml_percent
