"""Release and undo on real containers, with the daemon alive and killed: the cgroups say whether it is true."""

import asyncio
import json
import signal
import sys
from typing import Any

from criproxy.host.machine import discover
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.e2e.scene import ALL, MIB, OWNED, Scene

MEMS = discover().mems


async def run(scene: Scene, name: str, cpu_milli: int) -> str:
    """Run a Guaranteed pod of one container; its id."""
    spec = ContainerSpec("c0", IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=64 * MIB)
    return (await scene.run(PodSpec(name, (spec,))))[1]


async def release(scene: Scene, *arguments: str) -> dict[str, Any]:
    """Call the command; its answer."""
    directory = scene.serve.directory
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "criproxy", "release", "--format", "json"),
        *("--control-socket", str(scene.serve.control), "--state-dir", str(directory / "state")),
        *("--runtime-endpoint", scene.direct.endpoint, *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    answer: dict[str, Any] = json.loads(output)
    return answer


async def test_nobody_stays_pinned(scene: Scene) -> None:
    """Everybody gets what pods may use, newcomers are not placed, and undone everybody is where they were."""
    owner, shared = await run(scene, "owner", 1000), await run(scene, "shared", 500)
    before = await scene.sets(owner), await scene.sets(shared)
    assert [cpus for cpus, _ in before] == [OWNED, ALL - OWNED]

    answer = await release(scene)

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("daemon", ["released", "released"])
    late = await run(scene, "late", 500)
    for container_id in (owner, shared, late):
        assert await scene.sets(container_id) == (ALL, MEMS)

    answer = await release(scene, "--undo")

    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    assert [(await scene.sets(each))[0] for each in (owner, shared, late)] == [OWNED, ALL - OWNED, ALL - OWNED]


async def test_nobody_stays_pinned_when_criproxy_was_killed(scene: Scene) -> None:
    """The command does it alone; the next daemon knows of it, and an undo places everybody again."""
    owner, shared = await run(scene, "owner", 1000), await run(scene, "shared", 500)
    scene.serve.signal(signal.SIGKILL)
    await scene.serve.exit_status()

    answer = await release(scene)

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("store", ["released", "released"])
    for container_id in (owner, shared):
        assert await scene.sets(container_id) == (ALL, MEMS)

    await scene.serve.spawn()
    status = await scene.serve.message("READY=1")
    assert any(line.startswith("STATUS=RELEASED, so no container is placed: criproxy release, ") for line in status)
    late = await run(scene, "late", 500)
    assert await scene.sets(late) == (ALL, MEMS)

    answer = await release(scene, "--undo")

    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    assert [(await scene.sets(each))[0] for each in (owner, shared, late)] == [OWNED, ALL - OWNED, ALL - OWNED]
