"""Containers that a real containerd runs without criproxy having been asked: placed within two seconds, and told."""

import re
import signal
import time
from datetime import datetime
from typing import Any

import pytest

from lab.containerd.containerd import PrivateContainerd
from lab.kubelet.kubelet import MiniKubelet
from tests.daemons import until
from tests.e2e.scene import ALL, OWNED, Scene, owner, sharer

WITHIN_S = 2.0
RAN = re.compile(r"it ran without having been placed from (\S+Z) to (\S+Z) \((\S+) s\)")


async def told(scene: Scene) -> dict[str, Any]:
    """The only entry of `criproxy events` about a time without a place, which ends when others have left its CPUs."""

    async def entries() -> list[dict[str, Any]]:
        events = (await scene.serve.ask("events"))["events"]
        return [each for each in events if "unplaced_since_s" in each["facts"]]

    (found,) = await until(entries)
    return dict(found)


async def test_one_that_is_created_past_criproxy(scene: Scene, containerd: PrivateContainerd) -> None:
    """By its cgroup; the time is from its create on."""
    _, shared = await scene.run(sharer("shared"))

    _, ids = await MiniKubelet(scene.direct, containerd.cgroups).run_pod(owner("past"))

    await scene.moves_to(ids["c0"], OWNED)
    await scene.moves_to(shared, ALL - OWNED)
    if not containerd.is_front:  # it asks criproxy, whoever calls it
        ran = RAN.search("; ".join((await told(scene))["sentences"]))
        assert ran
        assert float(ran[3]) <= WITHIN_S


async def test_one_that_is_created_while_criproxy_is_dead(scene: Scene, containerd: PrivateContainerd) -> None:
    """Nobody restarts it for its CPU, and nobody has to ask."""
    await scene.run(sharer("shared"))
    await scene.end(signal.SIGKILL)
    _, ids = await MiniKubelet(scene.direct, containerd.cgroups).run_pod(owner("late"))
    assert await scene.cpus(ids["c0"]) == ALL

    await scene.begin()

    back_s = time.time()
    await scene.moves_to(ids["c0"], OWNED)
    event = await told(scene)
    assert datetime.fromisoformat(event["time"]).timestamp() - back_s <= WITHIN_S
    ran = RAN.search("; ".join(event["sentences"]))
    assert ran
    since, until = (datetime.fromisoformat(each).timestamp() for each in ran.groups()[:2])
    assert since < back_s
    assert float(ran[3]) == pytest.approx(until - since, abs=0.1)
    assert event["container"] == "default/late/c0"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_one_that_was_created_before_a_restart_starts_after_it(scene: Scene, how: signal.Signals) -> None:
    """Nobody runs on the CPUs of its create but itself, which the runtime says."""
    _, owned = await scene.run(owner("owner"))
    pod = sharer("shared")
    sandbox_id = await scene.kubelet.run_sandbox(pod)
    shared = await scene.kubelet.create(pod, sandbox_id, pod.containers[0])

    await scene.restart(how)
    await scene.kubelet.start(shared)

    assert (await scene.cpus(shared), await scene.cpus(owned)) == (ALL - OWNED, OWNED)
