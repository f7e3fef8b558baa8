"""Containers that own CPUs which the policy file reserves only since it was changed for newcomers."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant
from criproxy.policy.static import StaticOptions, StaticPolicy
from criproxy.views.status import Situation, problems, summary
from tests.control.world import World, owner

RESERVING_TWO = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0-1"}))
LATER = "default/first/main has exclusive CPU 1, which the policy file reserves now; apply: all moves it"


def notices(situation: Situation) -> list[tuple[bool, str]]:
    """Those about such containers: whether wrong, and the text."""
    found = summary(situation)["notices"]
    return [(each["wrong"], each["text"]) for each in found if each["kind"] == "reserved-later"]


async def reserve(world: World, *, apply_all: bool = False) -> None:
    """CPU 1 is reserved from now on, too."""
    settings = replace(world.controller.settings, configuration="two", apply_all=apply_all)
    await world.controller.modes.change(RESERVING_TWO, settings)


async def test_an_owner_from_before_is_a_note(tmp_path: Path) -> None:
    """Somebody has chosen that who is here stays: nothing is wrong."""
    async with World(tmp_path) as world:
        await world.run(owner("first"))
        await reserve(world)
        situation = world.controller.situation()

        assert problems(situation)["problems"] == []
        assert notices(situation) == [(False, LATER)]


async def test_it_is_a_note_after_a_restart_too(tmp_path: Path) -> None:
    """Who owned them when criproxy began did so before."""
    async with World(tmp_path) as world:
        await world.run(owner("first"))
        await reserve(world)
        await world.stop_criproxy()
        world.use(RESERVING_TWO, configuration="two")
        await world.start_criproxy()
        await world.until(lambda: world.controller.ready)
        situation = world.controller.situation()

        assert problems(situation)["problems"] == []
        assert notices(situation) == [(False, LATER)]


async def test_with_apply_all_nobody_is_left_there(tmp_path: Path) -> None:
    """Everybody is placed anew, so that there is nothing to tell."""
    async with World(tmp_path) as world:
        await world.run(owner("first"))
        await reserve(world, apply_all=True)
        situation = world.controller.situation()

        assert problems(situation)["problems"] == []
        assert notices(situation) == []


@pytest.mark.parametrize("cpus", ["1", "1-2"])
async def test_whoever_got_them_since_is_a_mistake(tmp_path: Path, cpus: str) -> None:
    """Only what was owned before counts as such: the same CPUs of another pod are a violation."""
    async with World(tmp_path) as world:
        await world.run(owner("first"))
        situation = world.controller.situation()
        (key,) = situation.node.grants
        owned = Grant(parse_cpuset(cpus), frozenset({0}), exclusive=parse_cpuset(cpus))
        node = situation.node.replace(grants={key: owned}, applied={})
        situation = replace(situation, node=node, reserved=parse_cpuset("0-2"))

        assert f"default/first/main has exclusive use of reserved CPUs {cpus}" in problems(situation)["problems"]
        earlier = {situation.node.containers[key].pod: parse_cpuset("1")}
        late = problems(replace(situation, reserved_later=earlier))["problems"]
        assert ("default/first/main has exclusive use of reserved CPUs 2" in late) is (cpus == "1-2")
        assert not any("reserved CPUs 1" in text for text in late)
