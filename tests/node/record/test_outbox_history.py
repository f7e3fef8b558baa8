"""The history tells what was asked, granted, refused, waited for and updated, of those who live and who ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.model.grant import Applied, Change, Reason
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.node.record.outbox import record_of
from criproxy.node.record.refusals import Refusals
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import (
    ContainerCreating,
    ContainerGone,
    Event,
    Found,
    PodCreated,
    PodGone,
    PodResized,
    PolicyChanged,
    Present,
)
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.records.history import Entry, cause, entries_of
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import RuntimeOptions
from tests.node.calls.test_sharers_do_not_wait import StalledDisk
from tests.node.world import FAST, Slow, World, owner, refusal, sharer
from tests.placement.rules.test_kept import container, live, pod, runs


async def story(world: World, text: str) -> list[Record]:
    """The history that a user would see."""
    return await world.controller.context.state.find_history(text)


def kinds(records: Sequence[Record]) -> list[Kind]:
    """What happened, in order."""
    return [record.kind for record in records]


def of_kind(records: Sequence[Record], kind: Kind) -> list[Record]:
    """Those of one kind."""
    return [record for record in records if record.kind is kind]


async def test_reservations_are_in_the_order_of_time(tmp_path: Path) -> None:
    """So what the store writes about new containers is side by side; to a millisecond, and no two are alike."""
    async with World(tmp_path) as world:
        ids = [await world.run(sharer(f"web-{number}")) for number in range(3)]
        lives = [world.controller.node.containers[each].life for each in ids]

    begun = [life[: len("r-") + 12] for life in lives]
    assert (begun, len(set(lives)), {len(life) for life in lives}) == (sorted(begun), 3, {len("r-") + 32})


async def test_the_life_of_an_owner(world: World) -> None:
    """From what its message said to what it gave back, under its id and its name."""
    container_id = await world.run(owner("trader", 2))
    await world.booked()
    await world.kubelet.remove_pod(world.controller.node.containers[container_id].pod)

    records = await story(world, container_id[:12])
    told = [record for record in records if record.kind is not Kind.CONSIDERED]  # which comes at any time later

    assert kinds(told) == [Kind.ASKED, Kind.GRANTED, Kind.CREATED, Kind.STARTED, Kind.EXITED, Kind.GONE]
    assert len(of_kind(records, Kind.CONSIDERED)) == 1
    assert records == await story(world, "default/trader/main")
    asked, granted, *_, exited, _ = told
    assert asked.facts["cpu_shares"] == 2048
    assert asked.facts["cpu_quota"] == 200_000
    assert "CPU request 2, from cpu_shares 2048" in asked.sentences
    assert granted.facts["exclusive_cpus"] == "1-2"
    assert "its pod is Guaranteed and it asks for 2" in granted.sentences[0]
    assert exited.sentences == ("it ended: its exclusive CPUs 1-2 are free",)


async def test_an_update_tells_from_where_to_where_and_because_of_whom(tmp_path: Path, slow: Slow) -> None:
    """Who is moved off CPUs finds the newcomer's name in its story, and the newcomer for whom its start waited."""
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        web, pod = await world.run(sharer("web")), owner("trader", 2)
        slow.hold("UpdateContainerResources")
        trader = await world.kubelet.create(pod, await world.kubelet.run_sandbox(pod), pod.containers[0])
        starting = asyncio.create_task(world.kubelet.start(trader))
        await world.poll(lambda: any(link.held_calls for link in world.proxy.links))  # the start is held
        slow.let_go("UpdateContainerResources")
        await starting

        (update,) = of_kind(await story(world, web), Kind.UPDATED)
        (waited,) = of_kind(await story(world, "default/trader/main"), Kind.WAITED)

        assert (update.facts["had_cpus"], update.facts["cpus"]) == ("0-3", "0,3")
        assert update.sentences == ("CPUs 0-3 → 0,3, because default/trader/main was created; read back",)
        assert waited.sentences[0].endswith("until default/web/main had left its CPUs")


@pytest.mark.parametrize("when", ["as-soon-as-it-is-decided", "while-the-create-waits-for-the-disk"])
async def test_the_cause_of_a_move_is_told_whoever_asks_for_it_first(tmp_path: Path, world: World, when: str) -> None:
    """As the container's own start may, before the controller does it for the create."""
    await world.stop_criproxy()
    disk = StalledDisk(tmp_path / "state")
    world.make_store = lambda: disk
    await world.start_criproxy()
    web = await world.at_rest(sharer("web"))
    disk.answers.clear()
    creating = asyncio.create_task(world.run(owner("trader", 2)))
    await world.until(lambda: world.controller.node.grants[web].cpus == {0, 3})
    if when == "while-the-create-waits-for-the-disk":
        await world.poll(disk.stalls.is_set)
    world.controller.reconciler.enqueue([web], read=True)
    await world.poll(lambda: world.cpus(web) == "0,3")
    disk.answers.set()
    await creating

    (update,) = of_kind(await story(world, web), Kind.UPDATED)

    assert update.sentences == ("CPUs 0-3 → 0,3, because default/trader/main was created; read back",)


async def test_a_refused_create_is_found_by_its_name(world: World) -> None:
    """It has no id, but what it asked and why it was refused is told."""
    caught = await refusal(world.run(owner("greedy", 4)))

    records = await story(world, "default/greedy/main")
    (refused,) = of_kind(records, Kind.REFUSED)

    assert {*kinds(records)} == {Kind.ASKED, Kind.REFUSED, Kind.CONSIDERED}
    assert refused.sentences == (caught.details,)


async def test_failures_of_an_update_are_told_once(tmp_path: Path) -> None:
    """An update that fails again and again in the same way is one entry."""
    stuck = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with World(tmp_path, stuck, replace(FAST, barrier_timeout_s=0.3)) as world:
        web = await world.run(sharer("web"))
        await refusal(world.run(owner("trader", 1)), "cannot start")
        await world.poll(lambda: world.log.events().count("update failed") > 2)

        (failed,) = of_kind(await story(world, web), Kind.FAILED)
        (waited,) = of_kind(await story(world, "default/trader/main"), Kind.WAITED)

        assert "UNIMPLEMENTED" in failed.sentences[0]
        assert "default/web/main" in waited.sentences[0]


async def test_a_resize_tells_what_the_kubelet_sent(world: World) -> None:
    """Only the fields that the update sets are told, then what came of it."""
    container_id = await world.run(owner("trader", 1))
    linux = api.LinuxContainerResources(cpu_shares=2048, cpu_quota=200_000, cpu_period=100_000)
    await world.client.update_container_resources(container_id, linux)

    asked, placed = of_kind(await story(world, container_id), Kind.RESIZED)

    assert asked.sentences == (
        "the kubelet resizes it",
        "CPU request 2, from cpu_shares 2048",
        "CPU limit 2, from cpu_quota 200000 µs of 100000 µs",
    )
    assert placed.facts["exclusive_cpus"] == "1-2"


def test_a_decision_about_the_node_is_recorded_once_and_for_each_container_it_is_about() -> None:
    """Whatever the sentences say, and though an older attempt has the same name."""
    older = Container(key="id0", pod="s", name="main", pod_name="web", namespace="shop")
    newer = replace(older, key="id1", attempt=1)
    node = Node(machine(), containers={"id0": older, "id1": newer})
    reasons = (
        Reason(None, "the policy has changed: 2 of 2 containers move"),
        Reason("id0", "shop/web/main owns CPUs 1"),
        Reason("id1", "shop/web/main owns CPUs 2"),
        Reason("id1", "memory from node 0"),
        Reason(None, "shared containers leave CPUs 1-2"),
    )
    entries = list(entries_of(node, PolicyChanged(), Decision(node, reasons=reasons)))

    assert [(entry.about, entry.kind, entry.sentences) for entry in entries] == [
        (None, Kind.NODE, ("the policy has changed: 2 of 2 containers move", "shared containers leave CPUs 1-2")),
        (older, Kind.GRANTED, ("shop/web/main owns CPUs 1",)),
        (newer, Kind.GRANTED, ("shop/web/main owns CPUs 2", "memory from node 0")),
    ]


def test_a_reason_about_another_container_is_recorded_for_that_one() -> None:
    """A policy that moves others may say why; its plain sentences are about the new container."""
    other, new = (Container(key=key, pod="s", name=key) for key in ("other", "new"))
    node = Node(machine(), containers={"other": other, "new": new})
    layout = Change({}, ("it has room", Reason("other", "it makes room"), Reason(None, "the node is half full")))
    decision = Decision(node, reasons=layout.reasons_about("new"), key="new")

    assert [(e.about, e.sentences) for e in entries_of(node, ContainerCreating(new), decision)] == [
        (new, ("it has room", "the node is half full")),
        (other, ("it makes room",)),
    ]


def test_the_resize_of_a_pod_is_recorded_for_its_containers() -> None:
    """Two share the CPUs of their pod: the one that was placed for both has the sentence, and the node has none."""
    policy, event = StaticPolicy(StaticOptions()), PodResized("p-0", 4000)
    before = live(policy, pod("p", 2), runs(container("a", 2)), runs(container("b", 2)))
    entries = list(entries_of(before, event, step(before, event, policy)))

    assert [(entry.about and entry.about.name, entry.sentences[0].split()[0]) for entry in entries] == [("a", "p/a")]


def test_who_is_taken_in_learns_where_and_whose_it_is(tmp_path: Path) -> None:
    """Ours by its stamp, or somebody else's: either is told with its place."""
    policy, empty = StaticPolicy(StaticOptions()), Node(machine())
    ours = Container(key="id1", pod="s", name="main", pod_name="web", reservation="r-1", state=ContainerState.RUNNING)
    foreign = Container(key="id2", pod="s", name="side", pod_name="web", state=ContainerState.RUNNING)
    has = Applied(empty.topology.cpus, empty.topology.mems)
    event = Found(containers=(Present(ours, has), Present(foreign, has)), watch=True)
    first, second, node = entries_of(empty, event, step(empty, event, policy))

    assert (first.kind, first.sentences[0]) == (
        Kind.ADOPTED,
        "it was found running and has criproxy's stamp; it is placed on CPUs 0-7",
    )
    assert second.sentences[0] == (
        "it was found running and was started without criproxy; unplaced, it stays on CPUs 0-7"
    )
    assert (node.about, node.kind) == (None, Kind.NODE)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(ContainerCreating(Container(key="r", pod="s", name="new")), "new was created", id="created"),
        pytest.param(ContainerGone("id1"), "shop/web/main ended", id="ended"),
        pytest.param(ContainerGone("nobody"), "", id="nobody"),
        pytest.param(PodGone("s"), "shop/web ended", id="pod"),
        pytest.param(PolicyChanged(), "the policy changed", id="policy"),
        pytest.param(PodCreated(Pod(key="x")), "", id="moves-nobody"),
    ],
)
def test_the_cause_of_a_move(event: Event, expected: str) -> None:
    """Whoever is moved finds in its story because of whom."""
    here = Container(key="id1", pod="s", name="main", pod_name="web", namespace="shop")
    node = Node(machine(), pods={"s": Pod(key="s", name="web", namespace="shop")}, containers={"id1": here})

    assert cause(event, node) == expected


def test_a_record_keeps_the_first_sentences_and_says_how_many_there_were() -> None:
    """Of 8,000 sentences the history has sixteen, and each is cut; so are texts among the facts, and what is listed."""
    about = Container(key="k", pod="s", name="c")
    sentences = tuple(f"annotation {number} is not acted on" for number in range(8000))
    record = record_of(Entry(about, Kind.GRANTED, sentences, {"pool": "p" * 5000, "n": 1}), Refusals())
    assert len(record.sentences) == 17
    assert record.sentences[-1] == "and 7984 more"
    assert len(str(record.facts["pool"])) < 2100
    refusals = Refusals()
    record = record_of(Entry(about, Kind.REFUSED, ("x" * 300_000,), {}), refusals)
    assert record.sentences[0].endswith("… (298000 more characters)")
    (refusal,) = refusals.listed()
    assert len(refusal.text) < 2100
