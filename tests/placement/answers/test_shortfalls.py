"""Who runs without a place: sharers of whom the policy was not asked."""

from dataclasses import replace

import pytest

from criproxy.model.workload import ContainerState, Miss, Missed
from criproxy.placement.answers.shortfalls import unplaced, unplaced_since
from tests.placement.rules.test_promotion import missing


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        (ContainerState.CREATED, False),
        (ContainerState.RUNNING, True),
        (ContainerState.UNKNOWN, True),
        (ContainerState.EXITED, False),
    ],
)
def test_who_has_not_started_or_has_ended_does_not_run_without_its_place(state: ContainerState, *, runs: bool) -> None:
    """A kubelet that gives a create up may never start what came of it."""
    missed = Missed(why=Miss.BYPASSED, since_s=1.0, unseen=True)
    shares = missing()
    node = shares.replace(containers={"a": replace(shares.containers["a"], state=state, missed=missed)})

    assert unplaced(node) == ["a"] * runs
    assert unplaced_since(node.containers, node.containers) == ({"a": 1.0} if runs else {})
