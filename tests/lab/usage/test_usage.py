"""The measurements themselves: short ones have every figure; their verdicts belong to the rig.

Here, what grows with the containers is not done on the event loop.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lab.usage import holds
from lab.usage.holds import FILES, Node, node
from lab.usage.measure import measure

FEW, MANY = 8, 16
TRIES = FEW - 1
"""Each with another container, the first of which is over its quota before that; what others do on the loop meanwhile
is not in each of them."""
CALLS_EACH = 50
"""Of Python's functions, for each container: to read or write what is said of it takes more than a hundred."""
Step = Callable[[Node], Awaitable[Any]]


def test_a_short_run_has_every_figure() -> None:
    """Each container is found by its process, and nobody is over a quota."""
    watcher, nvml, both = measure(16, seconds=1.0, warm_s=0.0)

    assert watcher.value > 0
    assert nvml.value > 0
    assert both.value == watcher.value + nvml.value


def test_all_that_is_reported_is_timed() -> None:
    """Each command of the watcher, and the files that follow from it."""
    assert set(holds.measure(8, 1)) == {"device-grants", "device-usage", "quota-incident", FILES}


def command(name: str) -> Step:
    """The daemon gets what the watcher says."""

    def run(there: Node) -> Awaitable[Any]:
        return there.commands[name](there.said()[name])

    return run


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(command("device-usage"), id="report-of-use"),
        pytest.param(command("device-grants"), id="question-of-grants"),
        pytest.param(command("quota-incident"), id="incident"),
        pytest.param(lambda there: there.files.update(), id="files-of-pods"),
    ],
)
async def test_the_loop_is_not_held(tmp_path: Path, step: Step) -> None:
    """What the loop's thread does for a report hardly grows with the containers: the rest is done beside it."""
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few = await calls_on_the_loop(tmp_path / "few", FEW, step)
    many = await calls_on_the_loop(tmp_path / "many", MANY, step)

    assert (many - few) / (MANY - FEW) <= CALLS_EACH


async def calls_on_the_loop(folder: Path, containers: int, step: Step) -> int:
    """How many functions the loop's thread calls in a step: the least of several, since others use that thread, too."""
    counts = []
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with node(folder, containers) as there:
        await step(there)  # what is loaded or written once
        for _ in range(TRIES):
            there.turn += 2
            calls = 0
            sys.setprofile(count)
            try:
                await step(there)
            finally:
                sys.setprofile(None)
            counts.append(calls)
    return min(counts)
