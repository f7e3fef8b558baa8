"""Callbacks of the event loop are supervised like tasks: one that fails is listed, and its lock is given back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.node.devices.kubelet import Kubelet
from criproxy.node.in_flight import InFlight, StartEvent
from criproxy.node.sync.outcomes import Outcomes
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from lab.emulator.runtime import RuntimeOptions
from tests.node.devices.test_kubelet import FILES as KUBELET_FILES
from tests.node.devices.test_kubelet import MAIN, kubelet
from tests.node.failing import PLANTED, plant_failure
from tests.node.world import FAST, RecordingLog, Slow, World, cut, owner, said, sharer

LIMIT_S = 60.0
ALONE = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)
NO_EVENTS = frozenset({"GetContainerEvents"})


async def test_a_callback_that_raises_is_listed() -> None:
    """It is logged, counted and shown under the name of its function, and what is no exception is left to asyncio."""
    log, failures = RecordingLog(), Failures()
    tasks, loop = Tasks(log, failures), asyncio.get_running_loop()

    def broken() -> None:
        raise PLANTED

    tasks.watch_callbacks()
    loop.call_soon(broken)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.call_exception_handler({"message": "no exception"})
    await tasks.stop()

    assert failures.counts == {"background": 1}
    assert "broken" in failures.recent()[0].text
    assert log.events() == ["background work failed"]
    assert loop.get_exception_handler() is None


async def test_another_controller_keeps_its_own_handler() -> None:
    """One that ends leaves the event loop to the one that began after it."""
    first, second = Tasks(RecordingLog(), Failures()), Tasks(RecordingLog(), Failures())
    first.watch_callbacks()
    second.watch_callbacks()

    await first.stop()

    assert asyncio.get_running_loop().get_exception_handler() == second._unhandled
    await second.stop()


async def test_who_moves_for_a_create_moves_though_carrying_it_out_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exception after a decision costs no container its update, and `--check` names it."""
    async with World(tmp_path, RuntimeOptions(missing=NO_EVENTS), ALONE) as world:
        shared = await world.at_rest(sharer("shared"))
        failed = plant_failure(monkeypatch, InFlight, "retain", 1, when=lambda _, node: bool(node.exclusive_cpus))
        await world.created(owner("owner"))

        await world.poll(lambda: world.cpus(shared) == "0,2-3")

        assert failed
        assert world.controller.context.failures.counts["background"] == 1
        assert said(world, "planted")


FAILING = [
    pytest.param(InFlight, "start", StartEvent.ANSWER, id="after-the-answer"),
    pytest.param(Outcomes, "start_unknown", None, id="after-a-cut"),
]


@pytest.mark.parametrize(("kind", "method", "event"), FAILING)
async def test_a_start_whose_end_cannot_be_booked_frees_its_lock(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, event: StartEvent | None
) -> None:
    """Whatever fails after the runtime's answer, or without one: the next call of that container does not wait."""
    options = RuntimeOptions(latency_s=slow, missing=NO_EVENTS)
    async with World(tmp_path, options, ALONE) as world:
        _, key = await world.created(sharer("shared"))
        failed = plant_failure(monkeypatch, kind, method, 1, when=lambda *given: event is None or event in given)
        if event is None:
            slow["StartContainer"] = 0.05
            await cut(world.kubelet.start(key), slow)
        else:
            await world.kubelet.start(key)

        await world.poll(lambda: bool(failed) and not world.controller.context.locks.busy(key))

        assert world.controller.context.failures.recent()


async def test_a_question_to_the_kubelet_that_raises_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the container, and the failure is counted as that of any other background work."""
    plant_failure(monkeypatch, Kubelet, "_ask")
    source = kubelet(KUBELET_FILES, tmp_path)
    async with asyncio.timeout(LIMIT_S):
        await source.known(MAIN)

        assert source.tasks.failures.counts == {"background": 1}
        assert "ask podresources of s1" in source.tasks.failures.recent()[0].text
        await source.close()
