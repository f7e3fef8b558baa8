"""Whatever only tells of what happens may raise wherever it is called: no call fails by it, and all is as without."""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.recorder import Recorder
from criproxy.cri import api_pb2 as api
from criproxy.cri import asked
from criproxy.model.cpuset import format_cpuset
from criproxy.node.calls import on_error
from criproxy.node.counters import Counters, Times
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.record import outbox as considering
from criproxy.node.record.outbox import Explanations, Outbox
from criproxy.node.record.refusals import Refusals
from criproxy.placement.answers import choice
from criproxy.placement.records import history as journal
from criproxy.placement.records import log_line
from criproxy.store import history as stored
from criproxy.wire.stats import Histogram
from lab.emulator.runtime import RuntimeOptions
from tests.node.calls.test_update import size
from tests.node.world import FAST, World, owner, refusal, sharer

NO_EVENTS = RuntimeOptions(missing=frozenset({"GetContainerEvents"}))
QUIET = replace(FAST, policy_name="static", exit_list_s=3600.0, drift_period_s=0.05)

TELLING = (journal, log_line, considering, choice, asked, on_error)
"""Modules that do nothing but tell: all their functions are planted."""
TELLERS: dict[type, set[str]] = {
    Refusals: {"listed", "omitted"},
    Explanations: {"settled"},
    Outbox: {"put", "drain", "settled"},
    Recorder: {"command"},
    stored.History: {"rollback"},
    Times: set(),
    Histogram: set(),
    Reconciler: {name for name, _ in inspect.getmembers(Reconciler) if name != "_publish"},
}
"""Classes that tell, and those of their methods that do something else."""

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


def call_sites() -> Iterator[tuple[str, Plant]]:
    """Everything that tells, found by itself, with what plants an exception in all places that call it."""
    for module in TELLING:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", everywhere(function)
    for kind, others in TELLERS.items():
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if name not in others and (not name.startswith("_") or name in ("_record_event", "_publish")):
                yield f"{kind.__name__}.{name}", at(kind, name)
    for field in fields(Counters):
        if "Counter[" in str(field.type):
            yield f"Counters.{field.name}", counting(field.name)


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


SITES = dict(call_sites())


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
        await world.restart()
        await world.poll(lambda: world.controller.ready)
        assert places(world) == EXPECTED
    return world


def test_what_tells_is_found() -> None:
    """None of the kinds is missing, and what does more than tell is not planted."""
    assert {"log_line", "entries_of", "cause", "weighed", "asked"} <= {name.rpartition(".")[2] for name in SITES}
    assert {
        "History.add",
        "outbox.record_of",
        "Outbox._publish",
        "Recorder._record_event",
        "Explanations.add",
        "Times.add",
        "Counters.exits",
    } <= SITES.keys()
    assert len(SITES) > 20


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
