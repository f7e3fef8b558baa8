"""Whatever comes and goes, balloons keep apart, have the sizes that they should, and follow from the grants alone."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.machine.topology import Topology
from criproxy.placement.policies.balloons import BalloonsOptions, BalloonsPolicy
from lab.properties.balloons import balloon_options
from lab.properties.machines import machines
from tests.placement.policies.balloons_world import World

SIZES = st.sampled_from([0, 2, 100, 900, 1000, 1500, 2000, 4000])
EVENTS = st.lists(
    st.tuples(st.sampled_from(["come", "come", "come", "go", "resize"]), st.integers(0, 9), SIZES), max_size=25
)


@st.composite
def lives(draw: st.DrawFn) -> tuple[Topology, dict[str, Any], list[tuple[str, int, int]]]:
    """A machine, balloon types, and what happens."""
    topology = draw(machines())
    return topology, draw(balloon_options(topology)), draw(EVENTS)


def happens(world: World, event: tuple[str, int, int], there: set[str]) -> None:
    """Let a container come, go or be resized."""
    what, number, milli = event
    name = f"c{number}"
    match what:
        case "come" if name not in there:
            types = [kind.name for kind in world.policy.options.balloon_types]
            chosen = {"balloon.balloons.criproxy.io": types[milli % len(types)]} if types and number % 2 else {}
            labels = {"app": f"app{number % 3}"}
            hints = (frozenset({min(world.topology.node_by_id)}),)
            more: dict[str, Any] = {"annotations": chosen, "labels": labels, "hints": hints}
            world.come(name, milli, pod=f"p{number // 3}", namespace=("team", "kube-system")[number % 5 == 0], **more)
            there.add(name)
        case "go" if name in there:
            there.remove(name)
            world.go(name)
        case "resize" if name in there:
            world.resize(name, milli)


@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(lives())
def test_balloons_keep_apart(life: tuple[Topology, dict[str, Any], list[tuple[str, int, int]]]) -> None:
    """No CPU is in two balloons, lent ones are idle, sizes suit; another policy object sees the same balloons."""
    topology, options, events = life
    world, there = World(topology, options), set[str]()
    for event in events:
        try:
            happens(world, event, there)
        except Refused:
            continue
        seen = world.balloons()
        world.policy = BalloonsPolicy(BalloonsOptions.model_validate(options))
        assert world.balloons() == seen
