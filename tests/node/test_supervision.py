"""No watcher ends in silence: what fails is logged, counted and told, and begins again."""

import ast
import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.host.cgroup import ContainerGroup
from criproxy.model.workload import ContainerState
from criproxy.node import controller
from criproxy.node.calls.status_replies import Replies
from criproxy.node.configuration.policy_switch import PolicySwitch
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.reconcile.promotion import ColdStarts
from criproxy.node.sync.drift import Drift
from criproxy.node.sync.exit_events import ExitEvents
from criproxy.node.sync.resync import Resync
from criproxy.process.failures import Failures
from criproxy.process.tasks import OnDemand, Tasks
from tests.conftest import ROOT
from tests.node.failing import PLANTED, plant_failure
from tests.node.reconcile.test_promotion_cold_starts import starting_cold
from tests.node.world import FAST, NO_EVENTS, RecordingLog, World, owner, problems, sharer, situation, soon

LIMIT_S = 120.0
"""Only what never comes takes so long."""
WATCHFUL = replace(FAST, exit_list_s=0.05, drift_period_s=0.05)
ALONE = replace(FAST, unknown_pause_s=3600.0, exit_list_s=3600.0, drift_period_s=3600.0)
"""Nobody looks at what a watcher has missed, such as the comparison soon after each start."""

ENDLESS = {
    "node/sync/drift.py:Drift.watch": "supervised",
    "node/sync/unseen.py:Newcomers.watch": "supervised",
    "node/sync/exit_events.py:ExitEvents.follow": "supervised",
    "node/sync/exit_events.py:ExitEvents.list_regularly": "supervised",
    "node/configuration/reload.py:Reload.run": "supervised",
    "node/sync/resync.py:Resync.run": "supervised",
    "config/watch.py:PolicyFileWatch.run": "supervised",
    "daemon/behind.py:Behind.watch": "supervised",
    "daemon/behind.py:KubeletCpus.watch": "supervised",
    "daemon/behind.py:SocketFiles.watch": "supervised",
    "process/allocator.py:give_back_after_peaks": "daemon/start.py supervises it",
    "nri/plugin.py:Plugin.run": "daemon/serve.py supervises it",
    "cri/podresources.py:PodresourcesClient._call": "ends with the deadline of the call",
    "daemon/start.py:opened_store": "ends with the disk or the release that it waits for",
    "deviceplugin/usage/quota_methods.py:Methods.run": "supervised",
    "deviceplugin/health/events_watch.py:EventsWatch.run": "supervised",
    "deviceplugin/health/health_commands.py:HealthCommands.run": "supervised",
    "deviceplugin/health/health_commands.py:HealthCommands._repeat": "ends run with it, which is supervised",
    "deviceplugin/cards/inventory.py:Machine.watch": "supervised",
    "deviceplugin/label_updater.py:LabelUpdater.run": "supervised",
    "deviceplugin/reload.py:Reload.run": "supervised",
    "deviceplugin/daemon_client/reports.py:Reports.run": "supervised",
    "deviceplugin/cards/vgpu_files.py:Sweeper.run": "supervised",
    "deviceplugin/cards/vgpu_files.py:Sweeper._remove_all": "ends with what there is to remove, or when that hangs",
    "node/devices/plugin.py:DevicePlugin.remember": "supervised",
    "node/devices/pod_files.py:PodFiles.run": "supervised",
    "api/page/stream.py:Streams.run": "supervised",
    "api/agent.py:AgentPolls.command": "ends with the time that its client waits",
    "controls/arrivals.py:Arrivals.run": "supervised",
    "controls/arrivals.py:Arrivals._tell": "ends run with it, which is supervised",
    "controls/core.py:Controls.look": "supervised",
    "controls/lane.py:Passes.run": "supervised",
    "agent/node_view.py:NodeView.run": "supervised",
    "agent/http.py:AgentHttp.run": "supervised",
    "agent/kubernetes/watch.py:Watched.run": "supervised",
    "agent/kubernetes/client.py:ApiClient._pages": "ends with the last page, or with the limit for all of them",
    "agent/kubernetes/transport.py:Transport._send": "ends with the answer, or the deadline of the request",
    "agent/install_slots.py:InstallSlots.take": "ends with the turn of this node; the pod waits for it",
    "agent/publish.py:Publisher.run": "supervised",
    "agent/rollout/trial.py:Rollout.run": "supervised",
    "agent/serve.py:Agent._report_watches": "supervised",
    "agent/signs/device_configuration.py:DeviceConfiguration.run": "supervised",
    "agent/signs/event_source.py:EventSource.run": "supervised",
    "agent/signs/events.py:EventWriter.run": "supervised",
    "agent/signs/node.py:NodeSigns.run": "supervised",
    "node/configuration/try_out.py:TryOut.run": "supervised",
    "deviceplugin/usage/watcher.py:Watcher._run": "supervised",
    "deviceplugin/usage/quota_incidents.py:QuotaIncidents.run": "supervised",
    "deviceplugin/usage/watcher.py:UsageReports.run": "supervised",
    "deviceplugin/usage/grants_client.py:Grants.run": "ends Watcher._run with it, which is supervised",
    "deviceplugin/usage/class_watch.py:ClassWatch.run": "the same",
    "deviceplugin/usage/sources.py:FileSource.run": "the same",
    "deviceplugin/resources/kubelet_state.py:FolderWatch.run": "supervised",
    "deviceplugin/server/plugin.py:Plugin.run": "supervised",
    "deviceplugin/resources/plugin_manager.py:PluginManager._poll_in_use": "supervised",
    "process/http/limits.py:Acceptor.run": "supervised",
    "deviceplugin/line_programs.py:LineProgram.keep_running": "ends the two loops that run it, which are supervised",
    "deviceplugin/line_programs.py:LineProgram._lines": "ends with its program, or when that is silent",
    "process/tasks.py:Tasks.keep_going": "it supervises",
    "node/record/persister.py:Persister._run": "ends when the disk takes what there is; `OnDemand` supervises it",
    "node/sync/outcomes.py:Outcomes.resolve_outcome": "ends with the runtime's answer, or with its container",
    "node/devices/evidence.py:MachineCards.scan": "ends with the first scan of its own classes, or when one hangs",
    "node/sync/resync.py:Resync.again": "ends with the runtime's answer; run, of_sandbox and modes wait for it",
}
"""Every loop without an end that waits for something, and who sees to it that it goes on."""


def endless_loops() -> Iterator[str]:
    """Every ``while True`` with an await in it, as FILE:CLASS.FUNCTION; commands are no daemon."""
    package = ROOT / "criproxy"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith(("cli/", "simulate/")):
            continue
        if not re.search(r"^ +while\b", text := path.read_text(), re.MULTILINE):
            continue
        for owner_name, function in functions(ast.parse(text)):
            loops = [node for node in ast.walk(function) if isinstance(node, ast.While)]
            forever = [node for node in loops if isinstance(node.test, ast.Constant) and node.test.value]
            if any(isinstance(each, ast.Await | ast.AsyncFor) for loop in forever for each in ast.walk(loop)):
                yield f"{name}:{owner_name}{function.name}"


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AsyncFunctionDef]]:
    """The coroutines of a module, with the name of their class and a dot."""
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.", each) for each in node.body if isinstance(each, ast.AsyncFunctionDef))


def supervised() -> set[str]:
    """The names of the functions that are given to `Tasks.forever` anywhere."""
    found = set[str]()
    for path in (ROOT / "criproxy").rglob("*.py"):
        if ".forever(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "forever":
                found |= {each.attr for each in ast.walk(node.args[1]) if isinstance(each, ast.Attribute)}
    return found


def test_every_endless_loop_is_known() -> None:
    """A new one has to be supervised, or to say here why it need not be."""
    assert set(endless_loops()) == set(ENDLESS)


def test_what_is_said_to_be_supervised_is() -> None:
    """The loop's function is what `Tasks.forever` gets."""
    names = {re.split("[.:]", name)[-1] for name, why in ENDLESS.items() if why == "supervised"}

    assert names <= supervised()


async def test_a_loop_that_fails_begins_again() -> None:
    """Each failure is counted and told with its name; the same one is logged once."""
    log, failures, begun = RecordingLog(), Failures(), asyncio.Queue[int]()
    tasks = Tasks(log, failures, first_pause_s=0.001)
    times = 0

    async def loop() -> None:
        nonlocal times
        times += 1
        begun.put_nowait(times)
        if times < 4:
            raise PLANTED
        await asyncio.Event().wait()

    tasks.forever("watch it", loop)
    async with asyncio.timeout(LIMIT_S):
        while await begun.get() < 4:
            pass
    await tasks.stop()

    assert failures.counts["watcher"] == 3
    (failure,) = failures.recent()
    assert failure.times == 3
    assert "watch it" in failure.text
    assert "planted" in failure.text
    assert log.events() == ["background work failed"]


async def test_background_work_that_fails_is_told() -> None:
    """It does not begin again, since it had an end; it is counted all the same."""
    failures = Failures()
    tasks = Tasks(RecordingLog(), failures)
    ended = asyncio.Event()

    async def work() -> None:
        ended.set()
        raise PLANTED

    tasks.spawn("ask for 0123456789abcdef", work())
    await ended.wait()
    while not failures.recent():  # noqa: ASYNC110 (the task's own end tells nobody)
        await asyncio.sleep(0)

    assert failures.counts["background"] == 1
    assert "ask for 0123456789abcdef" in failures.recent()[0].text


async def test_a_loop_that_fails_as_it_is_ended_does_not_begin_again() -> None:
    """The error is told, and who ends it does not wait for ever; such an error takes the place of a cancellation."""
    failures, begun, times = Failures(), asyncio.Event(), 0
    tasks = Tasks(RecordingLog(), failures, first_pause_s=0.001)

    async def loop() -> None:
        nonlocal times
        times += 1
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise PLANTED from None

    tasks.forever("watch it", loop)
    await begun.wait()
    async with asyncio.timeout(LIMIT_S):
        await tasks.stop()

    assert times == 1
    (failure,) = failures.recent()
    assert "restarted it" not in failure.text
    assert "watch it" in failure.text


async def test_a_task_that_does_not_end_is_named() -> None:
    """`stop` waits for a moment, says which it is, and returns."""
    log, begun, let_go = RecordingLog(), asyncio.Event(), asyncio.Event()
    tasks = Tasks(log, Failures(), stop_s=0.01)

    async def stubborn() -> None:
        begun.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    tasks.spawn("ask a driver", stubborn())
    await begun.wait()
    async with asyncio.timeout(LIMIT_S):
        await tasks.stop()
    let_go.set()

    assert log.events() == ["background work does not end"]
    assert log.lines[0][1]["work"] == "ask a driver"


WATCHERS = [
    pytest.param(Resync, "_due", "resync", id="resync"),
    pytest.param(ExitEvents, "_stream", "follow events", id="events"),
    pytest.param(ExitEvents, "list_once", "list exited containers", id="lists"),
    pytest.param(Drift, "_forget", "watch cgroups", id="cgroups"),
    pytest.param(ColdStarts, "look", "end cold starts", id="cold-starts"),
    pytest.param(ColdStarts, "_ran_s", "end cold starts", id="cold-start"),
    pytest.param(Replies, "update", "follow lifted quotas", id="quotas"),
    pytest.param(PolicySwitch, "_resume", "go on as the node was left", id="go-on"),
    pytest.param(controller.Controller, "_watch", "watch", id="loading"),
    pytest.param(DeviceGuard, "begin", "scan for cards", id="cards"),
]


@pytest.mark.parametrize(("kind", "method", "name"), WATCHERS)
async def test_each_watcher_survives_one_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object, method: str, name: str
) -> None:
    """It does what failed once more, and both `status` and `--check` name it."""
    original, calls = getattr(kind, method), list[None]()

    def fails_once(*args: object, **keys: object) -> object:
        calls.append(None)
        if len(calls) == 1:
            raise PLANTED
        return original(*args, **keys)

    monkeypatch.setattr(kind, method, fails_once)
    async with World(tmp_path, NO_EVENTS, WATCHFUL) as world:
        cold = await world.run(starting_cold("10ms"))
        await world.run(owner("owner", 1))

        await world.poll(lambda: len(calls) > 1)

        now = situation(world.controller)
        assert any(name in notice.text and "planted" in notice.text for notice in now.notices)
        assert any(name in text for text in problems(now)["problems"])
        assert world.controller.context.failures.counts["watcher"] == 1
        await world.poll(lambda: world.controller.node.containers[cold].warm)


async def test_a_cgroup_that_cannot_be_read_once_ends_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ValueError in a read, and the next foreign cpuset is found all the same."""
    watchful = replace(ALONE, drift_period_s=0.05)
    async with World(tmp_path, NO_EVENTS, watchful) as world:
        shared = await world.run(sharer("shared"))
        await world.run(owner("owner", 1))
        await world.poll(lambda: shared in world.groups())
        await world.rested()
        failed = plant_failure(monkeypatch, ContainerGroup, "read", 1)

        await world.direct.update_container_resources(shared, api.LinuxContainerResources(cpuset_cpus="0-3"))

        await world.poll(lambda: bool(failed) and world.cpus(shared) == "0,2-3")


async def test_a_list_that_cannot_be_read_once_ends_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ValueError in a list of exited containers, and the next end is found by it all the same."""
    failed = plant_failure(monkeypatch, RuntimeClient, "list_exited", 1)
    patient = replace(ALONE, exit_list_s=0.05)
    async with World(tmp_path, NO_EVENTS, patient) as world:
        owned = await world.run(owner("owner", 1))
        await world.poll(lambda: bool(failed))
        await world.rested()

        world.runtime.exit_container(owned)

        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.EXITED)


async def test_an_update_whose_look_raises_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that meets garbage in a cgroup goes on as after a failed update: the container gets its CPUs."""
    quiet = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)
    async with World(tmp_path, NO_EVENTS, quiet) as world:
        shared = await world.run(sharer("shared"))
        await world.poll(lambda: shared in world.groups())
        await world.rested()
        failed = plant_failure(monkeypatch, ContainerGroup, "read", 3)

        await world.run(owner("owner", 1))

        await world.poll(lambda: world.cpus(shared) == "0,2-3")
        assert len(failed) == 3


async def test_nothing_begins_after_the_end() -> None:
    """A timer that fires late, or an event that comes late, starts no work that nobody would end."""
    begun = list[str]()

    async def work() -> None:
        begun.append("work")

    tasks = Tasks(RecordingLog(), Failures())
    on_demand = OnDemand(tasks, "work", work, after_s=0.0)
    on_demand.soon()
    await tasks.stop()
    tasks.spawn("late", work())
    await asyncio.sleep(0.01)

    assert begun == []


async def test_work_on_demand_begins_again_for_what_came_meanwhile() -> None:
    """It ends when there is nothing to do; who asks while it is at work is served after that."""
    begun, go_on = list[int](), asyncio.Event()

    async def work() -> None:
        begun.append(len(begun))
        await go_on.wait()

    tasks = Tasks(RecordingLog(), Failures())
    on_demand = OnDemand(tasks, "work", work, after_s=0.001)
    on_demand.now()
    await asyncio.sleep(0)
    on_demand.soon()
    assert begun == [0]
    go_on.set()
    await soon(lambda: len(begun) == 2)
    await on_demand.ended()
    assert begun == [0, 1]
