"""Kills the program at each of its steps on a disk, and says whether all is put back afterwards.

    python -m tests.controls.killed FOLDER

Each line of the output is a step, how many files the killed process had changed, and what is not as before after
``--put-back``. A step is a file that is opened, renamed or removed below the folder: the interpreter reports these.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

from criproxy.controls.core import Controls
from criproxy.controls.cpu_burst import CpuBurst
from criproxy.controls.journal import Journal
from criproxy.controls.serve import ControlsOptions, put_back
from criproxy.model.controls import ContainerControls, CpuTuning, Desired, Irqs
from tests.controls.trees import Tree

EVENTS = ("open", "os.rename", "os.remove")
FIRST = Desired(
    cpus={"gold": "1"},
    tunings={"gold": CpuTuning(min_frequency="base", governor="performance", disabled_c_states=("C6",))},
    irqs=Irqs(cpus="0"),
    containers={name: ContainerControls(cgroup=f"/{name}", burst_us=40_000) for name in "ab"},
)
SECOND = replace(FIRST, containers={}, tunings={"gold": CpuTuning(max_frequency="base", max_latency_us=5)}, irqs=None)
"""Takes back some, changes some, and adds some."""


def kill_at(step: int, folder: Path) -> None:
    """End this process without a word before it does the step with that number."""
    steps = count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS and str(arguments[0]).startswith(str(folder)) and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


async def work(tree: Tree, state: Path) -> None:
    """Apply both, one after the other."""
    journal = Journal.open(state, tree.root)
    controls = Controls(tree.root, journal, (CpuBurst(tree.root, journal),))
    for number, desired in enumerate((FIRST, SECOND), 1):
        controls.desire(desired, number)
        await controls._apply_layout(look=number == 1)
        await controls._apply_containers(look=number == 1)


def child(step: int, folder: Path, tree: Tree, state: Path) -> int:
    """Do the work in a process of its own; return its status."""
    pid = os.fork()
    if not pid:
        kill_at(step, folder)
        asyncio.run(work(tree, state))
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def main() -> None:
    """Try one step after the other, until nothing is left to be killed."""
    folder = Path(sys.argv[1])
    for step in count(1):
        tree, state = Tree(folder / "host"), folder / "state"
        tree.irqs(2, 2)
        tree.cpus(2)
        (tree.root / "sys/fs/cgroup/cpuset").mkdir(parents=True)
        for name, burst_us in (("a", 5000), ("b", 0)):  # one has one already
            tree.put(f"sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us", 100_000)
            tree.put(f"sys/fs/cgroup/cpu/{name}/cpu.cfs_burst_us", burst_us)
        before = tree.contents()
        status = child(step, folder, tree, state)
        changed = sum(text != before[path] for path, text in tree.contents().items())
        put_back(ControlsOptions(socket="", state_dir=state, host_root=tree.root))
        after = tree.contents()
        wrong = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        print(json.dumps({"step": step, "killed": status == signal.SIGKILL, "changed": changed, "wrong": wrong}))
        shutil.rmtree(tree.root)
        shutil.rmtree(state, ignore_errors=True)  # of the first step, there is none
        if not status:
            return


if __name__ == "__main__":
    main()
