"""Another policy while criproxy runs, and letting everybody go: the kernel's view, through real calls."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.errors import UsageError
from criproxy.model.grant import Change
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.node.record.policy_failures import PolicyFailed
from criproxy.node.settings import Adopt, Settings
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.disks import fill, free
from tests.gates import Gate
from tests.node.reconcile.test_promotion import wrong
from tests.node.record.test_disk import QUICK, SlowDisk, back
from tests.node.sync.test_sizes_in_force import asked_for
from tests.node.world import FAST, STATIC, World, owner, problems, sharer, situation

NONE = NonePolicy(Options())
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine may take long to list what runs, and to update it."""
    for limit in ("DISCOVER_S", "UPDATES_S"):
        monkeypatch.setattr(f"criproxy.node.configuration.policy_switch.{limit}", LIMIT_S)


def settings(world: World, name: str, *, apply_all: bool = False) -> Settings:
    """Those of another configuration."""
    return replace(world.controller.context.settings, configuration=name, apply_all=apply_all)


async def change(world: World, policy: Policy, name: str, *, apply_all: bool = False) -> None:
    """Go on with another policy."""
    await world.controller.policy_switch.change(policy, settings(world, name, apply_all=apply_all))


async def until_cpus(world: World, container_id: str, cpus: str) -> None:
    """Wait until the cgroup says *cpus*."""
    await world.until(lambda: world.cpus(container_id) == cpus)


async def test_from_none_to_placing_and_back(tmp_path: Path) -> None:
    """Under none nobody is touched; then who is here shares, and new containers own; then only these stay alone."""
    async with World(tmp_path, policy=NONE) as world:
        early = await world.run(owner("early"))
        assert world.cpus(early) == "0-3"
        assert world.controller.table() == {}

        await change(world, STATIC, "static")
        late = await world.run(owner("late"))
        await until_cpus(world, early, "0,2-3")
        assert world.cpus(late) == "1"

        await change(world, NONE, "none")
        after = await world.run(owner("after"))
        assert (world.cpus(late), world.cpus(after)) == ("1", "0,2-3"), "what is exclusive stays so"
        assert world.controller.table(), "places are left: who gives them up is still watched"
        for container_id in (early, late, after):
            await world.kubelet.stop(container_id)
        await world.until(lambda: not world.controller.table())
        assert world.controller.node.grants == {}
        assert world.cpus(await world.run(owner("free"))) == "0-3"


async def test_none_for_all_lets_everybody_go(world: World) -> None:
    """CPUs come back, and then nothing is held any more."""
    first, shared = await world.run(owner("first")), await world.run(sharer("shared"))

    await change(world, NONE, "none", apply_all=True)

    await until_cpus(world, first, "0-3")
    await until_cpus(world, shared, "0-3")
    await world.until(lambda: not world.controller.table())


async def test_placing_begins_though_the_runtime_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is done; held calls wait until the runtime has told what runs."""
    monkeypatch.setattr("criproxy.node.configuration.policy_switch.DISCOVER_S", 0.2)
    async with World(tmp_path, policy=NONE) as world:
        early = await world.run(sharer("early"))
        await world.runtime.stop()

        await change(world, STATIC, "static")

        assert world.controller.problem == "the runtime has not reported yet what is running"
        await world.runtime.start()
        late = await world.run(owner("late"))
        await until_cpus(world, early, "0,2-3")
        assert world.cpus(late) == "1"


class Broken(StaticPolicy):
    """Fails at everybody."""

    def place(self, node: Node, container: Container) -> Change:
        """Raise what no policy may."""
        raise RuntimeError("out of order")


async def test_a_policy_that_fails_at_who_is_here_is_not_taken(world: World) -> None:
    """The old one goes on, with its settings."""
    first = await world.run(owner("first"))

    with pytest.raises(PolicyFailed, match="out of order"):
        await change(world, Broken(StaticOptions()), "broken", apply_all=True)

    assert world.controller.context.settings.configuration == ""
    second = await world.run(owner("second"))
    assert (world.cpus(first), world.cpus(second)) == ("1", "2")


class Slow(StaticPolicy):
    """Takes its time for those who are here already: says when it has begun, and goes on when it may."""

    def __init__(self, options: StaticOptions) -> None:
        super().__init__(options)
        self.begun, self.go_on = threading.Event(), Gate()

    def place(self, node: Node, container: Container) -> Change:
        """Block until it may go on."""
        if container.key in node.grants:
            self.begun.set()
            if not self.go_on.wait(LIMIT_S / 2):
                raise TimeoutError
        return super().place(node, container)


async def test_calls_pass_while_everybody_is_placed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is submitted meanwhile waits and is decided by the new policy; all other calls are answered at once."""
    monkeypatch.setattr("criproxy.node.record.state.MANY", 0)
    async with World(tmp_path) as world:
        first = await world.run(owner("first"))
        slow = Slow(StaticOptions.model_validate({"reservedCpus": "0-1"}))
        changing = asyncio.create_task(change(world, slow, "slow", apply_all=True))
        assert await asyncio.to_thread(slow.begun.wait, LIMIT_S)
        second = asyncio.create_task(world.run(owner("second")))

        await world.client.version()

        assert not changing.done()
        slow.go_on.set()
        await changing
        assert world.cpus(await second) in ("2", "3")
        await world.until(lambda: {world.cpus(first), world.cpus(second.result())} == {"2", "3"})


async def test_a_release_unpins_everybody_and_places_nobody(world: World) -> None:
    """The answer says from where, newcomers pass, and foreign changes are not repaired."""
    first, shared = await world.run(owner("first")), await world.run(sharer("shared"))

    answer = await world.controller.policy_switch.release("somebody asked")

    assert answer["released"] == "somebody asked"
    rows = {row["container"]: row for row in answer["containers"]}
    row = rows["default/first/main"]
    assert (row["id"], row["cpus_before"], row["cpus"], row["outcome"]) == (first, "1", "0-3", "released")
    assert rows["default/shared/main"]["outcome"] == "released"
    assert (world.cpus(first), world.cpus(shared)) == ("0-3", "0-3")
    late = await world.run(owner("late"))
    assert world.cpus(late) == "0-3"
    assert world.controller.node.grants == {}


async def test_a_release_is_remembered_and_undone(world: World) -> None:
    """Over a restart nobody is placed; undone, everybody is, newcomers of that time included."""
    first = await world.run(owner("first"))
    await world.controller.policy_switch.release("somebody asked")
    await world.restart()
    second = await world.run(owner("second"))
    assert (world.cpus(first), world.cpus(second)) == ("0-3", "0-3")

    answer = await world.controller.policy_switch.undo()

    assert answer["released"] == ""
    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    assert {world.cpus(first), world.cpus(second)} == {"1", "2"}
    assert (await world.controller.policy_switch.undo())["containers"] == [], "there is nothing to undo"


async def test_a_resize_during_a_release_without_room_waits_when_it_ends(world: World) -> None:
    """The container has its former CPUs again, ``--check`` names what it should have, and it gets that with room."""
    grown, other = await world.run(owner("grown")), await world.run(owner("other"))
    had = world.cpus(grown)
    await world.controller.policy_switch.release("somebody asked")
    await world.poll(lambda: world.cpus(grown) == "0-3")
    await world.kubelet.update(grown, asked_for(3))
    await world.restart()
    await world.controller.policy_switch.undo()
    await world.poll(lambda: world.cpus(grown) == had)
    assert world.controller.node.containers[grown].missed is None
    await world.poll(lambda: len(problems(situation(world.controller))["problems"]) == 1)  # the update is booked
    (named,) = problems(situation(world.controller))["problems"]
    assert "default/grown/main" in named
    assert "3" in named

    await world.kubelet.remove_pod(world.controller.node.containers[other].pod)
    await world.poll(lambda: world.cpus(grown) == "1-3")
    assert world.controller.node.containers[grown].desired is None


async def test_a_new_configuration_ends_a_release(world: World) -> None:
    """Also one that was changed while criproxy was away; exclusive CPUs come back, as by the command."""
    first = await world.run(owner("first"))
    await world.controller.policy_switch.release("somebody asked")
    await change(world, STATIC, "next")
    assert world.controller.node.released == ""
    second = await world.run(owner("second"))
    assert (world.cpus(first), world.cpus(second)) == ("1", "2")
    assert wrong(world) == []
    await world.controller.policy_switch.release("somebody asked")

    await world.stop_criproxy()
    world.use(configuration="after", apply_all=True)
    await world.start_criproxy()

    await world.until(lambda: not world.controller.node.released)
    await world.until(lambda: {world.cpus(first), world.cpus(second)} == {"1", "2"})


async def test_lost_state_moves_nobody(tmp_path: Path, world: World) -> None:
    """Though the file says that changes are for all: nobody knows whether it has changed."""
    await world.controller.policy_switch.change(STATIC, settings(world, "same", apply_all=True))
    first, second = await world.run(owner("first")), await world.run(owner("second"))
    await world.kubelet.stop(first)
    await world.stop_criproxy()
    for part in (tmp_path / "state").glob("criproxy.db*"):
        part.unlink()
    world.use(configuration="same", apply_all=True)

    await world.start_criproxy()

    await world.until(lambda: world.controller.node.configuration == "same")
    assert world.cpus(second) == "2"
    assert world.owned() == {2}


async def test_others_containers_are_taken_in_as_soon_as_the_file_says_so(tmp_path: Path) -> None:
    """From watch to pin, without waiting for the next comparison."""
    async with World(tmp_path, settings=replace(FAST, adopt=Adopt.WATCH)) as world:
        foreign = await MiniKubelet(world.direct).run_pod(sharer("foreign"))
        world.controller.runtime_lost()
        await world.until(lambda: bool(world.controller.node.watched_cpus))

        await world.controller.policy_switch.change(STATIC, replace(settings(world, "pin"), adopt=Adopt.PIN))

        await world.until(lambda: foreign[1]["main"] in world.controller.node.grants)


async def test_a_release_with_the_runtime_away_says_what_is_left(world: World) -> None:
    """It goes on when the runtime is back."""
    first = await world.run(owner("first"))
    await world.runtime.stop()

    answer = await world.controller.policy_switch.release("somebody asked")

    (row,) = answer["containers"]
    assert (row["outcome"], row["cpus_before"], row["cpus"]) == ("left", "1", "1")
    assert row["error"].startswith("no runtime listens on ")
    await world.runtime.start()
    await world.until(lambda: not world.controller.node.grants)
    assert world.cpus(first) == "0-3"


async def test_a_release_with_the_policy_none_unpins_what_is_left_from_before(world: World) -> None:
    """Places of an earlier policy, and whoever came since."""
    first = await world.run(owner("first"))
    await world.stop_criproxy()
    world.use(NONE)
    await world.start_criproxy()
    assert world.cpus(first) == "1"

    answer = await world.controller.policy_switch.release("somebody asked")

    assert [row["outcome"] for row in answer["containers"]] == ["released"]
    assert world.cpus(first) == "0-3"
    with pytest.raises(UsageError, match="the policy is none"):
        await world.controller.policy_switch.undo()


async def test_a_release_while_containers_start(tmp_path: Path) -> None:
    """A create that was under way is let go, too."""
    slow = RuntimeOptions(latency_s={"CreateContainer": 0.3})
    async with World(tmp_path, slow) as world:
        running = asyncio.create_task(world.run(owner("first")))
        await world.until(lambda: bool(world.controller.node.grants))

        answer = await world.controller.policy_switch.release("somebody asked")

        assert [row["outcome"] for row in answer["containers"]] == ["released"]
        assert world.cpus(await running) == "0-3"


async def test_a_release_on_its_way_to_the_disk_is_not_ended_by_the_start(tmp_path: Path) -> None:
    """A start that finds another configuration than before it goes on with that, unless somebody was quicker."""
    disk = SlowDisk(tmp_path / "state")
    disk.answers.clear()
    world = World(tmp_path, settings=replace(FAST, configuration="new"))
    world.make_store = lambda: disk
    async with world:
        releasing = asyncio.create_task(world.controller.policy_switch.release("somebody asked"))
        await world.poll(lambda: world.controller.policy_switch.resync.is_ready)
        await asyncio.sleep(0)
        disk.answers.set()
        await releasing
        await world.controller.context.state.settled()

        assert world.controller.node.released == "somebody asked"
        assert world.controller.node.configuration == "new"


async def test_placing_begins_though_an_earlier_change_is_still_being_stored(tmp_path: Path) -> None:
    """That of the start, under the policy none, ends while we find out what runs: calls are held all the same."""
    disk = SlowDisk(tmp_path / "state")
    disk.answers.clear()
    world = World(tmp_path, settings=replace(FAST, configuration="new"), policy=NONE)
    world.make_store = lambda: disk
    async with world:
        changing = asyncio.create_task(change(world, STATIC, "static"))
        await world.poll(lambda: world.controller.policy_switch.resync.is_ready)
        disk.answers.set()
        await changing

        owned = await world.run(owner("owner"))
        await world.until(lambda: bool(world.owned()))
        assert world.cpus(owned) == "1"


async def test_placing_goes_on_though_the_last_one_leaves_under_none_meanwhile(tmp_path: Path, world: World) -> None:
    """The place of the last one is given up while the change from none is on its way to the disk."""
    await world.stop_criproxy()
    disk = SlowDisk(tmp_path / "state")
    world.make_store = lambda: disk
    await world.start_criproxy()
    last = await world.at_rest(owner("last"))
    await change(world, NONE, "none")
    disk.answers.clear()
    stopping = asyncio.create_task(world.kubelet.stop(last))
    await world.until(lambda: world.controller.node.containers[last].state is ContainerState.EXITED)
    changing = asyncio.create_task(change(world, STATIC, "static"))
    await asyncio.sleep(0)
    disk.answers.set()
    await asyncio.gather(stopping, changing)

    assert world.cpus(await world.run(owner("next"))) == "1"


@pytest.mark.parametrize("full_before", ["release", "undo"])
async def test_nobody_owns_what_cannot_be_stored_when_a_release_is_undone(
    tmp_path: Path, disk: Path, full_before: str
) -> None:
    """All share and --check names who should own CPUs; each has them, over a restart too, once there is room again."""
    async with World(tmp_path, settings=QUICK) as world:
        first, shared = await world.run(owner("first", 2)), await world.run(sharer("shared"))
        if full_before == "release":
            fill(disk)
        await world.controller.policy_switch.release("for the test")
        if full_before == "undo":
            fill(disk)
        answer = await world.controller.policy_switch.undo()
        assert "disk is full" in answer["not_remembered"]
        assert not answer["released"]
        assert world.owned() == frozenset()
        assert [
            text
            for text in wrong(world)
            if text.startswith("default/first/main should have 2 exclusive CPUs, but has shared CPUs")
        ]

        free(disk)
        await back(world)
        await until_cpus(world, first, "1-2")
        await until_cpus(world, shared, "0,3")
        await world.poll(lambda: wrong(world) == [])
        await world.restart()
        assert world.owned() == {1, 2}
