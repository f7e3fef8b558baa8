"""Criproxy is released and taken out of a node, well or broken: nobody stays pinned, and nobody is restarted.

The commands are those of docs/install.md; a kubelet that is pointed back at the runtime is one with another socket.
"""

import shutil
import signal
from collections.abc import Iterable

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.host.machine import discover
from lab.containerd.containerd import PrivateContainerd
from lab.kubelet.kubelet import MiniKubelet
from tests.e2e.scene import ALL, OWNED, Ran, Scene, guaranteed

MEMS = discover().mems
LATE = guaranteed("late", 500)


async def placed(scene: Scene) -> list[Ran]:
    """An owner, and one that shares the other CPUs."""
    pods = [await scene.run(guaranteed("owner", 1000)), await scene.run(guaranteed("shared", 500))]
    await assert_placed(scene, pods)
    return pods


async def assert_placed(scene: Scene, pods: Iterable[Ran]) -> None:
    """The first owns its CPU, all others share the rest."""
    cpus = [await scene.cpus(ran.container_id) for ran in pods]
    assert cpus == [OWNED, *[ALL - OWNED] * (len(cpus) - 1)]


async def assert_everywhere(scene: Scene, pods: Iterable[Ran]) -> None:
    """Nobody is pinned."""
    for ran in pods:
        assert await scene.sets(ran.container_id) == (ALL, MEMS)


async def started_at(scene: Scene, pods: Iterable[Ran]) -> list[int]:
    """When containers were started, all of which run: the same as before, if nobody started them again."""
    found = [(await scene.direct.container_status(ran.container_id)).status for ran in pods]
    assert all(each.state == api.CONTAINER_RUNNING for each in found)
    return [each.started_at for each in found]


async def run_past(scene: Scene, containerd: PrivateContainerd) -> Ran:
    """Run a pod as a kubelet does that was pointed back at the runtime."""
    sandbox_id, ids = await MiniKubelet(scene.direct, containerd.cgroups).run_pod(LATE)
    return Ran(sandbox_id, ids["c0"])


async def test_nobody_stays_pinned_when_criproxy_was_killed(scene: Scene) -> None:
    """The command does it alone; the next daemon knows of it, and an undo places everybody again."""
    pods = await placed(scene)
    await scene.end()

    answer = await scene.release()

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("store", ["released", "released"])
    await assert_everywhere(scene, pods)

    status = await scene.begin()
    assert any(line.startswith("STATUS=RELEASED, so no container is placed: criproxy release, ") for line in status)
    pods.append(await scene.run(LATE))
    await assert_everywhere(scene, pods)

    answer = await scene.release("--undo")

    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    await assert_placed(scene, pods)


@pytest.mark.parametrize("broken", ["no", "killed and its state lost"])
async def test_criproxy_is_taken_out(scene: Scene, containerd: PrivateContainerd, broken: str) -> None:
    """Released, the kubelet pointed back, stopped: everybody is everywhere, and nobody was restarted.

    With a daemon that is dead, release does the work itself, whatever is left of the state.
    """
    pods = await placed(scene)
    before = await started_at(scene, pods)
    if broken != "no":
        await scene.end()
    if "lost" in broken:
        shutil.rmtree(scene.serve.directory / "state")

    await scene.release(status=int("lost" in broken))  # that it cannot be remembered is said
    late = await run_past(scene, containerd)
    if broken == "no":
        await scene.end(signal.SIGTERM)

    await assert_everywhere(scene, [*pods, late])
    assert await started_at(scene, pods) == before
    await MiniKubelet(scene.direct).remove_pod(pods[0].sandbox_id)
