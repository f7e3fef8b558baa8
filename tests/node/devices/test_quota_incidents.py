"""What the watcher reports of containers over their quota: what is stored, done, refused and shown."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.api.live import LiveNode, commands
from criproxy.cli.queries.devices import render as render_devices
from criproxy.cli.queries.explain import render as render_explain
from criproxy.cri import rewrite
from criproxy.devices.usage.values import Grant
from criproxy.errors import CriproxyError, UsageError
from criproxy.model.incident import Use
from criproxy.model.record import Kind
from criproxy.model.text.plain import from_plain
from criproxy.node.bypass import BypassMode
from criproxy.placement.events import CardReported
from tests.node.devices.quotas import (
    SAID,
    Stopped,
    direct,
    incidents,
    node_with_vgpus,
    pod,
    report,
    restart,
    status,
    why,
    within,
)
from tests.node.devices.test_joined import allocated
from tests.node.world import World, metric, said

OVER = (
    "default/greedy/main has been over its quota since 2023-11-14T22:13:20.500Z: "
    "9000 MiB used, 8192 MiB allowed on GPU-a"
)


async def grants(world: World) -> Mapping[str, Any]:
    """What the watcher is told."""
    answer: Mapping[str, Any] = await DevicePluginCommands(world.controller).commands()["device-grants"]({})
    return answer


async def history(world: World, title: str) -> list[str]:
    """What the history of a container says of quotas."""
    records = await world.controller.context.state.find_history(title)
    return [text for record in records if record.kind is Kind.QUOTA for text in record.sentences]


async def test_what_containers_have(world: World, key: str) -> None:
    """The watcher learns of each container its cards and, for a vGPU, its quota; and which incidents go on."""
    whole = await world.run(allocated("whole", "nvidia.com/gpu", "GPU-b"))
    system = await world.run(pod("system", 1, namespace="kube-system"))
    ended = await world.run(pod("ended", 2))
    await world.kubelet.stop(ended)
    await report(world, key, "observe")

    answer = await grants(world)

    found = {each.container_id: each for each in (from_plain(Grant, plain) for plain in answer["containers"])}
    assert found.keys() == {key, whole, system}
    greedy = found[key]
    assert (greedy.title, greedy.kind, greedy.resource) == ("default/greedy/main", "nvidia", "criproxy.io/gpu-8g")
    assert (greedy.ids, greedy.cards, greedy.exempt) == (("GPU-a/gpu-8g/0",), ("GPU-a",), False)
    assert greedy.quota
    assert (greedy.quota.memory_mib, greedy.quota.cores_percent) == (8192, 25)
    assert greedy.pod_uid == world.controller.node.pods[world.controller.node.containers[key].pod].uid
    assert (found[whole].cards, found[whole].quota) == (("GPU-b",), None)
    assert found[system].exempt
    assert [(each["container_id"], each["card"], each["quantity"]) for each in answer["incidents"]] == [
        (key, "GPU-a", "memory")
    ]


async def test_observed(world: World, key: str, stopped: Stopped) -> None:
    """With observe it is known everywhere, and nothing is done; within its quota it is no problem any more."""
    answer = await report(world, key, "observe")

    assert answer == {"stored": True, "act": False, "action": "observe"}
    assert said(world, "quota") == [f"{OVER} (quota: observe)"]
    assert not world.controller.incidents.edits
    assert await status(world, key) == await direct(world, key)
    assert metric(world.controller, "device_over_quota") == {("nvidia", "memory"): 1}
    assert metric(world.controller, "device_unhealthy_cards") == {}

    assert await within(world, key) == {"stored": True, "act": False, "ended": 1}
    await world.until(lambda: not incidents(world))
    assert await within(world, key) == {"stored": True, "act": False, "ended": 0}
    assert not said(world, "quota")
    assert not stopped.calls
    assert world.counters.quota_incidents == {("nvidia", "memory", "observe"): 1}
    assert await history(world, "default/greedy/main") == [
        "nvidia: it is over its quota: 9000 MiB used, 8192 MiB allowed on GPU-a (quota: observe)",
        "nvidia: it is within its quota of memory again",
    ]
    records = await world.controller.context.state.find_history("default/greedy/main")
    assert [each.facts["state"] for each in records if each.kind is Kind.QUOTA] == ["begun", "ended"]


async def test_shown(world: World) -> None:
    """`devices` and `explain` show the quota, what is used, and what is done."""
    await report(world, await world.run(pod("greedy")), "annotate")
    answers = commands(LiveNode(world.controller))
    screen = Console(file=io.StringIO(), width=300)

    screen.print(render_devices(json.loads(await answers["devices"]({})), 300))
    screen.print(render_explain(json.loads(await answers["explain"]({"container": "default/greedy/main"}))))

    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    line = "over its quota since 2023-11-14T22:13:20Z: 9000 MiB used, 8192 MiB allowed on GPU-a (quota: annotate)"
    assert f"default/greedy/main has been {line}" in text
    assert f"It has been {line}" in text


async def test_annotated(world: World, stopped: Stopped) -> None:
    """With annotate the status has an annotation until the container is within its quota; the reason stays empty."""
    key, sibling = await world.run(pod("greedy")), await world.run(pod("sibling", 1))
    before = await status(world, key)
    await report(world, key, "annotate")

    after = await status(world, key)
    assert after.annotations["devices.criproxy.io/over-quota"] == SAID[1]
    assert (after.reason, after.message) == (before.reason, before.message)
    assert await status(world, sibling) == await direct(world, sibling)
    await restart(world)
    assert (await status(world, key)).annotations["devices.criproxy.io/over-quota"] == SAID[1]
    await within(world, key)
    assert await status(world, key) == before

    await report(world, key, "annotate")
    world.runtime.exit_container(key, 137)
    await world.until(lambda: not incidents(world))
    assert await status(world, key) == await direct(world, key)
    assert not stopped.calls


async def test_a_process_is_killed(world: World, key: str, stopped: Stopped) -> None:
    """With kill-process the watcher is told to act exactly once; a container that ends of it says why."""
    assert (await report(world, key, "kill-process", pid=7, start_ticks=70))["act"] is True
    assert (await report(world, key, "kill-process", pid=8, start_ticks=80))["act"] is False
    await restart(world)
    (told,) = (await grants(world))["incidents"]
    assert (told["action"], told["pid"], told["start_ticks"]) == ("kill-process", 7, 70)
    assert (await report(world, key, "kill-process", since_s=1700000009.0))["act"] is False
    assert await status(world, key) == await direct(world, key)
    assert said(world, "quota") == [f"{OVER} (quota: kill-process; the watcher was told to kill a process)"]
    world.runtime.exit_container(key, 137)
    assert why(await status(world, key)) == SAID
    await within(world, key)
    await restart(world)

    assert why(await status(world, key)) == SAID
    assert not stopped.calls


async def test_an_answer_that_was_lost(world: World, key: str) -> None:
    """A watcher that says that it got no answer has not acted: it is told to."""
    await report(world, key, "kill-process")

    told_s = incidents(world)[0].excess.acted_s  # type: ignore[union-attr]
    assert (await report(world, key, "kill-process", unanswered=True))["act"] is True
    assert incidents(world)[0].excess.acted_s > told_s  # type: ignore[union-attr]
    assert (await report(world, key, "kill-process"))["act"] is False
    assert len(incidents(world)) == 1
    assert world.counters.quota_incidents == {("nvidia", "memory", "kill-process"): 1}


async def test_a_container_that_runs_on(world: World, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends long after a process of it was killed has ended for another reason, and is no incident."""
    await report(world, key, "kill-process")
    monkeypatch.setattr(rewrite, "KILL_S", -1.0)

    world.runtime.exit_container(key, 1)

    assert await status(world, key) == await direct(world, key)


async def test_who_was_stopped_is_not_told_to_be_within_its_quota(world: World, key: str) -> None:
    """The watcher may see that it uses nothing before criproxy hears that it has ended."""
    await report(world, key, "observe")
    (incident,) = incidents(world)
    stopped = incident.with_uses(dict.fromkeys(incident.containers, Use.STOPPED))
    await world.controller.context.state.apply(CardReported(incident.key, stopped))

    assert (await within(world, key))["ended"] == 1

    assert "over its quota" in (await history(world, "default/greedy/main"))[-1]


async def test_who_is_being_stopped_is_not_told_to_be_within_its_quota(world: World, stopped: Stopped) -> None:
    """It uses nothing any more, which the watcher sees before the runtime answers."""
    key, stopped.holds = await world.run(pod("greedy")), True
    await report(world, key)
    await stopped.at_it.wait()

    assert (await within(world, key))["ended"] == 1
    stopped.go_on.set()
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)

    assert not [text for text in await history(world, "default/greedy/main") if "within its quota" in text]


async def test_each_incident_is_acted_on(world: World, key: str) -> None:
    """Within the quota and over it again is another incident; memory and cores have one each."""
    cores = {"quantity": "cores", "used": 80.0, "allowed": 25}

    assert (await report(world, key, "kill-process"))["act"]
    assert (await report(world, key, "kill-process", **cores))["act"]
    await within(world, key)
    assert (await report(world, key, "kill-process", since_s=1700000060.0))["act"]
    assert not (await report(world, key, "kill-process", **cores))["act"]

    world.runtime.exit_container(key, 137)
    assert why(await status(world, key))[0] in ("GPUMemoryQuotaExceeded", "GPUCoresQuotaExceeded")


async def test_cores(world: World, key: str, stopped: Stopped) -> None:
    """Whoever is stopped for computing units has that as the reason; the grace period is that of the report."""
    await report(world, key, quantity="cores", used=79.6, allowed=25, stop_timeout_s=2.5)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "cores"] == 1)

    assert stopped.calls == [(key, 3)]
    said = ("GPUCoresQuotaExceeded", "80 % of the cores used, 25 % of the cores allowed on GPU-a")
    assert why(await status(world, key)) == said


async def test_a_report_that_asks_for_more_or_less(world: World, key: str, stopped: Stopped) -> None:
    """It is the same incident, of which more is done; one that asks for less changes nothing."""
    await report(world, key, "annotate")
    (before,) = incidents(world)

    assert (await report(world, key, "observe"))["action"] == "annotate"
    assert (await report(world, key, "kill-process", pid=7, start_ticks=70))["act"] is True
    assert (await report(world, key, "annotate"))["action"] == "kill-process"
    answer = await report(world, key, "stop", since_s=1700000060.0, used=9500.0)
    assert answer == {"stored": True, "act": False, "action": "stop"}
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)
    assert stopped.ids == [key]
    assert [each.key for each in incidents(world)] == [before.key]
    assert why(await status(world, key))[1] == "9500 MiB used, 8192 MiB allowed on GPU-a"


async def test_without_watch_a_container_is_only_observed(tmp_path: Path, stopped: Stopped) -> None:
    """What else the profile names enforces its quota; a restart of criproxy does not forget it."""
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("memory")
    async with node_with_vgpus(tmp_path) as world:
        await world.poll(lambda: world.controller.ready)
        key = await world.run(pod("limited", enforce="nvidia-memory-limit"))
        await restart(world)

        (told,) = (await grants(world))["containers"]
        assert from_plain(Grant, told).is_only_observed
        answer = await report(world, key, "stop")
        assert answer == {"stored": True, "act": False, "action": "observe"}
        await world.rested()
        assert not stopped.calls


async def test_who_does_not_run(world: World, stopped: Stopped) -> None:
    """A container that has ended, was not started, or is unknown, is no incident: there is nothing to repeat."""
    ended = await world.run(pod("ended"))
    await world.kubelet.stop(ended)
    _, created = await world.created(pod("created", 1))
    stopped.calls.clear()

    for key in (ended, created, "f" * 64):
        answer = await report(world, key)
        assert answer == {"stored": False, "act": False, "why": "the container is not running"}
    assert not incidents(world)
    assert not stopped.calls


NONE: list[tuple[Mapping[str, Any], str]] = [
    ({"container_id": ""}, "must name a container and a card"),
    ({"card": "GPU-b"}, "has no vGPU of nvidia card GPU-b"),
    ({"allowed": 4096}, "has a quota of 8192 of memory, not 4096"),
    ({"used": 8192.0}, "must be more than the 8192 that are allowed"),
    ({"used": float("nan")}, "must be more than the 8192"),
    ({"used": "much"}, "used must be of the kind float"),
    ({"quantity": "power"}, "must be one of memory, cores"),
    ({"action": ["stop"]}, "must be one of observe, annotate, stop, kill-process"),
    ({"since_s": 0.0}, "must be seconds since the epoch"),
    ({"pid": -1}, "must be those of a process"),
    ({"stop_timeout_s": -1.0}, "must be at most 3600 seconds"),
]


async def test_reports_that_are_none(world: World, key: str, stopped: Stopped) -> None:
    """They are refused with what is wrong, and nobody is touched."""
    for arguments, sentence in NONE:
        with pytest.raises(UsageError, match=sentence):
            await report(world, key, **arguments)
        assert not incidents(world)
    assert not stopped.calls


async def test_reports_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many containers can be over their quota at one time."""
    monkeypatch.setattr("criproxy.node.devices.incidents.MOST_OPEN", 1)
    first, second = await world.run(pod("greedy")), await world.run(pod("second", 1))
    await report(world, first, "observe")

    with pytest.raises(CriproxyError, match="1 containers are already over their quota"):
        await report(world, second, "observe")
    await DevicePluginCommands(world.controller).incident(
        {"device_class": "nvidia", "card": "GPU-b", "since_s": 1700000000.0}
    )
    assert (await report(world, first, "observe"))["stored"]


async def test_bypass(world: World, key: str, stopped: Stopped) -> None:
    """While an operator has every call pass, nobody could see the reason: nothing is done until that is over."""
    world.controller.bypass(BypassMode.ORDERED)
    with pytest.raises(CriproxyError, match="bypass is on"):
        await report(world, key)
    assert not stopped.calls
    world.controller.bypass(BypassMode.OFF)
    await world.poll(lambda: world.controller.ready)

    await report(world, key)
    await world.poll(lambda: world.counters.quota_stops["nvidia", "memory"] == 1)
    assert stopped.ids == [key]


async def test_a_card_that_fails_is_another_incident(world: World, key: str) -> None:
    """A healthy card does not end the incident of a quota, and the end of that does not heal a card."""
    await report(world, key, "observe")
    commands = DevicePluginCommands(world.controller)
    lost = {"device_class": "nvidia", "card": "GPU-a", "since_s": 1700000000.5, "reason": "XID 79"}
    await commands.incident(lost)
    assert len(incidents(world)) == 2

    healthy = {"device_class": "nvidia", "id": "GPU-a", "replicas": {"criproxy.io/gpu-8g": 0}}
    await commands.inventory(
        {"resources": [{"name": "criproxy.io/gpu-8g", "device_class": "nvidia"}], "cards": [healthy]}
    )
    assert said(world, "quota") == [f"{OVER} (quota: observe)"]
    await commands.incident({**lost, "since_s": 1700000001.5})
    await within(world, key)

    open_ones = [each for each in incidents(world) if not each.ended]
    assert [replace(each, containers={}).reason for each in open_ones] == ["XID 79"]
