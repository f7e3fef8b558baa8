"""What the device plugin asks the daemon, over its control socket."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy import __version__
from criproxy.api.agent import AgentPolls
from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.api.live import LiveNode
from criproxy.cli.queries.devices import vgpus
from criproxy.cli.queries.explain import render
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.plugin.published import NOT_YET
from criproxy.devices.usage.reports import read_usage
from criproxy.errors import CriproxyError, UsageError
from criproxy.node.bypass import BypassMode
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from tests.asking import answering, printed
from tests.node.devices.test_create_checks_vgpu import RESOURCE, RULES, pod_with
from tests.node.devices.test_guard import host
from tests.node.devices.test_joined import allocated
from tests.node.world import FAST, World, metric, owner, sharer


def asked(world: World, directory: Path) -> AbstractAsyncContextManager[Any]:
    """A function that asks the controller of *world* over a control socket."""
    return answering(world, directory, more=DevicePluginCommands(world.controller).commands())


async def test_free_cpus(tmp_path: Path) -> None:
    """The milli-CPU that no container asks for, by NUMA node; it follows each change."""
    async with World(tmp_path) as world, asked(world, tmp_path) as say:
        await world.poll(lambda: world.controller.ready)
        assert await say("free-cpus") == {"free_milli": {"0": 3000}}

        await world.run(owner("trader"))
        await world.run(sharer("web"))

        assert await say("free-cpus") == {"free_milli": {"0": 2000 - 100}}


async def test_free_cpus_are_unknown(tmp_path: Path) -> None:
    """With the policy none, criproxy does not know what containers ask for, and says so."""
    async with World(tmp_path, policy=NonePolicy(Options())) as world, asked(world, tmp_path) as say:
        assert await say("free-cpus") == {"free_milli": None}


CARD = {"device_class": "nvidia", "id": "GPU-a", "replicas": {"nvidia.com/gpu": 5}}
REPORT: dict[str, Any] = {
    "version": "1.0",
    "interval_s": 10.0,
    "resources": [{"name": "nvidia.com/gpu", "device_class": "nvidia", "ids": 10, "healthy": 5}],
    "cards": [{**CARD, "healthy": False, "reason": "XID 79", "since_s": 1700000000.0}],
}


OF_NVIDIA = DeviceRules(classes=(NVIDIA,))


@asynccontextmanager
async def node(directory: Path, rules: DeviceRules = OF_NVIDIA) -> AsyncIterator[tuple[World, Any]]:
    """A node with two GPUs and rules about them, and a function that asks its daemon."""
    host(directory)
    async with World(directory, settings=replace(FAST, devices=rules)) as world, asked(world, directory) as say:
        await world.poll(lambda: world.controller.ready)
        yield world, say


async def problems(say: Any) -> list[str]:  # noqa: ANN401
    """What `status --check` prints."""
    return list((await say("status", check=True))["problems"])


async def test_inventory(tmp_path: Path) -> None:
    """What the device plugin reports is shown by `devices` and in metrics, with the ids that containers have."""
    async with node(tmp_path) as (world, say):
        before = await say("devices")
        assert await say("device-inventory", **REPORT) == {"stale_after_s": 30.0, "version": __version__}
        await world.run(allocated("one", "nvidia.com/gpu", "GPU-a::1", "GPU-a::3"))

        values = await say("devices")
        names = ("device_ids", "device_ids_given", "device_plugin_up")
        ids, given, is_up = (metric(world.controller, name) for name in names)

    assert before["device_plugin"] is None
    assert (values["device_plugin"]["state"], values["device_plugin"]["version"]) == ("running", "1.0")
    (nvidia,) = values["classes"]
    assert nvidia["advertised"] == [
        {"name": "nvidia.com/gpu", "ids": 10, "healthy": 5, "given": 2, "registered": True, "problem": ""}
    ]
    first, second = nvidia["cards"]
    assert (first["healthy"], first["reason"], first["replicas"]) == (False, "XID 79", {"nvidia.com/gpu": 5})
    assert second["healthy"] is None
    assert first["containers"][0]["allocated"][0]["ids"] == ["GPU-a::1", "GPU-a::3"]
    key = ("nvidia", "nvidia.com/gpu")
    assert ids == {(*key, "healthy"): 5, (*key, "unhealthy"): 5}
    assert (given, is_up) == ({key: 2}, True)


AT = "2001-09-09T01:46:40.000Z"
FAILS, NO_ANSWER = {"nvml": "NVML: Unknown Error", "nvml_since_s": 1e9}, {"nvml": NOT_YET, "nvml_since_s": 1e9}
NO_CARD = "no card of NVIDIA is offered"
KEPT = "the device plugin offers NVIDIA's cards as NVML described them before"
NVIDIAS = {"name": "nvidia.com/gpu", "device_class": "nvidia", "ids": 1}
NPU = {"name": "a.b/npu", "device_class": "ali", "ids": 1, "registered": False}
SICK = {**CARD, "healthy": False, "reason": "XID 79", "since_s": 1700000000.0}
WAITING = [{**CARD, "id": f"GPU-{name}", "healthy": False, "reason": "not judged yet"} for name in "cd"]
FIRST_QUERY = f"NVML has not answered since the device plugin first queried it at {AT}: until it does, "
PENDING = {"nvml_pending": True}
LEFT = "the device plugin cannot remove what containers have left in directories of vGPUs"
REPORTED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"unremoved": "/vgpu/.x/y: Permission denied"},
        [f"{LEFT}; remove it as root: /vgpu/.x/y: Permission denied"],
    ),
    (FAILS, [f"NVML has not worked since {AT}: NVML: Unknown Error; {KEPT}, and otherwise none"]),
    (NO_ANSWER, [f"NVML has not answered since {AT}: {KEPT}"]),
    ({**NO_ANSWER, **PENDING}, [f"{FIRST_QUERY}{NO_CARD}"]),
    (
        {**NO_ANSWER, **PENDING, "resources": [{**NVIDIAS, "healthy": 1}]},
        [f"{FIRST_QUERY}the device plugin offers NVIDIA's cards according to the files of the driver, as whole cards"],
    ),
    (
        {**FAILS, **PENDING, "resources": [{**NVIDIAS, "healthy": 0}]},
        [f"NVML has not worked since {AT}: NVML: Unknown Error; until it does, {NO_CARD}"],
    ),
    (
        {"resources": [{**NPU, "problem": "not now"}], "cards": [SICK]},
        [
            "the kubelet has not accepted resources of the device plugin: a.b/npu (not now)",
            "no card of the class nvidia is healthy, so pods get none: XID 79",
        ],
    ),
    ({"resources": [{**NPU, "problem": "starting", "starting": True}]}, []),
    ({"cards": [SICK, {**CARD, "id": "GPU-b"}]}, []),
    ({"cards": WAITING}, []),  # for a health command, or for a pod with a former id to end
    ({"cards": [*WAITING, SICK]}, ["no card of the class nvidia is healthy, so pods get none: not judged yet, XID 79"]),
]


async def test_what_is_wrong_by_a_report(tmp_path: Path) -> None:
    """`status --check` says it until a report says so no more."""
    async with node(tmp_path) as (_, say):
        for report, expected in REPORTED:
            await say("device-inventory", **{**REPORT, "cards": [], "resources": [], **report})
            assert await problems(say) == expected
            await say("device-inventory", **{**REPORT, "cards": [{**CARD, "healthy": True}]})
            assert await problems(say) == []


FAILED = {**CARD, "healthy": False, "reason": "XID 79", "since_s": 1700000000.0, "action": "stop"}
UNSERVED = [{**REPORT["resources"][0], "registered": False, "problem": "another process is listening on it"}]


async def cards_with_incidents(say: Any) -> list[str]:  # noqa: ANN401
    """The open incidents, as `devices` has them."""
    return [each["card"] for each in (await say("devices"))["incidents"]]


async def test_inventory_opens_incidents(tmp_path: Path) -> None:
    """A daemon that has lost its state learns of each card that has failed, and of no other unhealthy card.

    A card that a report calls healthy is so, whatever was reported before: a restarted plugin has no memory.
    """
    waiting = {**CARD, "id": "GPU-b", "healthy": False, "reason": "not judged yet", "since_s": 1700000000.0}
    odd = {**FAILED, "id": "GPU-c", "action": "of a later version"}
    async with node(tmp_path) as (world, say):
        await say("device-inventory", **{**REPORT, "cards": [FAILED, waiting, odd]})
        incident, unknown = (await say("devices"))["incidents"]
        with pytest.raises(RuntimeCallError, match=r"its card GPU-a \(nvidia\) has been unhealthy"):
            await world.run(allocated("one", "nvidia.com/gpu", "GPU-a::1"))
        await say("device-inventory", **{**REPORT, "cards": [FAILED]})
        assert world.counters.device_incidents["nvidia", "stop"] == 1
        await say("device-inventory", **{**REPORT, "cards": [SICK, odd]})
        assert await cards_with_incidents(say) == ["GPU-a", "GPU-c"]

        await say("device-inventory", **{**REPORT, "cards": [CARD, {**CARD, "id": "GPU-c"}]})
        assert await cards_with_incidents(say) == []

    assert (incident["card"], incident["reason"], incident["action"]) == ("GPU-a", "XID 79", "stop")
    assert (unknown["card"], unknown["action"]) == ("GPU-c", "none")


async def test_a_second_device_plugin_has_no_say_on_health(tmp_path: Path) -> None:
    """Of two, the one counts whose resources the kubelet has accepted; the other one ends nothing, also by its end."""
    first, second = {**REPORT, "instance": "first"}, {**REPORT, "instance": "second", "resources": UNSERVED}
    lost = {key: FAILED[key] for key in ("device_class", "since_s", "reason", "action")}
    async with node(tmp_path) as (_, say):
        await say("device-incident", card="GPU-a", **lost)
        await say("device-inventory", **{**second, "cards": [CARD]})  # alone: better than nothing
        assert (await say("devices"))["device_plugin"]["state"] == "running"
        assert await cards_with_incidents(say) == ["GPU-a"]
        await say("device-inventory", **{**first, "cards": [FAILED]})

        await say("device-plugin", running=True, instance="second")
        await say("device-inventory", **{**second, "cards": [CARD]})
        assert await say("device-incident", instance="second", card="GPU-b", **lost) == {"stored": False}
        await say("device-incident", instance="second", device_class="nvidia", card="GPU-a", healthy=True)
        await say("device-plugin", running=False, instance="second")
        assert await cards_with_incidents(say) == ["GPU-a"]
        assert (await say("devices"))["device_plugin"]["state"] == "running"

        await say("device-incident", instance="first", card="GPU-b", **lost)
        assert await cards_with_incidents(say) == ["GPU-a", "GPU-b"]
        await say("device-plugin", running=False, instance="first")
        assert (await say("devices"))["device_plugin"] is None


async def test_a_device_plugin_that_takes_over(tmp_path: Path) -> None:
    """It does as soon as the kubelet has accepted it, or when the one before it is gone; a plain one always did."""
    async with node(tmp_path) as (world, say):
        clock = Clock(world)

        async def reported(instance: str, resources: object = REPORT["resources"]) -> str:
            await say("device-inventory", **{**REPORT, "instance": instance, "resources": resources})
            assert world.controller.device_plugin.report is not None
            return world.controller.device_plugin.report.instance

        assert [await reported("killed"), await reported("next", UNSERVED)] == ["killed", "killed"]
        assert [await reported("next"), await reported("killed", UNSERVED)] == ["next", "next"]
        clock.now_s = 31.0
        assert await reported("last", UNSERVED) == "last"
        assert await reported("") == ""


async def test_reports_that_are_none(tmp_path: Path) -> None:
    """They are refused with what is wrong, and the last one stays."""
    many = [{"name": f"v.com/{n}", "device_class": "v"} for n in range(257)]
    reports: list[tuple[dict[str, Any], str]] = [
        ({"resources": "all"}, "resources must be a list"),
        ({"cards": [{"id": "GPU-a"}]}, "device_class is missing"),
        ({"interval_s": 0.0}, "interval_s: must be more than 0"),
        ({"cards": [CARD] * 1025}, "cards: 1025 are more than 1024"),
        ({"resources": many}, "257 are more than 256"),
    ]
    async with node(tmp_path) as (world, say):
        for report, said in reports:
            with pytest.raises(UsageError, match=said):
                await say("device-inventory", **report)
        assert world.controller.device_plugin.report is None


async def test_chain_of_evidence(tmp_path: Path) -> None:
    """`explain` leads from what was allocated to the nodes of the create."""
    async with node(tmp_path) as (world, say):
        await world.run(allocated("one", "nvidia.com/gpu.shared", "GPU-b::1"))
        values = await say("explain", container="default/one/main")

    shown = "\n".join(printed(render(values), 300))
    assert "nvidia: nvidia.com/gpu.shared GPU-b::1 (annotation) → card GPU-b at 0000:1b:00.0 → /dev/nvidia1" in shown
    assert "the device plugin has allocated nvidia.com/gpu.shared to it: GPU-b::1" in shown


class Clock:
    """The daemon's clock, as far as the device plugin is concerned."""

    def __init__(self, world: World) -> None:
        self.now_s = 0.0
        plugin, usage = world.controller.device_plugin, world.controller.card_usage
        plugin.clock = usage.clock = lambda: self.now_s
        plugin.note_command()
        usage.__post_init__()


async def test_a_device_plugin_that_stops(tmp_path: Path) -> None:
    """`status --check` says so after three intervals, not while it may be restarting; no metric has its ids then."""
    async with node(tmp_path) as (world, say):
        clock = Clock(world)
        clock.now_s = 1000.0
        never = await say("status", check=True)
        await say("device-inventory", **{**REPORT, "cards": []})
        clock.now_s = 1030.0
        restarting = await say("status", check=True)
        clock.now_s = 1031.0
        (stopped,) = await problems(say)
        assert (await say("devices"))["device_plugin"]["state"] == "not running"
        assert metric(world.controller, "device_plugin_up") is False
        assert metric(world.controller, "device_ids") == {}

    assert (never["problems"], restarting["problems"]) == ([], [])
    assert stopped.startswith("the device plugin has not reported since 20")
    assert stopped.endswith("criproxy does not check any quota; is criproxy device-plugin running?")


async def test_a_device_plugin_that_was_removed(tmp_path: Path) -> None:
    """One that was told to end is not missed, unless containers have vGPUs; one that begins should report again."""
    async with node(tmp_path, RULES) as (world, say):
        clock = Clock(world)

        async def after(seconds: float) -> list[str]:
            clock.now_s += seconds
            return [text[:57] for text in await problems(say)]

        missed = ["the device plugin has not reported since 20"]
        await say("device-inventory", **{**REPORT, "cards": []})
        await say("device-plugin", running=False)
        assert await after(0.0) == await after(1000.0) == []
        assert (await say("devices"))["device_plugin"] is None
        assert metric(world.controller, "device_plugin_up") is None

        await say("device-plugin", running=True)
        assert await after(30.0) == []
        assert metric(world.controller, "device_plugin_up") is False
        assert [text[:43] for text in await after(1.0)] == missed
        await say("device-plugin", running=False)
        assert await after(31.0) == []
        await world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        assert [text[:43] for text in await after(0.0)] == missed
        with pytest.raises(CriproxyError, match="running: must be true or false, not 'no'"):
            await say("device-plugin", running="no")


async def test_a_device_plugin_that_refuses_its_files_at_its_start(tmp_path: Path) -> None:
    """`status --check` says why there is none, also between its attempts, until it reports or is told to end.

    One that has begun again, with other files, and does not report, is missed in the end.
    """
    async with node(tmp_path) as (world, say):
        clock = Clock(world)
        await say("device-plugin", running=True, instance="a", refused="/n.yaml: unknown version: v2")
        await say("device-plugin", running=True, instance="b")
        (early,) = await problems(say)
        clock.now_s = 599.0
        late = await say("status", check=True)
        clock.now_s = 601.0
        hangs = await say("status", check=True)
        await say("device-inventory", **{**REPORT, "cards": []})
        reported = await say("status", check=True)
        await say("device-plugin", running=True, refused="again")
        await say("device-plugin", running=False, instance="c")
        ended = await say("status", check=True)

    assert early.startswith("the device plugin does not start, because it cannot use its configuration files")
    assert early.endswith(": /n.yaml: unknown version: v2")
    assert [each["kind"] for each in late["found"]] == ["device-plugin-config"]
    assert [each["kind"] for each in hangs["found"]] == ["device-plugin-silent"]
    assert (reported["problems"], ended["problems"]) == ([], [])


@pytest.mark.parametrize(
    ("reported", "offered", "found"),
    [
        pytest.param(False, (), [], id="never-reported"),
        pytest.param(True, (), [], id="reported-before"),
        pytest.param(False, ("nvidia",), ["device-plugin-silent"], id="cards-to-offer"),
    ],
)
async def test_a_device_plugin_that_is_given_up_after_it_has_refused_its_files(
    tmp_path: Path, reported: bool, offered: tuple[str, ...], found: list[str]
) -> None:
    """Nothing starts it, and so it does not refuse them again: after 10 minutes it is like one that is gone."""
    rules = DeviceRules(classes=(NVIDIA,), offered=offered)
    async with node(tmp_path, rules) as (world, say):
        clock = Clock(world)
        if reported:
            await say("device-inventory", **{**REPORT, "cards": []}, instance="0")
        for number in range(3):
            clock.now_s = 300.0 * number
            await say("device-plugin", running=True, instance=f"{number}")
            await say("device-plugin", running=True, instance=f"{number}", refused="/n.yaml: unknown version: v2")
        await say("device-plugin", running=True, instance="2")  # this one was slow
        clock.now_s = 1200.0
        before = (await say("status", check=True))["found"]
        assert metric(world.controller, "device_plugin_up") is False
        clock.now_s = 1201.0

        assert [each["kind"] for each in before] == ["device-plugin-config"]
        assert [each["kind"] for each in (await say("status", check=True))["found"]] == found
        assert metric(world.controller, "device_plugin_up") is None


@pytest.mark.parametrize(
    ("offered", "ends", "missed"),
    [
        pytest.param(("nvidia",), False, True, id="cards-to-offer"),
        pytest.param(("nvidia",), True, False, id="told-to-end"),
        pytest.param(("ascend",), False, False, id="no-such-cards-here"),
        pytest.param((), False, False, id="no-section"),
    ],
)
async def test_a_device_plugin_that_is_configured_and_never_reports(
    tmp_path: Path, offered: tuple[str, ...], ends: bool, missed: bool
) -> None:
    """It is missed 5 minutes after the start of the daemon, where the machine has cards that it should offer."""
    rules = DeviceRules(classes=(NVIDIA,), offered=offered)
    async with node(tmp_path, rules) as (world, say):
        clock = Clock(world)
        if ends:
            await say("device-plugin", running=False)
        clock.now_s = 300.0
        assert await problems(say) == []
        clock.now_s = 301.0
        found = (await say("status", check=True))["found"]

    assert [each["kind"] for each in found] == ["device-plugin-silent"] * missed


async def test_a_device_plugin_that_never_reports_while_containers_have_vgpus(tmp_path: Path) -> None:
    """After a start of the daemon it has as long as between two reports."""
    async with node(tmp_path, RULES) as (world, say):
        clock = Clock(world)
        await world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        clock.now_s = 30.0
        early = await say("status", check=True)
        clock.now_s = 31.0
        (late,) = await problems(say)

    assert early["problems"] == []
    assert late.startswith("the device plugin has not reported since the daemon started")


async def test_quotas_that_nobody_checks(tmp_path: Path) -> None:
    """Of each class the reason is named, once it has lasted for longer than a source takes to begin; so is a bypass."""
    rules = replace(RULES, watched=("nvidia", "npu", "ali"), without_usage=("ali",))
    missing = {"at_s": 1.0, "period_s": 1.0, "classes": [{"kind": "nvidia", "problem": "/run/x cannot be read"}]}
    async with node(tmp_path, rules) as (world, say):
        clock = Clock(world)
        found = []
        for clock.now_s, usage in ((100.0, missing), (110.0, missing), (111.0, missing), (120.0, None), (145.0, None)):
            await say("device-inventory", **{**REPORT, "cards": []})
            if usage:
                world.controller.card_usage.publish(read_usage(usage))
            found.append(await problems(say))
        world.controller.bypass(BypassMode.ORDERED)
        bypass, *_ = await problems(say)

    assert bypass.startswith("while bypass is on, criproxy takes no action on containers over their quota")
    said = "criproxy does not check any quota of the class {}: {}".format
    no_entry = said("ali", "devices.plugin.usage has no entry for this class")
    silent = "the watcher does not report it"
    assert found == [
        [no_entry],
        [no_entry],
        [said("nvidia", "/run/x cannot be read"), no_entry],
        [no_entry],
        [said("nvidia", silent), said("npu", silent), no_entry],
    ]


async def test_cards_that_cannot_be_read(tmp_path: Path) -> None:
    """Those are named whose containers have a quota, once that has lasted; `criproxy usage` has the others."""
    rules = replace(RULES, watched=("nvidia",))
    nvidia = {"kind": "nvidia", "unread": {"GPU-a": "GPU is lost", "GPU-b": "Not Supported"}}
    lost = {"at_s": 1.0, "period_s": 1.0, "classes": [nvidia]}
    all_lost = {**lost, "classes": [{**nvidia, "problem": "NVML hangs"}]}
    read = {**lost, "classes": [{"kind": "nvidia"}]}
    async with node(tmp_path, rules) as (world, say):
        clock = Clock(world)
        await world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        found = []
        for clock.now_s, usage in ((90.0, lost), (100.0, lost), (101.0, lost), (102.0, all_lost), (103.0, read)):
            await say("device-inventory", **{**REPORT, "cards": []})
            world.controller.card_usage.publish(read_usage(usage))
            found.append(await problems(say))
        notice = "criproxy does not check any quota on cards of the class nvidia whose use is unknown"
        assert found == [[], [], [f"{notice}: GPU-a (GPU is lost)"], [], []]

        await world.run(pod_with("GPU-b/gpu-8g/0", "two"))
        for clock.now_s in (120.0, 131.0):
            await say("device-inventory", **{**REPORT, "cards": []})
            world.controller.card_usage.publish(read_usage(lost))
        (both,) = await problems(say)
        assert both == f"{notice}: GPU-a (GPU is lost), GPU-b (Not Supported)"


async def test_what_holds_a_container_to_its_quota(tmp_path: Path) -> None:
    """`explain` shows the quota with the methods in effect."""
    async with node(tmp_path, RULES) as (world, say):
        await world.run(pod_with("GPU-a/gpu-8g/0", "one"))
        values = await say("explain", container="default/one/main")

    quota = "quota of gpu-8g: 8192 MiB and 25 % of the cores, enforced by watch"
    assert quota in "\n".join(printed(render(values), 300))


async def test_profiles_that_are_and_are_not_offered(tmp_path: Path) -> None:
    """`devices` lists those whose vGPUs containers have; a vGPU that a pod's containers share is given once."""
    pod = pod_with("GPU-a/gpu-8g/0", "one")
    both = replace(pod, containers=(pod.containers[0], replace(pod.containers[0], name="side")))
    offered = {"name": RESOURCE, "device_class": "nvidia", "ids": 4, "healthy": 4, "profile": "gpu-8g"}
    offered |= {"memory_mib": 8192, "cores_percent": 25}
    reason = "hami-core needs x"
    offered |= {"enforce": ["hami-core", "watch"], "not_enforced": {"hami-core": reason}}
    async with node(tmp_path, RULES) as (world, say):
        await world.run(both)
        await say("device-inventory", **{**REPORT, "resources": [offered], "cards": []})
        values = await say("devices")
        (now,), annotations = values["vgpus"], values["node_annotations"]
        shown = [text.plain for text in vgpus(await say("devices"))]
        await say("device-inventory", **{**REPORT, "cards": []})
        values = await say("devices")
        (later,) = values["vgpus"]

    vgpu = '{"resource":"criproxy.io/gpu-8g","count":4,"free":3,"memory_mib":8192,"cores_percent":25}'
    assert annotations == {"devices.criproxy.io/vgpus": f"[{vgpu}]"}
    assert (now["free"], now["used_by_card"], now["offered"]) == (3, {"GPU-a": 1}, True)
    assert shown == [
        "profile gpu-8g: 4 vGPUs with 8192 MiB and 25 % of the cores each, 3 free; enforced by watch",
        "profile gpu-8g is not enforced by hami-core: hami-core needs x",
    ]
    assert (later["profile"], later["used_by_card"], later["offered"]) == ("gpu-8g", {"GPU-a": 1}, False)
    assert [text.plain for text in vgpus(values)] == ["profile gpu-8g: 1 allocated, no longer offered"]
    assert values["node_annotations"] == {}


async def test_the_agent_learns_of_labels_and_inventory(tmp_path: Path) -> None:
    """What is unknown is null; a device plugin that somebody has ended has neither; too many labels are refused."""
    vgpu = {**REPORT["resources"][0], "name": "criproxy.io/small", "profile": "small"}
    labels = {"nvidia.com/gpu.count": "2"}
    async with node(tmp_path) as (world, say):
        polls = AgentPolls(LiveNode(world.controller))

        async def told() -> dict[str, Any]:
            return dict(json.loads(await polls.command({"after": polls.revision, "wait_s": 20})))

        before = json.loads(await polls.command({}))
        await say("device-inventory", **REPORT)
        older = await told()
        await say("device-inventory", **{**REPORT, "resources": [vgpu], "labels": labels, "configuration": "a100"})
        now = await told()
        configuration = (await say("devices"))["device_plugin"]["configuration"]
        with pytest.raises(CriproxyError, match="labels: 257 are more than 256"):
            await say("device-inventory", **{**REPORT, "labels": {f"nvidia.com/{n}": "" for n in range(257)}})
        await say("device-plugin", running=False)
        ended = await told()

    assert (before["labels"], before["vgpus"]) == (None, None)
    assert (older["labels"], older["vgpus"]) == (None, "")
    assert (now["labels"], json.loads(now["vgpus"])[0]["resource"]) == (labels, "criproxy.io/small")
    assert configuration == "a100"
    assert (ended["labels"], ended["vgpus"]) == ({}, "")
