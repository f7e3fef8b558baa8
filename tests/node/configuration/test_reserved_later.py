"""Containers that own CPUs which the policy file reserves only since it was changed for newcomers."""

from dataclasses import replace

import pytest

from criproxy.api.views.situation import Situation
from criproxy.api.views.status import summary
from criproxy.model.cpuset import cpus_text, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from tests.node.world import World, owner, problems, situation

RESERVING_TWO = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0-1"}))
LATER = (
    "default/first/main has exclusive CPU 1, now reserved by the policy file; with 'apply: all', the container moves "
    "to other CPUs"
)


def notices(now: Situation) -> list[tuple[bool, str]]:
    """Those about such containers: whether wrong, and the text."""
    found = summary(now)["notices"]
    return [(each["wrong"], each["text"]) for each in found if each["kind"] == "reserved-later"]


async def reserve(world: World, *, apply_all: bool = False) -> None:
    """CPU 1 is reserved from now on, too."""
    settings = replace(world.controller.context.settings, configuration="two", apply_all=apply_all)
    await world.controller.policy_switch.change(RESERVING_TWO, settings)


@pytest.mark.parametrize("apply_all", [None, False, True], ids=["at-once", "after-a-restart", "which-applies-to-all"])
async def test_an_owner_from_before_is_a_note(world: World, apply_all: bool | None) -> None:
    """Somebody has chosen that who is here stays: nothing is wrong.

    Who owned them when criproxy began did so before; with `apply: all`, it may have come during a try.
    """
    await world.run(owner("first"))
    await reserve(world)
    if apply_all is not None:
        await world.stop_criproxy()
        world.use(RESERVING_TWO, configuration="two", apply_all=apply_all)
        await world.start_known()
    now = situation(world.controller)

    assert problems(now)["problems"] == []
    assert notices(now) == [(False, LATER)]


async def test_with_apply_all_nobody_is_left_there(world: World) -> None:
    """Everybody is placed anew, so that there is nothing to tell."""
    await world.run(owner("first"))
    await reserve(world, apply_all=True)
    now = situation(world.controller)

    assert problems(now)["problems"] == []
    assert notices(now) == []


@pytest.mark.parametrize("cpus", ["1", "1-2"])
async def test_whoever_got_them_since_is_a_mistake(world: World, cpus: str) -> None:
    """Only what was owned before counts as such: the same CPUs of another pod are a violation."""
    await world.run(owner("first"))
    now = situation(world.controller)
    (key,) = now.node.grants
    owned = Grant(parse_cpuset(cpus), frozenset({0}), exclusive=parse_cpuset(cpus))
    node = now.node.replace(grants={key: owned}, applied={})
    now = replace(now, node=node, reserved=parse_cpuset("0-2"))

    assert f"default/first/main has exclusive use of reserved {cpus_text(cpus)}" in problems(now)["problems"]
    earlier = {now.node.containers[key].pod: parse_cpuset("1")}
    late = problems(replace(now, reserved_later=earlier))["problems"]
    assert ("default/first/main has exclusive use of reserved CPU 2" in late) is (cpus == "1-2")
    assert not any("reserved CPU 1" in text or "reserved CPUs 1" in text for text in late)
