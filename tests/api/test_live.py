"""The daemon's answers about itself, over its control socket, in front of the embedded runtime."""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from criproxy.api.live import LiveNode
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import CriproxyError, UsageError
from criproxy.model.attributes import in_place
from criproxy.model.workload import Container, ContainerState
from criproxy.node.settings import OnError
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from lab.kubelet.kubelet import MiniKubelet
from tests.asking import LIMIT_S, answering
from tests.node.reconcile.test_trouble import FailingStore
from tests.node.world import FAST, NO_LOOKS, PATIENT_STORE, STATIC, World, owner, sharer, situation

MANY = 1_000


def calm(world: World) -> bool:
    """Whether everybody runs, and where they belong."""
    node = world.controller.node
    running = all(each.state is ContainerState.RUNNING for each in node.containers.values())
    return running and all(in_place(grant, node.applied.get(key)) for key, grant in node.grants.items())


async def test_a_kubelet_that_sets_cpusets_is_told_of(tmp_path: Path) -> None:
    """Two managers of the same cpusets compete, and status says which setting ends that."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        web = await world.run(sharer("web"))
        for cpus in ("0", "0-1"):
            await world.client.update_container_resources(web, api.LinuxContainerResources(cpuset_cpus=cpus))

        (notice,) = (await say("status"))["notices"]

        assert notice["kind"] == "competing-manager"
        assert "2 times" in notice["text"]
        assert "CPUs 0-1 for default/web/main" in notice["text"]
        assert "cpuManagerPolicy: none" in notice["text"]
        assert "or another criproxy or NRI plugin on this runtime" in notice["text"]


async def test_status_tells_who_cannot_be_created(tmp_path: Path) -> None:
    """A refusal is told with its reason and how often it was repeated, until the container is placed."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        pod = owner("greedy", 3)
        trader = await world.run(owner("trader", 1))
        sandbox_id = await world.kubelet.run_sandbox(pod)
        for _ in range(2):
            with pytest.raises(RuntimeCallError, match="asks for 3 exclusive CPUs"):
                await world.kubelet.create(pod, sandbox_id, pod.containers[0])
        (refusal,) = (await say("status"))["refusals"]
        await world.kubelet.remove_pod(world.controller.node.containers[trader].pod)
        await world.kubelet.create(pod, sandbox_id, pod.containers[0])

        assert (refusal["container"], refusal["times"]) == ("default/greedy/main", 2)
        assert refusal["text"].startswith(
            "container default/greedy/main asks for 3 exclusive CPUs, but only 2 are available"
        )
        assert (await say("status"))["refusals"] == []


@pytest.mark.parametrize("seen", [True, False])
async def test_status_forgets_who_was_refused_in_a_sandbox_that_is_gone(tmp_path: Path, *, seen: bool) -> None:
    """Also when nobody saw its removal; a stop alone says nothing, and what was counted stays."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        sandboxes = list[str]()
        for name in ("gone", "stays"):
            pod = owner(name, 4)
            sandboxes.append(await world.kubelet.run_sandbox(pod))
            with pytest.raises(RuntimeCallError, match="asks for 4 exclusive CPUs"):
                await world.kubelet.create(pod, sandboxes[-1], pod.containers[0])
        await world.kubelet.stop_sandbox(sandboxes[0])
        assert len((await say("status"))["refusals"]) == 2

        kubelet = world.kubelet if seen else MiniKubelet(world.direct)
        await kubelet.remove_pod(sandboxes[0])
        if not seen:
            world.controller.runtime_lost()
        await world.until(lambda: sandboxes[0] not in world.controller.node.pods)
        await world.poll(lambda: len(situation(world.controller).refusals) == 1)

        (refusal,) = (await say("status"))["refusals"]
        assert refusal["container"] == "default/stays/main"
        assert world.counters.refusals == {"RESOURCE_EXHAUSTED": 2}


async def test_explain_by_id_and_by_name(tmp_path: Path) -> None:
    """The story is the same under both, and another container of that name is told of in either."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        first = await world.run(owner("trader", 1))
        await world.kubelet.remove_pod(world.controller.node.containers[first].pod)
        second = await world.run(owner("trader", 2))

        by_id, by_name = [await say("explain", container=each) for each in (second[:10], "default/trader/main")]

        assert by_id["events"] == by_name["events"]
        assert [other["id"] for other in by_id["earlier"]] == [other["id"] for other in by_name["earlier"]] == [first]


async def test_explain_nobody(tmp_path: Path) -> None:
    """Unknown names are an answer with names near by, no name is wrong use."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        await world.run(sharer("web"))

        with pytest.raises(CriproxyError, match=r"did you mean default/web/main\?"):
            await say("explain", container="web")
        with pytest.raises(UsageError, match="name a container"):
            await say("explain")
        with pytest.raises(UsageError, match="container: must be a str, not 7"):
            await say("explain", container=7)


async def test_a_thousand_containers_hold_up_nobody(tmp_path: Path) -> None:
    """The answer is complete, and the event loop does less for it than one step for each container."""
    # The runtime is not asked again, which knows none of them; and nobody else works for a thousand meanwhile.
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NO_LOOKS) as world, answering(world, tmp_path) as say:
        await world.poll(lambda: world.controller.ready)
        node = world.controller.node
        for number in range(MANY):
            found = Container(
                key=f"{number:064x}",
                pod=f"s{number}",
                name="main",
                pod_name=f"pod-{number}",
                namespace="default",
                state=ContainerState.RUNNING,
                reservation=f"r-{number}",
            )
            node = step(node, ContainerCreating(found), STATIC).node
        world.controller.context.state.node = node
        await say("names")  # the client's modules are loaded

        answers, calls = LiveNode(world.controller), list[str]()

        def count(frame: FrameType, what: str, argument: object) -> None:
            if what == "call" and str(frame.f_globals["__name__"]).startswith("criproxy."):
                calls.append(frame.f_code.co_name)

        sys.setprofile(count)  # of this thread only
        try:
            answer = await answers.status({"check": True})
        finally:
            sys.setprofile(None)

        assert len(json.loads(answer)["containers"]) == MANY == len((await say("status"))["containers"])
        assert 0 < len(calls) < MANY
        assert "encoded" not in calls, "one call, but as long as the answer"


@pytest.mark.parametrize(("on_error", "kind"), [(OnError.SHARED, "passed"), (OnError.REFUSE, "refused")])
async def test_a_create_at_which_we_fail_is_in_the_history(tmp_path: Path, on_error: OnError, kind: str) -> None:
    """What our own failure was, and whether the container went on without us."""
    settings = replace(FAST, on_error=on_error, store=replace(PATIENT_STORE, retry_pause_s=0.02, retry_limit_s=0.02))
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=settings) as world:
        await world.stop_criproxy()
        store = FailingStore(tmp_path / "state")
        world.make_store = lambda: store
        await world.start_criproxy()
        with suppress(RuntimeCallError):
            await world.run(owner("trader", 1))
        store.full = False
        while world.controller.problem:  # noqa: ASYNC110 (it tries the disk by itself, and tells nobody)
            await asyncio.sleep(0.01)
        await world.run(sharer("web"))

        records = await world.controller.context.state.find_history("default/trader/main")

    told = {record.kind.value: record.sentences[0] for record in records}
    assert "disk is full" in told[kind]


async def test_a_released_node(tmp_path: Path) -> None:
    """Nobody is placed, and nothing else is wrong; each story ends with the update that let its container go."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path) as world, answering(world, tmp_path) as say:
        owned = await world.run(owner("trader", 2))
        await world.until(lambda: calm(world))
        await world.controller.policy_switch.release("by hand")

        values, told = await say("status", check=True), await say("explain", container=owned)

        assert [found["kind"] for found in values["found"]] == ["released"]
        assert values["under_way"] == []
        assert [notice["kind"] for notice in values["notices"]] == ["released"]
        assert values["totals"]["unplaced"] == 1
        assert told["why"][-1] == "then CPUs 1-2 → 0-3, because the node was released; read back"


async def test_one_of_whose_place_nothing_is_remembered_is_compared_now(tmp_path: Path) -> None:
    """What its policy would choose from if it placed it anew; a policy that fails at that hides nothing else."""
    policy = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))
    async with asyncio.timeout(LIMIT_S), World(tmp_path, policy=policy) as world:
        trader = await world.run(owner("trader", 2))
        await world.stop_criproxy()
        for part in (tmp_path / "state").glob("criproxy.db*"):
            part.unlink()
        await world.start_criproxy()
        await world.poll(lambda: trader in world.controller.node.grants and world.controller.ready)
        await world.rested()
        async with answering(world, tmp_path) as say:
            (choice,) = (await say("explain", container=trader))["choices"]
            policy.options = None  # type: ignore[assignment]
            broken = await say("explain", container=trader)

    assert (choice["decision"], choice["time"], choice["candidates"]["chosen"]) == ("now", "", "the machine")
    assert broken["choices"] == []
    assert [notice["kind"] for notice in broken["notices"]] == ["policy"]
    assert broken["container"]["id"] == trader


async def test_one_that_a_new_policy_has_placed_is_compared_now(tmp_path: Path) -> None:
    """What it was placed by at its create is no longer all that is said of its place."""
    old, new = (StaticPolicy(StaticOptions.model_validate({"reservedCpus": reserved})) for reserved in ("0", "0-1"))
    async with asyncio.timeout(LIMIT_S), World(tmp_path, policy=old) as world, answering(world, tmp_path) as say:
        trader = await world.run(owner("trader", 1))
        before = (await say("explain", container=trader))["choices"]
        context = world.controller.context

        settings = replace(context.settings, configuration="new", apply_all=True)
        await world.controller.policy_switch.change(new, settings)

        told = await say("explain", container=trader)
        assert [choice["decision"] for choice in before] == ["placed"]
        assert [choice["decision"] for choice in told["choices"]] == ["placed", "now"]
        assert any("gets exclusive CPU 2" in sentence for sentence in told["why"])
        assert "memory from where it came before" in told["why"]
