"""What the watcher reports of the use of cards, and what the daemon shows of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.api.metrics.moment import Moment
from criproxy.api.metrics.proxy_metrics import of_controller
from criproxy.api.usage import UsageCommands
from criproxy.cli.queries.usage import render
from criproxy.cri import api_pb2 as api
from criproxy.errors import UsageError
from criproxy.node.settings import Settings
from criproxy.process.http.metrics import Registry
from lab.emulator.runtime import RuntimeOptions
from tests.asking import printed, serving
from tests.node.devices.test_create_checks_vgpu import RESOURCE, RULES, pod_with
from tests.node.devices.test_hints import host
from tests.node.world import FAST, NO_LOOKS, Slow, World, sharer

OFFERED = {
    "resources": [
        {"name": RESOURCE, "device_class": "nvidia", "ids": 4, "healthy": 3, "profile": "gpu-8g"},
        {"name": "nvidia.com/gpu", "device_class": "nvidia", "ids": 1, "healthy": 1},
    ]
}
LIMIT_S = 60.0
CARD = {"card": "GPU-a", "memory_mib": 9500, "total_mib": 16384, "cores_percent": 40.0}
OTHER = {"container_id": "", "kind": "nvidia", "card": "GPU-a", "memory_mib": 300}


def report(**more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """What the watcher says of NVIDIA's cards."""
    nvidia = {"kind": "nvidia", "source": "nvml", "cards": [CARD], "others": [OTHER], **more}
    return {"at_s": 1.0, "period_s": 1.0, "classes": [nvidia]}


class Asked:
    """A node with two GPUs, and its control socket."""

    def __init__(self, world: World, say: Callable[..., Awaitable[Any]]) -> None:
        self.world, self._say = world, say

    async def __call__(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 (JSON)
        """Ask the daemon."""
        return await self._say(command, **arguments)

    async def report(self, container_id: str, memory_mib: int = 9000) -> Any:  # noqa: ANN401 (JSON)
        """Report as the watcher does."""
        use = {"container_id": container_id, "kind": "nvidia", "card": "GPU-a", "memory_mib": memory_mib}
        return await self("device-usage", **report(containers=[{**use, "cores_percent": 20.0}]))

    async def given(self) -> tuple[set[str], int, int]:
        """The ids of the vGPUs that containers hold, and how many are given and free."""
        values = await self("usage")
        (profile,) = values["profiles"]
        return {vgpu for each in values["containers"] for vgpu in each["ids"]}, profile["given"], profile["free"]

    def metrics(self) -> dict[str, Any]:
        """What a scrape has of the use of vGPUs: labels and value by name."""
        body, _ = Registry(lambda: of_controller(Moment(self.world.controller))).render("")
        families = text_string_to_metric_families(body.decode())
        samples = [sample for family in families for sample in family.samples]
        return {sample.name.removeprefix("criproxy_"): (sample.labels, sample.value) for sample in samples}


@asynccontextmanager
async def asked(
    directory: Path, options: RuntimeOptions | None = None, settings: Settings = FAST
) -> AsyncIterator[Asked]:
    """A node whose control socket answers."""
    host(directory)
    async with World(directory, options, replace(settings, devices=RULES)) as world:
        world.controller.card_usage.clock = lambda: 0.0  # a report is recent, however long a test takes
        await world.controller.known()
        commands = {**UsageCommands(world.controller).commands(), **DevicePluginCommands(world.controller).commands()}
        async with serving(directory, commands) as say:
            yield Asked(world, say)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Asked]:
    """A node that finds out by itself who has ended."""
    async with asked(tmp_path) as node:
        yield node


async def test_use_against_what_was_granted(node: Asked) -> None:
    """Each container with a card stands with what it uses and was granted, and since when it is over its quota."""
    key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    await node.world.run(pod_with("GPU-b/gpu-8g/0", "two"))
    assert await node.report(key) == {"stale_after_s": 8.0}
    over = {"container_id": key, "device_class": "nvidia", "card": "GPU-a", "quantity": "memory"}
    await node("quota-incident", **over, used=9000, allowed=8192, since_s=1_700_000_000.0, action="observe")
    values = await node("usage")

    assert values["watcher"]["state"] == "reporting"
    (card,) = values["cards"]
    assert (card["memory_mib"], card["not_a_container"]) == (9500, {"memory_mib": 300, "cores_percent": None})
    one, two = values["containers"]
    assert (one["pod"], one["memory_mib"], one["memory_granted_mib"]) == ("one", 9000, 8192)
    assert (one["cores_percent"], one["cores_granted_percent"], one["profile"]) == (20.0, 25, "gpu-8g")
    assert one["over_since"] == {"memory": "2023-11-14T22:13:20.000Z"}
    assert (two["pod"], two["memory_mib"], two["over_since"]) == ("two", 0, {})
    assert (one["actions"][0]["action"], one["actions"][0]["quantity"]) == ("observe", "memory")
    assert values["history"] == []


async def test_who_is_not_reported_uses_nothing(node: Asked) -> None:
    """On a card that is read completely; where its class has a problem, the use is not known."""
    await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    await node("device-usage", **report())
    (idle,) = (await node("usage"))["containers"]
    await node("device-usage", **report(unread={"GPU-a": "it is lost"}))
    (lost,) = (await node("usage"))["containers"]
    await node("device-usage", **report(problem="NVML: unknown error"))
    values = await node("usage")

    assert (idle["memory_mib"], idle["cores_percent"]) == (0, 0.0)
    assert values["containers"][0]["memory_mib"] is None
    assert lost["memory_mib"] is None
    assert values["cards"] == []
    assert values["watcher"]["classes"] == [
        {"class": "nvidia", "source": "nvml", "problem": "NVML: unknown error", "unread_cards": {}}
    ]


async def test_a_report_without_totals(node: Asked) -> None:
    """The total of a card is then what its processes use, and who is not reported uses nothing."""
    key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    await node.world.run(pod_with("GPU-b/gpu-8g/0", "two"))
    use = {"container_id": key, "kind": "nvidia", "card": "GPU-a", "memory_mib": 700}
    await node("device-usage", **report(cards=[], containers=[use]))
    values = await node("usage")

    (card,) = values["cards"]
    assert (card["memory_mib"], card["total_mib"], card["not_a_container"]["memory_mib"]) == (1000, None, 300)
    assert [(each["memory_mib"], each["cores_percent"]) for each in values["containers"]] == [(700, None), (0, None)]


async def test_a_card_that_is_not_known_to_be_granted(node: Asked) -> None:
    """Who uses it stands with the others, without profile and quota; a container of another runtime stands apart."""
    key = await node.world.run(sharer("web"))
    await node.report(key)
    (web,) = (await node("usage"))["containers"]
    await node.report("f" * 64)
    values = await node("usage")

    assert values["unknown_containers"] == [{"id": "f" * 64, "class": "nvidia", "card": "GPU-a", "memory_mib": 9000}]
    assert (web["pod"], web["memory_mib"], web["profile"], web["memory_granted_mib"]) == ("web", 9000, "", None)


async def test_a_watcher_that_is_silent(node: Asked) -> None:
    """After three periods and five seconds nothing is known of the use; grants and history are."""
    now_s = 0.0
    node.world.controller.card_usage.clock = lambda: now_s
    key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    before = await node("usage")
    await node.report(key)
    now_s = 8.5
    values = await node("usage", history=True)
    metrics = node.metrics()

    assert before["watcher"] == {"state": "none", "reported": None, "stale_after_s": None, "classes": []}
    assert (values["watcher"]["state"], values["cards"]) == ("silent", [])
    (one,) = values["containers"]
    assert (one["memory_mib"], one["memory_granted_mib"]) == (None, 8192)
    assert [(each["id"], each["points"][0]["memory_mib"]) for each in values["history"]] == [("", 9500), (key, 9000)]
    assert values["history"][1]["title"].endswith("/one/main")
    assert metrics["usage_watcher_up"] == ({}, 0.0)
    assert "vgpu_memory_used_bytes" not in metrics
    assert metrics["vgpu_memory_limit_bytes"][1] == 8192 << 20


async def test_free_vgpus(node: Asked) -> None:
    """By profile, those that are healthy and that no container has; ids of whole cards are none."""
    await node("device-inventory", **OFFERED)
    await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    values, metrics = await node("usage"), node.metrics()

    (profile,) = values["profiles"]
    assert [profile[key] for key in "profile vgpus healthy given free".split()] == ["gpu-8g", 4, 3, 1, 2]
    assert metrics["vgpu_free"] == ({"device_class": "nvidia", "profile": "gpu-8g"}, 2.0)


async def test_a_profile_that_is_no_longer_offered(node: Asked) -> None:
    """It stays in the list as long as containers have its vGPUs, if the device plugin says what it offers."""
    key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    unknown = (await node("usage"))["profiles"]
    await node("device-inventory", resources=OFFERED["resources"][1:])
    (profile,) = (await node("usage"))["profiles"]
    shown = printed(render(await node("usage"), 200), 200)
    await node.world.client.call("StopContainer", api.StopContainerRequest(container_id=key), api.StopContainerResponse)
    later = (await node("usage"))["profiles"]

    assert (unknown, later) == ([], [])
    assert (profile["profile"], profile["given"], profile["free"], profile["offered"]) == ("gpu-8g", 1, 0, False)
    assert "gpu-8g: 1 allocated, no longer offered" in shown


async def test_a_vgpu_of_two_containers_is_given_once(node: Asked) -> None:
    """Containers of one pod share it; it stays given while a container may restart, which is until its sandbox ends."""
    pod = pod_with("GPU-a/gpu-8g/0", "one")
    both = replace(pod, containers=(pod.containers[0], replace(pod.containers[0], name="side")))
    await node("device-inventory", **OFFERED)
    sandbox, _ = await node.world.kubelet.run_pod(both)
    other, containers = await node.world.kubelet.run_pod(pod_with("GPU-a/gpu-8g/1", "two"))
    (last,) = containers.values()
    told = [await node.given()]
    await node.world.kubelet.stop_sandbox(sandbox)
    told.append(await node.given())
    node.world.runtime.exit_container(last)
    async with asyncio.timeout(LIMIT_S):
        while (now := await node.given())[0]:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    told.append(now)
    await node.world.kubelet.stop_sandbox(other)
    told.append(await node.given())

    both_held = {"GPU-a/gpu-8g/0", "GPU-a/gpu-8g/1"}
    assert told == [(both_held, 2, 1), ({"GPU-a/gpu-8g/1"}, 1, 2), (set(), 1, 2), (set(), 0, 3)]


async def test_who_has_just_ended_holds_nothing(tmp_path: Path) -> None:
    """Also where the runtime tells nobody: the cgroups of those with cards are looked at before each answer.

    Its vGPU is still its pod's.
    """
    async with asked(tmp_path, RuntimeOptions(missing=frozenset({"GetContainerEvents"})), NO_LOOKS) as node:
        await node("device-inventory", **OFFERED)
        short = await node.world.run(pod_with("GPU-a/gpu-8g/0", "short"))
        await node.world.run(pod_with("GPU-a/gpu-8g/1", "long"))
        before = await node.given()
        await node.world.rested()  # else it is a look of the start that finds the end
        node.world.controller.gone.wait_s = LIMIT_S
        node.world.runtime.exit_container(short)
        after = await node.given()

    assert (before[1:], after) == ((2, 1), ({"GPU-a/gpu-8g/1"}, 2, 1))


async def test_an_answer_does_not_wait_for_the_runtime(tmp_path: Path) -> None:
    """Where it does not say in time whether a container has ended, the answer has what is known."""
    slow = Slow()
    options = RuntimeOptions(missing=frozenset({"GetContainerEvents"}), latency_s=slow)
    async with asked(tmp_path, options, NO_LOOKS) as node:
        await node("device-inventory", **OFFERED)
        short = await node.world.run(pod_with("GPU-a/gpu-8g/0", "short"))
        await node.world.rested()
        node.world.controller.gone.wait_s = 0.05
        slow["ContainerStatus"] = 3600.0
        node.world.runtime.exit_container(short)
        during = await node.given()

    assert during == ({"GPU-a/gpu-8g/0"}, 1, 2)


async def test_metrics_of_a_vgpu(node: Asked) -> None:
    """Used and granted memory and cores of each container with a vGPU, by namespace, pod and container."""
    nothing = node.metrics()
    key = await node.world.run(pod_with("GPU-a/gpu-8g/0", "one"))
    await node.report(key)
    metrics = node.metrics()

    assert not [name for name in nothing if name.startswith(("vgpu", "usage"))]
    labels, used = metrics["vgpu_memory_used_bytes"]
    assert used == 9000 << 20
    card = {"device_class": "nvidia", "profile": "gpu-8g", "card": "GPU-a"}
    assert labels == {"namespace": "default", "pod": "one", "container": "main", **card}
    found = {name: metrics[f"vgpu_{name}"][1] for name in ("memory_limit_bytes", "sm_ratio", "sm_limit_ratio")}
    assert found == {"memory_limit_bytes": 8192 << 20, "sm_ratio": 0.2, "sm_limit_ratio": 0.25}
    assert metrics["usage_watcher_up"] == ({}, 1.0)


async def test_bad_arguments(node: Asked) -> None:
    """They are refused, and the last report stays."""
    await node.report("c" * 64)
    for command, arguments in (("device-usage", {"classes": 7}), ("usage", {"history": "yes"})):
        with pytest.raises(UsageError):
            await node(command, **arguments)

    assert (await node("usage"))["watcher"]["state"] == "reporting"
