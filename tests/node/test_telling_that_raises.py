"""Whatever only tells of what happens may raise wherever it is called: no call fails by it, and all is as without."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.recorder import Recorder
from criproxy.cri import api_pb2 as api
from criproxy.cri import asked
from criproxy.model.cpuset import format_cpuset
from criproxy.node.calls import on_error
from criproxy.node.counters import Counters
from criproxy.node.record import outbox as considering
from criproxy.node.record.outbox import Explanations, Outbox
from criproxy.node.record.refusals import Refusals
from criproxy.placement.answers import choice
from criproxy.placement.records import history as journal
from criproxy.placement.records import log_line
from criproxy.store import history as stored
from criproxy.wire.stats import Histogram
from tests.node.calls.test_update import size
from tests.node.world import FAST, NO_EVENTS, World, owner, refusal, sharer

QUIET = replace(FAST, policy_name="static", exit_list_s=3600.0, drift_period_s=0.05)

Plant = Callable[[pytest.MonkeyPatch], None]


def raising(*args: object, **keys: object) -> Any:  # noqa: ANN401 (in place of anything)
    """What is planted."""
    raise ValueError("planted")


class RaisingLog:
    """A log that takes no line."""

    def __init__(self) -> None:
        self.lost = list[str]()

    def info(self, event: str, **keys: object) -> None:
        """Take no line."""
        self.lost.append(event)
        raise ValueError("planted")

    warning = error = info


class RaisingCounter(Counter[Any]):
    """Counts nothing by name."""

    __setitem__ = raising


def at(kind: type, name: str) -> Plant:
    """Plant in a method of a class."""
    return lambda patch: patch.setattr(kind, name, raising)


def everywhere(function: object) -> Plant:
    """Plant in each module that has *function*, under whatever name."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("criproxy."):
                for name, value in list(vars(module).items()):
                    if value is function:
                        patch.setattr(module, name, raising)

    return plant


def counting(name: str) -> Plant:
    """Plant in each place that counts under a name in the counters' field *name*."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        made = Counters.__init__

        def init(self: Counters, *args: Any, **keys: Any) -> None:  # noqa: ANN401 (passed on)
            made(self, *args, **keys)
            setattr(self, name, RaisingCounter())

        patch.setattr(Counters, "__init__", init)

    return plant


FUNCTIONS = (
    *(journal.cause, journal.entries_of, journal.update_text, log_line.log_line, considering.record_of),
    *(choice.considered, choice.weighed, asked.asked, asked.asked_anew, on_error.note_failed),
)
METHODS = {
    Refusals: ("add", "forget", "remove"),
    Explanations: ("add",),
    Outbox: ("_publish",),
    Recorder: ("_record_event",),
    stored.History: ("add", "end"),
    Histogram: ("add",),
}
SITES: dict[str, Plant] = {
    **{function.__name__: everywhere(function) for function in FUNCTIONS},
    **{f"{kind.__name__}.{name}": at(kind, name) for kind, names in METHODS.items() for name in names},
    **{f"Counters.{name}": counting(name) for name in ("decisions", "refusals", "exits")},
}
"""What only tells, with what plants an exception in all places that call it."""


async def play(world: World) -> dict[str, tuple[str, str, str, str]]:
    """Pods come, share, own, are refused, resized, found drifted and listed, and go; where everybody is at the end."""
    recorder = Recorder(world.controller)
    await recorder.command({})
    shared = await world.run(sharer("shared"))
    owned = await world.run(owner("owned", 1))
    await refusal(world.run(owner("greedy", 9)), "greedy")
    await world.kubelet.update(owned, size(2000))
    await world.poll(lambda: world.cpus(owned) == "1-2")
    await world.poll(lambda: world.cpus(shared) == "0,3")
    await world.direct.update_container_resources(shared, api.LinuxContainerResources(cpuset_cpus="0-3"))
    await world.poll(lambda: world.cpus(shared) == "0,3")
    sandbox_id, ids = await world.kubelet.run_pod(owner("short", 1))
    assert (await world.client.container_status(ids["main"])).status.id == ids["main"]
    await world.kubelet.stop(ids["main"])
    await world.kubelet.remove(ids["main"])
    await world.kubelet.remove_pod(sandbox_id)
    assert {item.id for item in await world.client.list_containers("")} == {shared, owned}
    await world.poll(lambda: world.cpus(shared) == "0,3")
    await world.rested()
    return places(world)


def places(world: World) -> dict[str, tuple[str, str, str, str]]:
    """By name: state, CPUs and own CPUs that each was granted, and those that it has."""
    node = world.controller.node
    return {
        container.title: (
            container.state.value,
            format_cpuset(node.grants[key].cpus),
            format_cpuset(node.grants[key].exclusive),
            format_cpuset(node.applied[key].cpus),
        )
        for key, container in node.containers.items()
    }


EXPECTED = {
    "default/shared/main": ("running", "0,3", "", "0,3"),
    "default/owned/main": ("running", "1-2", "1-2", "1-2"),
}


async def lived(directory: Path) -> World:
    """Play the life, restart, and return the world that has ended."""
    async with World(directory, NO_EVENTS, QUIET) as world:
        assert await play(world) == EXPECTED
        await world.restart_known()
        assert places(world) == EXPECTED
    return world


@pytest.mark.parametrize("site", SITES)
async def test_no_call_fails_by_what_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    """An exception in every place that calls it changes nothing but what is told."""
    SITES[site](monkeypatch)

    await lived(tmp_path)


async def test_no_call_fails_by_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one line of it can be written."""
    log, made = RaisingLog(), World.__init__

    def init(self: World, *args: Any, **keys: Any) -> None:  # noqa: ANN401 (passed on)
        made(self, *args, **keys)
        self.log = log  # type: ignore[assignment]

    monkeypatch.setattr(World, "__init__", init)

    await lived(tmp_path)

    assert {"container placed", "container refused", "container resized", "place released"} <= set(log.lost)
