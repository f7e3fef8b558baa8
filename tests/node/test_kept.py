"""Exclusive CPUs stay with a pod whose containers end, over everything that happens to sandboxes, and never longer."""

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree

import pytest

from criproxy.api.views.status import rows, summary
from criproxy.cli.render import words
from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant, Kept
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.node.sync.ends import Inheritance
from criproxy.placement.answers.choice import Choice, Decided, choice_now
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.placement.rules.pipeline import shown_for
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import IMAGE, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node import world as worlds
from tests.node.world import GIB, KEEPING, World, owner, problems, refusal, situation


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved, under the static policy."""
    async with World(tmp_path, policy=KEEPING) as world:
        yield world


def kept(world: World, pod: PodSpec) -> str:
    """The CPUs that are kept for a pod."""
    found = world.controller.node.kept.get(pod.uid)
    return format_cpuset(found.cpus) if found else ""


async def again(world: World, pod: PodSpec, sandbox: str, attempt: int) -> str:
    """The next attempt of the container ``main``, started."""
    made = await world.kubelet.create(pod, sandbox, pod.containers[0], attempt)
    await world.kubelet.start(made)
    return made


async def crashed(world: World) -> tuple[PodSpec, str]:
    """A pod whose only container has ended, as a list has told: its CPUs are kept; and its sandbox."""
    pod = owner("loop", 2)
    sandbox, ids = await world.kubelet.run_pod(pod)
    await world.rested()
    world.runtime.exit_container(ids["main"])
    await world.controller.outcomes.release_exited()
    assert kept(world, pod) == "1-2"
    return pod, sandbox


def end_pause(world: World, sandbox: str) -> None:
    """The sandbox's own process is killed: its containers go on, and nobody is told."""
    found = world.runtime.core.records.sandboxes[sandbox]
    found.ready, found.listed = False, None


async def test_a_crash_loop_beside_a_waiting_pod(world: World) -> None:
    """Who waits is told for whom the CPUs are kept, and comes when that pod is stopped; the loop goes on until then."""
    pod, waiting = owner("loop", 2), owner("waiting", 3)
    sandbox, ids = await world.kubelet.run_pod(pod)
    main = ids["main"]
    for attempt in (1, 2):
        await world.rested()  # whoever is being read is not believed to have ended
        world.runtime.exit_container(main)
        caught = await refusal(world.run(PodSpec(f"waiting{attempt}", waiting.containers)))
        assert caught.code is StatusCode.RESOURCE_EXHAUSTED
        assert "CPUs 1-2 are kept for default/loop" in caught.details
        assert kept(world, pod) == "1-2"
        main = await again(world, pod, sandbox, attempt)
        assert world.cpus(main) == "1-2"

    await world.kubelet.stop_sandbox(sandbox)
    assert world.cpus(await world.run(PodSpec("later", waiting.containers))) == "1-3"


async def test_what_is_kept_outlasts_a_restart_of_criproxy(world: World) -> None:
    """It is stored; what the runtime lists says that the pod is still there. Status tells for whom they are kept."""
    pod, sandbox = await crashed(world)
    await world.restart_known()
    assert kept(world, pod) == "1-2"
    values = summary(situation(world.controller))
    assert values["kept"] == [{"pod": "default/loop", "uid": pod.uid, "cpus": "1-2", "containers": ["main"]}]
    assert values["cpus"]["shared"] == "0,3"
    assert world.cpus(await again(world, pod, sandbox, 1)) == "1-2"


@pytest.mark.parametrize("listed", [False, True], ids=["told", "listed-before"])
async def test_a_killed_pause_gives_the_cpus_to_the_next_sandbox(world: World, listed: bool) -> None:
    """As the kubelet does it: stop of the container and the sandbox, and a sandbox of the same uid right after."""
    pod = owner("pause", 2)
    await world.run(owner("other", 1))
    sandbox, ids = await world.kubelet.run_pod(pod)
    assert world.cpus(ids["main"]) == "2-3"
    end_pause(world, sandbox)
    await world.kubelet.stop(ids["main"])
    if listed:  # a look at the sandboxes comes before the stop
        main = ids["main"]
        await world.until(lambda: world.controller.node.containers[main].state is ContainerState.EXITED)
        await world.controller.outcomes.release_kept()  # unless criproxy has looked by itself since then
        assert not kept(world, pod)
    await world.kubelet.stop_sandbox(sandbox)
    new = await world.kubelet.run_sandbox(pod, 1)
    await world.until(lambda: kept(world, pod) == "2-3")

    second = await again(world, pod, new, 1)
    assert world.cpus(second) == "2-3"
    await world.kubelet.remove_pod(sandbox)
    await world.kubelet.stop(second)
    assert world.cpus(await again(world, PodSpec("pause", pod.containers), new, 2)) == "2-3"


async def test_a_failing_stop_of_the_sandbox_leaks_nothing(tmp_path: Path) -> None:
    """The kubelet repeats it; what counts is that the sandbox has ended, and the lists say so."""
    pod = owner("loop", 3)
    options = RuntimeOptions(missing=frozenset({"StopPodSandbox"}))
    async with World(tmp_path, options, policy=KEEPING) as world:
        sandbox, ids = await world.kubelet.run_pod(pod)
        await world.rested()
        world.runtime.exit_container(ids["main"])
        await world.controller.outcomes.release_exited()
        await refusal(world.kubelet.stop_sandbox(sandbox))
        assert kept(world, pod) == "1-3"
        end_pause(world, sandbox)

        assert world.cpus(await world.run(owner("next", 3))) == "1-3"
        assert not kept(world, pod)


@pytest.mark.parametrize("gone", [False, True], ids=["not-ready", "missing"])
async def test_a_sandbox_that_ended_unseen_is_found_in_a_list(world: World, gone: bool) -> None:
    """Nobody waits for the CPUs: the regular look at who has exited reads the sandboxes, too."""
    pod = owner("loop", 2)
    world.use(KEEPING, exit_list_s=0.05, exit_list_beside_events_s=0.05)
    await world.restart()
    sandbox, ids = await world.kubelet.run_pod(pod)
    world.runtime.exit_container(ids["main"])
    await world.until(lambda: kept(world, pod) == "1-2")
    if gone:
        await world.direct.call(
            "RemovePodSandbox", api.RemovePodSandboxRequest(pod_sandbox_id=sandbox), api.RemovePodSandboxResponse, 5.0
        )
    else:
        end_pause(world, sandbox)

    await world.until(lambda: not world.controller.node.kept)
    assert not world.controller.node.exclusive_cpus


async def test_after_a_reboot_all_pods_run_and_nothing_is_left_over(world: World) -> None:
    """Sandboxes are not ready and containers have exited; the kubelet makes all of them anew."""
    pods = [owner("a", 1), owner("b", 2)]
    old = [await world.kubelet.run_pod(pod) for pod in pods]
    await world.rested()
    await world.stop_criproxy()
    for sandbox, ids in old:
        world.runtime.exit_container(ids["main"])
        end_pause(world, sandbox)
    await world.start_criproxy()

    new = [await world.kubelet.run_sandbox(pod, 1) for pod in pods]
    for pod, sandbox in reversed(list(zip(pods, new, strict=True))):
        await again(world, pod, sandbox, 1)
    for sandbox, _ in old:
        await world.kubelet.remove_pod(sandbox)
    await world.until(lambda: len(world.controller.node.grants) == 2)

    assert world.controller.node.owned_cpus == frozenset({1, 2, 3})
    for sandbox in new:
        await world.kubelet.remove_pod(sandbox)
    await world.until(lambda: not world.controller.node.pods)
    assert not world.controller.node.exclusive_cpus


async def test_a_lost_store_keeps_nothing_and_leaks_nothing(world: World, tmp_path: Path) -> None:
    """A container that had crashed just then comes back as a new one."""
    pod, sandbox = await crashed(world)
    await world.stop_criproxy()
    rmtree(tmp_path / "state")
    await world.start_criproxy()

    assert world.cpus(await again(world, pod, sandbox, 1)) == "1-2"
    await world.kubelet.remove_pod(sandbox)
    await world.until(lambda: not world.controller.node.exclusive_cpus)


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def node_with(cpus: frozenset[int], attempt: int = 0) -> Node:
    """One pod whose container has *cpus* alone, and has had CPU 3 before."""
    container = Container(key="c", pod="s", name="main", qos=QosClass.GUARANTEED)
    pod = Pod(key="s", uid="u", attempt=attempt)
    return Node(
        machine(cores=4, threads=1),
        pods={"s": pod},
        containers={"c": container},
        grants={"c": Grant(cpus, frozenset({0}), cpus)},
        kept={"u": Kept({"side": frozenset({3})})},
    )


@pytest.mark.parametrize(
    ("passed_s", "inherits"),
    [
        pytest.param(9.9, {"side": frozenset({3}), "main": frozenset({1})}, id="just-now"),
        pytest.param(10.1, {}, id="too-long-ago"),
    ],
)
def test_a_sandbox_inherits_within_ten_seconds(passed_s: float, inherits: dict[str, frozenset[int]]) -> None:
    """Of the stop: what living containers had, and what was kept."""
    clock = Clock()
    inheritance = Inheritance(clock)
    inheritance.ended(node_with(frozenset({1})), "s")
    clock.now_s += passed_s

    assert inheritance.of("u") == inherits
    assert inheritance.of("") == {}


def test_the_stop_counts_though_a_list_was_earlier() -> None:
    """A list may tell that the sandbox has ended before the kubelet stops it: then nothing is kept any more."""
    clock = Clock()
    inheritance = Inheritance(clock)
    inheritance.ended(node_with(frozenset({1})), "s")
    clock.now_s += 9
    inheritance.ended(Node(machine(), pods={"s": Pod(key="s", uid="u", stopped=True)}), "s")
    clock.now_s += 9

    assert inheritance.of("u") == {"side": frozenset({3}), "main": frozenset({1})}


async def test_cpus_that_went_over_a_restart_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a CPU that is no more, and `status --check` has nothing to say."""
    async with World(tmp_path, policy=KEEPING) as world:
        pod, sandbox = await crashed(world)
        await world.stop_criproxy()
        monkeypatch.setattr(worlds, "machine", lambda **_: machine(1, 4, 1, allowed=parse_cpuset("0-1,3")))

        await world.start_criproxy()

        await world.until(lambda: not world.controller.node.kept)
        await world.poll(lambda: problems(situation(world.controller))["problems"] == [])
        assert world.cpus(await again(world, pod, sandbox, 1)) == "1,3"


async def test_explain_compares_what_the_policy_would_see(tmp_path: Path) -> None:
    """What is kept counts as at a create; for who shares the CPUs of its pod nothing is compared.

    Those are shown with the total of their pod, all others without.
    """
    policy = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))
    eight = machine(nodes=2, cores=4, threads=1)
    async with World(tmp_path, policy=policy, topology=eight) as world:
        specs = [ContainerSpec(name, IMAGE, cpu_limit_milli=2000, memory_limit_bytes=GIB) for name in "ab"]
        whole = PodSpec("whole", (specs[0],))  # its total is that of each of its containers
        sandbox = await world.kubelet.run_sandbox(whole)
        ids = [await world.kubelet.create(whole, sandbox, spec) for spec in specs]
        apart = await world.run(owner("apart", 1))
        _, ended = await world.kubelet.run_pod(owner("loop", 2))
        for key in ids:
            await world.kubelet.start(key)
        await world.rested()
        world.runtime.exit_container(ended["main"])
        await world.controller.outcomes.release_exited()
        node = world.controller.node
        assert node.kept_cpus
        found = {(each["pod"], each["container"]): each for each in rows(situation(world.controller))}

        totals = [found[who]["pod_cpu_milli"] for who in (("whole", "a"), ("whole", "b"), ("apart", "main"))]
        assert totals == [2000, 2000, None]
        assert [words.cpu(found[who]) for who in (("whole", "a"), ("apart", "main"))] == ["2 by pod", "1"]
        assert [choice_now(node, policy, key) for key in ids] == [None, None]
        seen = shown_for(node, node.containers[apart], policy)
        assert seen is not None
        assert choice_now(node, policy, apart) == Choice(Decided.NOW, policy.candidates(seen, node.containers[apart]))
