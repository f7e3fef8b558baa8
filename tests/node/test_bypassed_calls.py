"""Failures of ours that repeat: nobody lands on CPUs with an owner, before, during and after the bypass."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.node.bypass import FAILURES, HANGS, Bypass, BypassMode
from criproxy.node.calls.create import Creates
from criproxy.node.calls.start import Starts
from criproxy.node.in_flight import InFlight, StartEvent
from criproxy.node.settings import OnError, Promote, Settings
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticPolicy
from lab.emulator.runtime import RuntimeOptions
from tests.node.failing import plant_failure
from tests.node.reconcile.test_trouble import overlaps
from tests.node.world import FAST, NO_LOOKS, STATIC, Slow, World, owner, refusal, said, sharer


class Fragile(StaticPolicy):
    """A policy that raises while it is broken."""

    broken = False

    def place(self, node: Node, container: Container) -> Change:
        """Fail, or place."""
        if self.broken:
            raise ZeroDivisionError
        return super().place(node, container)

    def release(self, node: Node, left: Grant) -> Change:
        """Fail, or release."""
        if self.broken:
            raise LookupError(left)
        return super().release(node, left)


class Placing(World):
    """A world whose bypass is connected as the daemon connects it, and whose policy may break."""

    def __init__(
        self,
        directory: Path,
        settings: Settings = FAST,
        options: RuntimeOptions | None = None,
        policy: Policy | None = None,
        topology: Topology | None = None,
    ) -> None:
        self.fragile = Fragile(STATIC.options)
        super().__init__(directory, options, settings, policy or self.fragile, topology)

    async def start_criproxy(self) -> None:
        """Connect the bypass, too."""
        await super().start_criproxy()
        self.bypass = Bypass([self.proxy], self.controller.bypass)
        self.proxy.on_error = self.bypass.watch(self.controller.fallback.on_error)

    async def stop_criproxy(self) -> None:
        """End the bypass's timer first."""
        self.bypass.close()
        await super().stop_criproxy()


def give_up_after(world: World, limit_s: float) -> None:
    """Handlers of later calls are given up then; those of calls before take as long as a slow disk makes them."""
    in_force = world.controller.context.in_force
    in_force.settings = replace(in_force.settings, handler_timeout_s=limit_s, bypass_timeout_s=limit_s)
    world.controller.policy_switch.changed()


async def test_a_broken_policy_engages_the_bypass_and_owners_stay_alone(tmp_path: Path) -> None:
    """Newcomers share, owners that end give their CPUs back, and all is placed again once the policy works."""
    async with Placing(tmp_path, replace(FAST, promote=Promote.OFF)) as world:
        owned = await world.run(owner("owner", 2))
        world.fragile.broken = True
        newcomers = [await world.run(owner(f"n{number}", 1)) for number in range(FAILURES + 3)]
        assert world.bypass.mode is BypassMode.AUTOMATIC
        assert {world.cpus(key) for key in newcomers} == {"0,3"}
        assert world.cpus(owned) == "1-2"
        await world.kubelet.stop(owned)
        await world.until(lambda: not world.owned())

        world.fragile.broken = False
        world.bypass.set(BypassMode.OFF, "mended")

        assert world.cpus(await world.run(owner("late", 2))) == "1-2"
        assert not overlaps(world)
        await world.until(lambda: {world.cpus(key) for key in newcomers} == {"0,3"})


async def test_in_bypass_nothing_but_the_message_is_needed(tmp_path: Path) -> None:
    """A create goes on although neither the runtime answers questions nor the policy; a resize keeps the place."""
    async with Placing(tmp_path) as world:
        owned = await world.run(owner("owner", 2))
        world.fragile.broken = True
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        _, second = await world.created(owner("second", 1))
        await world.kubelet.start(second)
        assert (world.cpus(owned), world.cpus(second)) == ("1-2", "0,3")

        resize = api.LinuxContainerResources(cpu_shares=1024, cpu_quota=100_000, cpu_period=100_000)
        await world.client.update_container_resources(owned, resize)

        assert world.cpus(owned) == "1-2"
        assert "call not handled" not in world.log.events()


async def test_the_history_says_how_long_a_container_ran_without_a_place(tmp_path: Path) -> None:
    """When it gets its place, its entry says since when it had none."""
    async with Placing(tmp_path) as world:
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        before_s = time.time()
        _, key = await world.created(owner("late", 1))
        await world.kubelet.start(key)
        after_s = time.time()

        world.bypass.set(BypassMode.OFF, "mended")
        await world.until(lambda: world.controller.node.containers[key].missed is None)

        state = world.controller.context.state
        (fact,) = [each.facts for each in await state.find_history(key) if "unplaced_since_s" in each.facts]
        assert before_s <= float(str(fact["unplaced_since_s"])) <= after_s
        assert fact["cpus"] == "1"


@pytest.mark.parametrize("on_error", OnError)
async def test_a_handler_that_hangs_is_given_up(tmp_path: Path, on_error: OnError) -> None:
    """After the limit the create goes on or is refused, its reservation is undone, and nobody is on owned CPUs."""
    async with Placing(tmp_path, replace(FAST, on_error=on_error)) as world:
        owned = await world.run(owner("owner", 2))
        released = asyncio.Event()
        world.controller.handlers.creates.outcomes = Hanging(released)  # type: ignore[assignment]
        pod = owner("owner", 2)
        sandbox_id = next(iter(world.controller.node.pods))
        late = replace(pod, containers=(*pod.containers, replace(owner("owner", 1).containers[0], name="late")))
        give_up_after(world, 0.3)
        if on_error is OnError.REFUSE:
            with pytest.raises(RuntimeCallError, match=r"did not finish CreateContainer within 0\.3 s") as caught:
                await world.kubelet.create(late, sandbox_id, late.containers[1])
            assert caught.value.code is StatusCode.UNAVAILABLE
            assert set(world.controller.node.containers) == {owned}
        else:
            created = await world.kubelet.create(late, sandbox_id, late.containers[1])
            give_up_after(world, FAST.handler_timeout_s)
            await world.kubelet.start(created)
            assert not world.cpus(created) or set(world.cpus(created).split(",")) <= {"0", "3"}
        assert world.cpus(owned) == "1-2"
        assert not overlaps(world)
        released.set()


async def test_a_start_at_which_we_failed_goes_on_only_where_nothing_has_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that is where it belongs starts; one whose CPUs another must leave first is refused till then."""
    stuck = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with Placing(tmp_path, options=stuck) as world:
        shared = await world.run(sharer("shared"))
        plant_failure(monkeypatch, Starts, "_wait_for_cpus")
        _, owned = await world.created(owner("owner", 2))

        caught = await refusal(world.kubelet.start(owned), "criproxy failed; its log has the cause")
        assert caught.code is StatusCode.UNAVAILABLE

        world.runtime.exit_container(shared)
        await world.kubelet.stop(shared)
        await world.kubelet.start(owned)
        await world.until(lambda: world.controller.node.containers[owned].state is ContainerState.RUNNING)
        assert world.cpus(owned) == "1-2"
        late = await world.run(sharer("late"))
        assert world.cpus(late) == "0,3"


async def test_an_end_that_cannot_be_booked_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours after a call loses nothing: the runtime tells what became of it."""
    async with Placing(tmp_path) as world:
        plant_failure(monkeypatch, Creates, "done", 1)
        _, owned = await world.created(owner("owner", 2))

        await world.until(lambda: world.controller.node.grants.keys() == {owned})
        assert world.owned() == {1, 2}


class Hanging:
    """Questions to the runtime that are never answered."""

    def __init__(self, released: asyncio.Event) -> None:
        self._released = released

    async def release_exited(self, sandbox_id: str = "") -> None:
        """Hang."""
        await self._released.wait()


async def test_handlers_that_hang_engage_the_bypass(tmp_path: Path) -> None:
    """After three of them creates go on at once, next to an owner that stays alone."""
    async with Placing(tmp_path) as world:
        owned = await world.run(owner("owner", 2))
        sandbox_id = next(iter(world.controller.node.pods))
        world.controller.handlers.creates.outcomes = Hanging(asyncio.Event())  # type: ignore[assignment]
        spec = owner("owner", 1).containers[0]

        async def create(name: str) -> str:
            late = replace(owner("owner", 1), containers=(replace(spec, name=name),))
            return await world.kubelet.create(late, sandbox_id, late.containers[0])

        give_up_after(world, 0.3)
        await asyncio.gather(*(create(f"hangs{number}") for number in range(HANGS)))
        assert world.bypass.mode is BypassMode.AUTOMATIC

        give_up_after(world, 3600.0)  # one that hangs from here on outlasts the test
        created = await create("late")
        await world.kubelet.start(created)
        assert (world.cpus(owned), world.cpus(created)) == ("1-2", "0,3")


async def test_what_passed_unseen_is_known_before_the_next_owner(tmp_path: Path) -> None:
    """A container made during an ordered bypass runs anywhere; afterwards it shares, and owners are alone again."""
    async with Placing(tmp_path) as world:
        world.bypass.set(BypassMode.ORDERED, "for the test")
        running = await world.run(sharer("running"))
        _, made = await world.created(sharer("made"))
        assert world.cpus(running) == "0-3"

        world.bypass.set(BypassMode.OFF, "done")
        owned = await world.run(owner("owner", 2))
        assert not overlaps(world)
        await world.kubelet.start(made)

        assert (world.cpus(owned), world.cpus(running), world.cpus(made)) == ("1-2", "0,3", "0,3")


async def test_a_start_that_passed_unseen_holds_up_who_gets_its_cpus(tmp_path: Path, slow: Slow) -> None:
    """It may go on when the bypass ends: an update that meets it is lost, and its container comes up where it was."""
    options = RuntimeOptions(latency_s=slow, missing=frozenset({"GetContainerEvents"}))
    deaf = replace(FAST, unknown_pause_s=5.0, exit_list_s=3600.0, drift_period_s=3600.0)
    async with Placing(tmp_path, deaf, options) as world:
        _, starts = await world.created(sharer("starts"))
        world.bypass.set(BypassMode.ORDERED, "for the test")
        slow["StartContainer"] = 1.0
        starting = asyncio.create_task(world.kubelet.start(starts))
        await slow.asked.wait()
        world.bypass.set(BypassMode.OFF, "done")
        await world.poll(lambda: world.controller.ready)
        del slow["StartContainer"]

        owned = await world.run(owner("owner", 3))

        assert starting.done()
        assert (world.cpus(owned), world.cpus(starts)) == ("1-3", "0")
        await starting


async def test_lists_from_during_the_bypass_say_nothing_of_what_came_after_them(tmp_path: Path) -> None:
    """A comparison that is under way when the bypass ends does not make the node known: the next one does."""
    slow = Slow(ContainerStatus=0.3)
    # The comparison that the test asks for is the first one that sees the container.
    async with Placing(tmp_path, NO_LOOKS, RuntimeOptions(latency_s=slow)) as world:
        await world.poll(lambda: world.controller.ready)
        world.bypass.set(BypassMode.ORDERED, "for the test")
        await world.run(sharer("listed"))
        slow.asked.clear()
        world.controller.runtime_lost()
        await slow.asked.wait()  # the lists are in, and it asks about the one that is new
        running = await world.run(sharer("unseen"))

        world.bypass.set(BypassMode.OFF, "done")
        owned = await world.run(owner("owner", 2))

        assert not overlaps(world)
        assert (world.cpus(owned), world.cpus(running)) == ("1-2", "0,3")


async def test_a_passed_create_gets_its_cpus_before_it_starts(tmp_path: Path) -> None:
    """With onError pass a container is created as the kubelet sent it, and taken in before its start."""
    slow = RuntimeOptions(latency_s={"ListContainers": 0.1})
    async with Placing(tmp_path, replace(FAST, on_error=OnError.PASS), slow) as world:
        owned = await world.run(owner("owner", 2))
        world.fragile.broken = True
        passed = await world.run(sharer("passed"))

        assert (world.cpus(owned), world.cpus(passed)) == ("1-2", "0,3")


async def test_a_failure_of_what_handles_failures_counts_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each create is refused in our words and gives its place back; `--check` names both causes, and bypass comes."""
    async with Placing(tmp_path) as world:
        await world.run(owner("owner", 2))
        world.fragile.broken = True
        with monkeypatch.context() as patched:
            plant_failure(patched, Creates, "without_place")
            for number in range(FAILURES):
                with pytest.raises(RuntimeCallError, match="the policy failed; criproxy's log has the cause") as caught:
                    await world.run(owner(f"n{number}", 1))
                assert caught.value.code is StatusCode.UNAVAILABLE

        assert world.bypass.mode is BypassMode.AUTOMATIC
        assert len(world.controller.node.containers) == 1
        assert world.counters.fallbacks == {"refuse": FAILURES}
        assert world.counters.refusals == {"UNAVAILABLE": FAILURES}
        assert any("planted" in text for text in said(world, "default/n9/main"))
        assert said(world, "ZeroDivisionError")
        assert world.cpus(await world.run(owner("late", 1))) == "0,3"


async def test_a_start_at_which_its_fallback_fails_frees_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may start it again."""
    async with Placing(tmp_path) as world:
        _, owned = await world.created(owner("owner", 2))
        await world.rested()
        failed = plant_failure(monkeypatch, InFlight, "start", 2, when=lambda *given: StartEvent.SEND in given)
        await refusal(world.kubelet.start(owned), "criproxy failed; its log has the cause")

        assert len(failed) == 2
        await world.kubelet.start(owned)
        assert world.cpus(owned) == "1-2"
