"""``criproxy explain``: the story of one container, from the daemon or from what it left on disk."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console

from criproxy.cli.queries.explain import render
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from tests.asking import LIMIT_S, NAMED, daemon, run
from tests.node.world import World, owner, refusal, sharer


async def explain(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await run(directory, "explain", *arguments)


async def test_the_story_of_one_that_was_moved(tmp_path: Path) -> None:
    """Where it is, what it asked for, why it is there, and what happened, line by line."""
    async with daemon(tmp_path) as world:
        web = await world.run(sharer("web"))
        await world.run(owner("trader", 2))
        await world.until(lambda: world.controller.node.applied[web].cpus == frozenset({0, 3}))

        result = await explain(tmp_path, web[:8])

    said = result.output.splitlines()
    assert not any(line.endswith(" ") for line in said)
    assert result.exit_code == 0
    assert said[:5] == [
        "default/web/main",
        f"ID {web}",
        "Running, Burstable",
        "Size in force: CPU 100m/-, memory limit -",
        "Runs on CPUs 0,3, shared, memory of NUMA node 0",
    ]
    assert "  CPU request 100m, from cpu_shares 102" in said
    assert "  default/web/main shares CPUs 0-3: its pod is Burstable" in said
    assert "  then CPUs 0-3 → 0,3, because default/trader/main was created; read back" in said
    kinds = [line.split()[1] for line in said if line[4:5] and line[4] == ":"]
    assert kinds == ["asked", "granted", "created", "started", "updated"]


async def test_a_refusal_is_told_by_name(tmp_path: Path) -> None:
    """The sentence that the kubelet got, and what was asked for, at the last try; the others are counted."""
    async with daemon(tmp_path) as world:
        pod = owner("greedy", 4)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        told = [await refusal(world.kubelet.create(pod, sandbox_id, pod.containers[0])) for _ in range(4)]
        result = await explain(tmp_path, "default/greedy/main")

    assert "It was refused, and never had an ID" in result.output
    assert "Why it was refused" in result.output
    assert told[-1].details in result.output
    assert "CPU limit 4, from cpu_quota 400000 µs of 100000 µs" in result.output
    assert "  (no ID)       refused: container default/greedy/main asks for 4 exclusive CPUs" in result.output
    assert result.output.count(" (3 times since 20") == 1


async def test_one_that_ended_is_told_without_a_daemon(tmp_path: Path) -> None:
    """The history is on disk, and says whom it is about and since when the daemon is away."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        trader = await world.run(owner("trader", 2))
        await world.client.update_container_resources(trader, api.LinuxContainerResources(cpu_shares=1024))
        await world.kubelet.remove_pod(world.controller.node.containers[trader].pod)
        await world.stop_criproxy()

        by_name, by_id = await explain(tmp_path, "default/trader/main"), await explain(tmp_path, trader)
        await world.start_criproxy()

    assert by_name.exit_code == by_id.exit_code == 0
    assert by_name.output == by_id.output
    assert "no criproxy daemon listens on" in by_name.output
    assert "It no longer exists" in by_name.output
    assert "Why it ran there" in by_name.output
    assert "the kubelet resizes it; CPU request 1, from cpu_shares 1024" in by_name.output
    assert "it ended: its exclusive CPU" in by_name.output


@pytest.mark.parametrize("down", [False, True])
async def test_nobody_or_many(tmp_path: Path, down: bool) -> None:
    """Exit status 1 and the candidates, whoever is asked."""
    async with daemon(tmp_path) as world:
        ids = [await world.run(sharer(f"web-{number}")) for number in range(17)]
        first = {each[0] for each in ids}
        twice = next(letter for letter in first if sum(each.startswith(letter) for each in ids) > 1)
        await world.rested()
        if down:
            (tmp_path / "control.sock").rename(tmp_path / "elsewhere")

        nobody, many = await explain(tmp_path, "web-1"), await explain(tmp_path, twice)

    assert (nobody.exit_code, many.exit_code) == (1, 1)
    assert "criproxy knows no container 'web-1'; did you mean default/web-1/main, default/web-10/main" in nobody.output
    assert f"{twice!r} is the beginning of" in many.output
    assert "give more of the ID" in many.output


async def test_a_story_fits_a_narrow_terminal(tmp_path: Path) -> None:
    """At 80 columns nothing is cut off, whatever the length of the sentences."""
    async with daemon(tmp_path) as world:
        trader = await world.run(owner("trader", 1))
        values = json.loads((await explain(tmp_path, trader, "--format", "json")).output)

    screen = Console(width=80, highlight=False)
    with screen.capture() as captured:
        screen.print(render(values))
    assert max(map(len, captured.get().splitlines())) <= 80
    assert trader in captured.get()
    assert "…" not in captured.get()


TOPOLOGY_AWARE = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))


async def test_what_a_place_was_chosen_from_is_a_table(tmp_path: Path) -> None:
    """Also for one that has ended, from what is on disk, after kill and restart."""
    async with daemon(tmp_path, TOPOLOGY_AWARE) as world:
        trader = await world.run(owner("trader", 2))
        by_daemon = await explain(tmp_path, trader)
        await world.kubelet.remove_pod(world.controller.node.containers[trader].pod)
        await world.stop_criproxy()
        (tmp_path / "control.sock").rename(tmp_path / "elsewhere")
        by_store = await explain(tmp_path, "default/trader/main")
        await world.start_criproxy()

    for said in (by_daemon.output, by_store.output):
        assert "\nHow the pools compared when it was placed, at " in said
        assert "\n  the machine  chosen\n" in said


async def test_who_would_have_to_leave_is_listed(tmp_path: Path) -> None:
    """With what each pool lacks; and it is true: after that the container fits."""
    async with daemon(tmp_path, TOPOLOGY_AWARE) as world:
        trader, pod = await world.run(owner("trader", 2)), owner("greedy", 3)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        with pytest.raises(RuntimeCallError):
            await world.kubelet.create(pod, sandbox_id, pod.containers[0])
        result = await explain(tmp_path, "default/greedy/main")
        (choice,) = json.loads((await explain(tmp_path, "default/greedy/main", "--format", "json")).output)["choices"]
        await world.kubelet.remove_pod(world.controller.node.containers[trader].pod)
        await world.kubelet.create(pod, sandbox_id, pod.containers[0])

    assert "\n  the machine  lacks 2 CPUs\n" in result.output
    assert "  default/trader/main\n  it would fit without this container; no shorter list makes room\n" in result.output
    assert choice["decision"] == "refused"
    assert choice["candidates"]["rows"][0]["lacks"] == "2 CPUs"
    assert choice["leavers"]["containers"] == ["default/trader/main"]
    assert choice["leavers"]["shortest"]
