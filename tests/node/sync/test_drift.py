"""Cpusets that somebody else writes are found and put back, and nobody is blamed for what the machine did."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from time import monotonic

import pytest

from criproxy.api.views.status_check import find
from criproxy.cri import api_pb2 as api
from criproxy.host.cgroup import ContainerGroup
from criproxy.model.controls import Controls
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied, CpuQuota, Grant
from criproxy.node.sync.drift import Compared, Drift, as_applied
from criproxy.placement.events import PolicyChanged
from tests.node.configuration.test_policy_switch import Slow as SlowPolicy
from tests.node.reconcile.test_promotion import wrong
from tests.node.world import FAST, STATIC, World, owner, sharer, situation

LIMIT_S = 60.0
WATCHFUL = replace(FAST, drift_period_s=0.05)
FOUND = "another program changed the cpuset of a container"


async def change(world: World, container_id: str, cpus: str) -> None:
    """Set a cpuset beside criproxy."""
    await world.direct.update_container_resources(container_id, api.LinuxContainerResources(cpuset_cpus=cpus))


async def known(world: World, *container_ids: str) -> None:
    """Wait until criproxy knows these cgroups and is at none of them: a look that is due finds what is changed next."""
    await world.poll(lambda: world.groups() == set(container_ids))
    await world.rested()


async def test_a_foreign_cpuset_is_found_and_put_back(tmp_path: Path) -> None:
    """It is logged with what was found, and counted."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        shared, owned = await world.run(sharer("shared")), await world.run(owner("owner", 1))
        await known(world, shared, owned)

        await change(world, shared, "0-3")

        await world.poll(lambda: world.cpus(shared) == "0,2-3")
        await world.poll(lambda: world.counters.drift_repaired == 1)
        assert world.counters.drift_found == 1
        (line,) = [keys for event, keys in world.log.lines if event == FOUND]
        assert (line["cpus"], line["instead_of"]) == ("0-3", "0,2-3")


async def test_a_look_that_is_asked_for_during_another_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes after we have read and before that is booked: we read again."""
    monkeypatch.setattr("criproxy.node.record.state.MANY", 0)
    deaf = replace(FAST, drift_period_s=3600.0, exit_list_s=3600.0)
    async with World(tmp_path, settings=deaf) as world:
        shared, owned = await world.run(sharer("shared")), await world.run(owner("owner", 1))
        await known(world, shared, owned)
        context, reconciler = world.controller.context, world.controller.reconciler
        slow = SlowPolicy(STATIC.options)
        context.state.submit(PolicyChanged(apply_all=True), slow)  # what is booked after it has to wait
        assert await asyncio.to_thread(slow.begun.wait, LIMIT_S)

        reconciler.enqueue([shared], read=True)
        await world.poll(lambda: context.locks.busy(shared))
        await asyncio.sleep(0)
        await change(world, shared, "0-3")
        reconciler.enqueue([shared], read=True)
        slow.go_on.set()

        await world.poll(lambda: world.cpus(shared) == "0,2-3")


async def test_a_released_container_that_another_program_restricts_is_reported_and_left_alone(tmp_path: Path) -> None:
    """The check names it, also after a restart, until it may run everywhere again."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        first = await world.run(owner("first", 1))
        await world.controller.policy_switch.release("somebody asked")
        assert wrong(world) == []
        restricted = ["default/first/main may run only on CPU 3: another program has restricted it since the release"]

        await change(world, first, "3")
        await world.poll(lambda: wrong(world) == restricted)
        await world.restart()
        await world.poll(lambda: world.groups() == {first})

        await world.poll(lambda: wrong(world) == restricted)
        assert world.cpus(first) == "3"
        await change(world, first, "0-3")
        await world.poll(lambda: wrong(world) == [])


async def test_what_is_as_it_should_be_is_left_alone(tmp_path: Path) -> None:
    """Comings, goings, moves and resizes of our own are no drift, however often the cgroups are read."""
    async with World(tmp_path, settings=replace(FAST, drift_period_s=0.001)) as world:
        shared = await world.run(sharer("shared"))
        for number in range(8):
            sandbox_id, ids = await world.kubelet.run_pod(owner(f"owner-{number}", 1 + number % 2))
            await world.kubelet.update(ids["main"], api.LinuxContainerResources(cpu_shares=1024 * (2 - number % 2)))
            await world.kubelet.remove_pod(sandbox_id)
        await world.poll(lambda: world.cpus(shared) == "0-3")

        assert world.counters.drift_found == 0


async def test_a_change_again_and_again_is_left_for_a_while_where_it_does_no_harm(tmp_path: Path) -> None:
    """After three times, somebody is named who may be doing it, and the pauses grow."""
    period_s, loop = 0.2, asyncio.get_running_loop()
    async with World(tmp_path, settings=replace(FAST, drift_period_s=period_s)) as world:
        shared = await world.run(sharer("shared"))
        await known(world, shared)
        for number in (1, 2):
            await change(world, shared, "1")
            await world.poll(partial(repaired, world, number))

        begun_s = loop.time()
        await change(world, shared, "1")
        await world.poll(lambda: world.cpus(shared) == "0-3")

        assert loop.time() - begun_s >= period_s
        assert any("CPU manager" in str(keys.get("suspect")) for _, keys in world.log.lines)


async def test_a_container_that_is_left_for_a_while_is_put_back_once_it_does_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU that became exclusive during the pause is not shared until the pause ends."""
    monkeypatch.setattr(Drift, "_note", partialmethod(noted, Drift._note))
    async with World(tmp_path, settings=WATCHFUL) as world:
        shared = await world.run(sharer("shared"))
        await known(world, shared)
        await change(world, shared, "1")
        await world.poll(lambda: world.counters.drift_found == 1)
        await world.run(owner("owner", 1))
        await world.poll(lambda: world.cpus(shared) == "0,2-3")
        await world.rested()

        await change(world, shared, "0-3")

        await world.poll(lambda: world.cpus(shared) == "0,2-3")
        await world.poll(partial(repaired, world, 1))


def noted(self: Drift, original: Callable[..., float], *args: object) -> float:
    """A pause that outlasts the test, where no harm is done."""
    original(self, *args)
    return 1000 * LIMIT_S if len(self.context.state.node.grants) == 1 else 0.0


async def test_an_owners_cpus_are_put_back_every_time(tmp_path: Path) -> None:
    """Exclusive CPUs are worth every update, however often somebody takes them."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        owned = await world.run(owner("owner", 1))
        await known(world, owned)
        for number in range(6):
            await change(world, owned, "0-3")
            await world.poll(lambda: world.cpus(owned) == "1")
            await world.poll(partial(repaired, world, number + 1))


def repaired(world: World, times: int) -> bool:
    """Whether so many foreign changes were put back."""
    return world.counters.drift_repaired == times


def group_of(root: Path, sets: dict[str, str], *, unified: bool) -> ContainerGroup:
    """A cgroup with CPUs by suffix of the file."""
    group = ContainerGroup(str(root), "k", unified=unified)
    Path(group.path).mkdir(parents=True)
    for end, cpus in sets.items():
        Path(group.path, f"cpuset.cpus{end}").write_text(cpus)
        Path(group.path, f"cpuset.mems{end}").write_text("0")
    return group


@pytest.mark.parametrize(
    ("unified", "sets", "expected"),
    [
        pytest.param(False, {"": "1-2"}, True, id="v1"),
        pytest.param(False, {"": "1"}, False, id="v1-other"),
        pytest.param(True, {"": "1-2", ".effective": "1-2"}, True, id="v2"),
        pytest.param(True, {"": "1-2", ".effective": "1"}, True, id="v2-parent-shrank"),
        pytest.param(True, {"": "", ".effective": "1-2"}, True, id="v2-inherited"),
        pytest.param(True, {"": "", ".effective": "0-3"}, False, id="v2-emptied"),
        pytest.param(True, {"": "3", ".effective": "3"}, False, id="v2-other"),
        pytest.param(False, {}, False, id="gone"),
    ],
)
def test_a_container_has_what_was_applied(tmp_path: Path, unified: bool, sets: dict[str, str], expected: bool) -> None:
    """With cgroup v2 its own setting counts, too: the cgroups above may allow less."""
    cpus, mems = parse_cpuset("1-2"), parse_cpuset("0")
    group = group_of(tmp_path, sets, unified=unified)

    assert as_applied(group, Grant(cpus, mems), Applied(cpus, mems)) is expected


@pytest.mark.parametrize("quota", CpuQuota)
def test_the_file_of_a_class_of_which_nothing_is_known_is_not_as_applied(tmp_path: Path, quota: CpuQuota) -> None:
    """As after a restart, and after a release: however many attributes the grant requires."""
    cpus, mems = parse_cpuset("1-2"), parse_cpuset("0")
    group = group_of(tmp_path, {"": "1-2", ".effective": "1-2"}, unified=True)
    Path(group.path, "cpu.max").write_text("max 100000" if quota is CpuQuota.LIFTED else "20000 100000")
    Path(group.path, "cpu.max.burst").write_text("0")
    grant = Grant(cpus, mems, quota=quota, controls=Controls(values=(("cpu.max.burst", "20000"),)))
    applied = Applied(cpus, mems, lifted=quota is CpuQuota.LIFTED)

    assert as_applied(group, grant, applied) is False
    assert as_applied(group, grant, replace(applied, cpu_max_burst="0")) is True


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("had", ["1-2", "1"])
@pytest.mark.parametrize("has", ["3", "1", ""])
def test_what_was_as_applied_is_read_again_when_a_file_is_another_one(
    tmp_path: Path, unified: bool, had: str, has: str
) -> None:
    """Also where with cgroup v2 the parent allows less, so that only what was written is another one."""
    cpus, mems, compared = parse_cpuset("1-2"), parse_cpuset("0"), Compared()
    group = group_of(tmp_path, {"": "1-2", ".effective": had}, unified=unified)
    state = group, Grant(cpus, mems), Applied(cpus, mems)
    assert [compared.as_applied("k", *state) for _ in range(2)] == [True, True]

    Path(group.path, "cpuset.cpus").write_text(has)
    if had != "1":
        Path(group.path, "cpuset.cpus.effective").write_text(has)
    assert compared.as_applied("k", *state) is False
    assert compared.as_applied("k", group, state[1], Applied(parse_cpuset("3"), mems)) is (has == "3")

    Path(group.path, "cpuset.mems").unlink()
    Path(group.path, "cpuset.mems.effective").unlink()
    assert compared.as_applied("k", *state) is False


def told(world: World, kind: str) -> list[str]:
    """What `status --check` says of that kind."""
    return [each.text for each in find(situation(world.controller)).problems if each.kind == kind]


async def test_a_fight_for_a_cpuset_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fourth change within a minute on, until there was none for a minute."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        owned = await world.run(owner("owner", 1))
        await known(world, owned)
        for number in range(4):
            assert told(world, "drift") == []
            await change(world, owned, "0-3")
            await world.poll(partial(repaired, world, number + 1))

        (text,) = told(world, "drift")
        monkeypatch.setattr("criproxy.api.notices.monotonic", lambda: monotonic() + 61.0)
        calm = told(world, "drift")

    assert text.startswith("another program changes the cpuset of default/owner/main again and again")
    assert calm == []


async def test_a_fight_that_does_no_harm_stays_a_problem_between_rarer_corrections(tmp_path: Path) -> None:
    """The container is left alone for a while, and that is said all that time."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        shared = await world.run(sharer("shared"))
        begun_s = 0.0
        for _ in range(5):
            await known(world, shared)  # else the end of the last correction may correct this change, and not count it
            begun_s = monotonic()
            await change(world, shared, "1")
            await world.poll(lambda: world.cpus(shared) == "0-3")

        until_s = world.controller.context.cgroups.fights[shared]

    assert until_s >= begun_s + 60.0 + 4 * WATCHFUL.drift_period_s


async def test_a_running_container_whose_cgroup_is_gone_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can see where it runs; one that ends within moments is none."""
    async with World(tmp_path, settings=WATCHFUL) as world:
        shared = await world.run(sharer("shared"))
        await known(world, shared)
        (group,) = (tmp_path / "sys/fs/cgroup/cpuset").rglob(shared)

        away = group.rename(tmp_path / "away")
        await world.poll(lambda: shared in world.controller.context.cgroups.lost)
        early = told(world, "cgroup")
        monkeypatch.setattr("criproxy.api.notices.LOST_S", 0.0)
        late = told(world, "cgroup")
        away.rename(group)
        await world.poll(lambda: not told(world, "cgroup"))

    assert early == []
    assert [text.partition(":")[0] for text in late] == [
        "the runtime reports that default/shared/main is running, but its cgroup is gone"
    ]
