"""A node on which something happens: containers that own CPUs and share them, parts of cards, and two problems."""

import pytest

from criproxy.cri.runtime import RuntimeCallError
from criproxy.simulate.hosts import GIB
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.page.stage import Stage, crowd, vgpu_pods


async def busy(there: Stage, pods: int = 40) -> None:
    """So many pods, others with parts of cards, and `trouble`."""
    await there.run([*crowd(pods), *vgpu_pods()])
    await trouble(there)


async def trouble(there: Stage) -> None:
    """Use of cards, of which one is over its quota, and a container that does not fit."""
    rows = (await there.ask("status", namespace="default"))["containers"]
    uses = [(row["id"], f"GPU-{row['pod'][-2]}", 6200 + 1200 * index) for index, row in enumerate(rows)]
    await there.report(uses)
    more_than_all = (await there.ask("status"))["cpu_counts"]["capacity"] + 2
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * more_than_all, memory_limit_bytes=GIB)
    with pytest.raises(RuntimeCallError):
        await there.run([PodSpec("render-0", (spec,), namespace="studio")])
