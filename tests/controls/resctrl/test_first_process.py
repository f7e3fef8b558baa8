"""A container's first process is put into its control group when the kernel reports it, before the program begins."""

import asyncio
from pathlib import Path

from criproxy.controls.core import Controls
from criproxy.controls.journal import Journal
from criproxy.controls.resctrl.part import RdtClasses
from tests.controls.resctrl.model import ResctrlModel
from tests.controls.test_lives import cached
from tests.daemons import until


async def test_what_a_first_process_starts_is_born_in_its_group(tmp_path: Path) -> None:
    """No look has to come, and no other container is asked."""
    kernel = ResctrlModel(tmp_path / "machine")
    kernel.thread(1, "init")
    pod = kernel.tree.root / "sys/fs/cgroup/kubepods"
    pod.mkdir()
    journal = Journal.open(tmp_path / "state", kernel.tree.root)
    controls = Controls(kernel.tree.root, journal, (RdtClasses(kernel.tree.root, journal, kernel),))
    controls.desire(cached("gold", "30%"), 1)
    await controls._apply_containers(look=True)

    async with asyncio.TaskGroup() as group:
        waits = group.create_task(controls.arrivals.run())
        await until(lambda: str(pod) in controls.arrivals._watches)
        kernel.thread(20, "kubepods/c")
        await until(lambda: kernel.groups_by_thread()[20] == "criproxy.gold")
        kernel.thread(21, "kubepods/c", parent=20)
        waits.cancel()

    assert kernel.groups_by_thread() == {1: ".", 20: "criproxy.gold", 21: "criproxy.gold"}
