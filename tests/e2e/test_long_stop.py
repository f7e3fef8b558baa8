"""Criproxy, a plugin, starts while a container takes long to stop: containerd 2 lets nothing begin before that."""

import asyncio

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import ANNOTATION
from criproxy.cri.translate import annotations_in
from criproxy.nri.plugin import FIRST_PROBLEM
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.daemons import until
from tests.e2e.scene import Scene, owner

GRACE_S = 12
"""Longer than criproxy waits for anything else, and shorter than a test may take."""
DEAF = ("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done")


async def test_who_comes_meanwhile_has_its_place_from_the_start(scene: Scene) -> None:
    """The create waits for the stop, or criproxy is connected before that; it is never made without criproxy."""
    _, stubborn = await scene.run(PodSpec("stubborn", (ContainerSpec("c0", IMAGE, DEAF),)))
    pod = owner("newcomer")
    sandbox_id = await scene.kubelet.run_sandbox(pod)
    await scene.end()
    stop = api.StopContainerRequest(container_id=stubborn, timeout=GRACE_S)
    stopping = asyncio.create_task(scene.client.call("StopContainer", stop, api.StopContainerResponse, 60.0))
    await scene.serve.spawn()
    await scene.serve.message("READY=1")

    async def has_tried() -> bool:
        said: str = (await scene.serve.ask("status"))["plugin"]["problem"]
        return said != FIRST_PROBLEM

    await until(has_tried, 0.1)
    newcomer = (await scene.create(pod, sandbox_id=sandbox_id)).container_id
    info = (await scene.direct.container_status(newcomer, verbose=True)).info
    assert ANNOTATION in annotations_in(newcomer, info), "criproxy was asked about its create"
    await stopping
