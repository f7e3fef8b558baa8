"""Runs pods through criproxy on a private runtime, and reads their cgroups after each step."""

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table

from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Applied
from lab.demo.nodes import nodes
from lab.demo.output import DemoOutput
from lab.demo.stage import Stage, open_stage
from lab.demo.vgpus import Running, vgpus
from lab.kubelet.kubelet import ContainerSpec, PodSpec

SETTLE_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Demo:
    """The demo; each public method is one part."""

    stage: Stage
    output: DemoOutput
    pods: dict[str, Running] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """The CPUs of each pod in the last table."""
    why: dict[str, str] = field(default_factory=dict)
    """Why each pod was there."""

    async def run(self) -> None:
        """Run all parts in order."""
        self.output.title("A Burstable pod arrives: it shares all CPUs that are not exclusive.")
        await self._start(_pod("web", self.stage.runtime.image, request_milli=200))
        await self._show({"web": self._all})
        self.output.title("A Guaranteed pod asks for a whole CPU: it gets one exclusively; web moves off it first.")
        await self._start(_pod("trader", self.stage.runtime.image, limit_milli=1000))
        await self._show(self._split())
        await self.restart_criproxy()
        await self.refused_pod()
        await self.show_commands()
        await self.remove_pods()
        nodes(self.stage.directory, self.output)
        await vgpus(self.stage, self.output)

    async def restart_criproxy(self) -> None:
        """Kill criproxy, and start it again."""
        self.output.title("criproxy is killed (kill -9) and started again: nothing moves.")
        # `explain` answers when the history is on disk: a kill loses the last 0.1 s of it, which the demo shows below.
        await self.stage.run_command("explain", "default/web/main", width=self.output.console.width)
        await self.stage.kill_criproxy()
        await self._show(self._split())
        await self.stage.start_criproxy()
        await self._start(_pod("batch", self.stage.runtime.image))
        self.output.title("A BestEffort pod arrives after the restart: it keeps off trader's CPU.")
        await self._show(self._split())

    async def refused_pod(self) -> None:
        """Create a pod that requests more exclusive CPUs than there are."""
        count = len(self._all)
        self.output.title(f"A Guaranteed pod asks for {count} whole CPUs: criproxy refuses it with a reason.")
        pod = _pod("greedy", self.stage.runtime.image, limit_milli=1000 * count)
        sandbox_id = await self.stage.kubelet.run_sandbox(pod)
        try:
            await self.stage.kubelet.create(pod, sandbox_id, pod.containers[0])
        except RuntimeCallError as error:
            self.output.console.print(f"  CreateContainer: {error.code.name}: {error.details}", highlight=False)
            self.output.check("refused with RESOURCE_EXHAUSTED", error.code is StatusCode.RESOURCE_EXHAUSTED)
        else:
            self.output.check("refused", False)
        await self.stage.kubelet.remove_pod(sandbox_id)

    async def show_commands(self) -> None:
        """Run criproxy's commands, and print their output."""
        for title, arguments in (
            ("What criproxy shows of the node:", ("status",)),
            ("What it shows of one container, with every update that followed:", ("explain", "default/web/main")),
        ):
            self.output.title(title)
            self.output.line(f"$ criproxy {' '.join(arguments)}")
            status, text = await self.stage.run_command(*arguments, width=self.output.console.width - 2)
            for line in text.splitlines():
                self.output.line(line)
            self.output.check(f"criproxy {arguments[0]} knows", status == 0)
        status, text = await self.stage.run_command("status", "--check", width=self.output.console.width)
        if status:
            self.output.console.print(text, markup=False)
        self.output.check("criproxy status --check finds nothing wrong", status == 0)

    async def remove_pods(self) -> None:
        """Remove all pods; exclusive CPUs become shared again."""
        self.output.title("trader is removed: its CPU goes back to the shared pool.")
        await self.stage.kubelet.remove_pod(self.pods.pop("trader").sandbox_id)
        await self._show(dict.fromkeys(self.pods, self._all))
        for running in self.pods.values():
            await self.stage.kubelet.remove_pod(running.sandbox_id)

    @property
    def _all(self) -> CpuSet:
        return self.stage.topology.cpus

    def _split(self) -> dict[str, CpuSet]:
        """Return the expected CPUs: the lowest CPU that is not reserved for trader, the others for other pods."""
        owned = frozenset([min(self._all - {min(self._all)})])
        return {name: owned if name == "trader" else self._all - owned for name in self.pods}

    async def _start(self, pod: PodSpec) -> None:
        sandbox_id, ids = await self.stage.kubelet.run_pod(pod)
        self.pods[pod.name] = Running(pod, sandbox_id, ids["main"])

    async def _show(self, expected: dict[str, CpuSet]) -> None:
        """Print where the pods run, and check it."""
        found = await self._read_settled(expected)
        self.output.console.print(self._table(found))
        for name, cpus in expected.items():
            applied = found[name]
            self.output.check(
                f"{name} runs on {format_cpuset(cpus)}" + ("" if name != "trader" else ", alone"),
                applied is not None and applied.cpus == cpus,
            )

    async def _read_settled(self, expected: dict[str, CpuSet]) -> dict[str, Applied | None]:
        """Return the sets in the cgroups when they are as expected, or after a timeout: a removal causes updates."""
        deadline = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
        while True:
            found = {name: await self.stage.read_back(running.container_id) for name, running in self.pods.items()}
            right = all((has := found[name]) and has.cpus == cpus for name, cpus in expected.items())
            told = right and [await self._is_told(name, format_cpuset(cpus)) for name, cpus in expected.items()]
            if (told and all(told)) or asyncio.get_running_loop().time() > deadline:
                return found
            await asyncio.sleep(0.05)  # the kernel does not report changes of a cgroup

    async def _is_told(self, name: str, now: str) -> bool:
        """Ask criproxy why the pod is on the CPUs *now*; return whether its answer is about them already."""
        if not self.stage.runs or self.shown.get(name) == now:
            return True
        title = f"default/{name}/main"
        first, *moved = (await self.stage.serve.ask("explain", container=title))["why"]
        then = next((each for each in reversed(moved) if each.startswith("then ")), "")
        self.why[name] = then.removeprefix("then ").partition(";")[0] or first.removeprefix(f"{title} ")
        return name not in self.shown or f"→ {now}," in then

    def _table(self, found: dict[str, Applied | None]) -> Table:
        table = Table("pod", "class", "asks", "CPUs", "memory", "why", box=box.SIMPLE_HEAD, show_edge=False)
        for name, applied in found.items():
            pod = self.pods[name].pod
            asks = f"{pod.containers[0].cpu_milli}m" if pod.containers[0].cpu_milli else "nothing"
            mems = format_cpuset(applied.mems) if applied else "?"
            table.add_row(name, pod.qos, asks, self._moved(name, applied), f"node {mems}", self.why.get(name, ""))
        return table

    def _moved(self, name: str, applied: Applied | None) -> str:
        """Return the current CPUs, after those of the last table if they have changed."""
        before, now = self.shown.get(name), format_cpuset(applied.cpus) if applied else "?"
        self.shown[name] = now
        return now if before in (None, now) else f"{before} → {now}"


def run() -> None:
    """Run sample pods through criproxy on a private containerd, and read their cgroups.

    The demo then places pods on a simulated machine with four NUMA nodes. It also divides a simulated card into two
    vGPUs, and shows what happens to a container that exceeds its quota.

    Without root or containerd, the demo uses an embedded runtime. It leaves nothing behind. The exit status is 1 if a
    container is not where it should be.
    """
    ended_by: list[signal.Signals] = []
    try:
        asyncio.run(_perform(ended_by))
    except AssertionError as error:
        raise CriproxyError(f"criproxy did not start: {error}") from error
    except asyncio.CancelledError:  # everything is cleaned up
        raise SystemExit(128 + ended_by[0]) from None
    except KeyboardInterrupt:  # so is it here
        raise SystemExit(1) from None


def _end_on_signals(ended_by: list[signal.Signals]) -> None:
    """Let the first of the signals that end a program cancel the current task, which then cleans up, and note it.

    Signals that are ignored, such as SIGHUP under nohup, stay so.
    """
    main = asyncio.current_task()
    assert main is not None

    def end(number: signal.Signals) -> None:
        if not ended_by:
            main.cancel()
        ended_by.append(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)


async def _perform(ended_by: list[signal.Signals]) -> None:
    _end_on_signals(ended_by)
    async with AsyncExitStack() as stack:
        console = Console()
        console.print("Starting a runtime, and criproxy in front of it …")
        stage = await open_stage(stack)
        demo = Demo(stage, DemoOutput(console))
        cpus, reserved = format_cpuset(stage.topology.cpus), min(stage.topology.cpus)
        console.print(
            f"Runtime: {stage.runtime.name}. CPUs: {cpus}. Policy: static, with CPU {reserved} reserved.\n"
            f"The CPUs in the tables are read from {stage.runtime.read_from}.",
            highlight=False,
        )
        await demo.run()
    if demo.output.failures:
        raise CriproxyError(f"{demo.output.failures} of the demo's checks failed")
    console.print("\nEverything is where it should be, and cleaned up.")


def _pod(name: str, image: str, *, request_milli: int = 0, limit_milli: int = 0) -> PodSpec:
    memory_bytes = 64 << 20 if limit_milli else 0
    return PodSpec(
        name, (ContainerSpec("main", image, (), request_milli, limit_milli, memory_limit_bytes=memory_bytes),)
    )
