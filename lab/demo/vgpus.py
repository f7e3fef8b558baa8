"""The part of the demo about vGPUs: a card is divided in two, and a pod that uses more than its half is stopped."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from criproxy.cli.queries.usage import render
from criproxy.cri import api_pb2 as api
from criproxy.cri.translate import pid_in
from criproxy.errors import CriproxyError
from lab.demo.card import AGE_S, ALLOWED_MIB, CARD, CARD_MIB, PERIOD_S, RESOURCE, Card
from lab.demo.output import DemoOutput
from lab.demo.stage import Stage
from lab.kubelet.device_endpoint import Given
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.deviceplugin.kubelet import FakeKubelet, Pod

LIMIT_S = 60.0
"""The time limit for this part of the demo."""
USED_MIB = {"chat": 2048, "train": 6144}
OVER = "train"


@dataclass(slots=True)
class Running:
    """A pod of one container, which may have a vGPU."""

    pod: PodSpec
    sandbox_id: str
    container_id: str = ""
    given: list[Given] = field(default_factory=list)


async def vgpus(stage: Stage, output: DemoOutput) -> None:
    """Divide the card, run two pods on it, and let one exceed its quota."""
    output.title(f"A card of {CARD_MIB} MiB is divided between two pods; {OVER} uses more than its half.")
    if stage.card is None:
        output.line("Skipped: this process cannot create files in /dev, so there is no card.")
        return
    async with AsyncExitStack() as stack:
        kubelet = FakeKubelet(stage.card.kubelet)
        await kubelet.start()
        stack.push_async_callback(kubelet.stop)
        plugin = await stack.enter_async_context(stage.device_plugin())
        demo = VgpuDemo(stage, stage.card, kubelet, output)
        try:
            async with asyncio.timeout(LIMIT_S):
                for step in (demo.offer, demo.run, demo.use, demo.end, demo.leave):
                    await step()
        except TimeoutError as error:
            raise CriproxyError(
                f"this part of the demo took longer than {LIMIT_S:g} s:\n{plugin.log.read_text()}"
            ) from error


@dataclass(slots=True)
class VgpuDemo:
    """The steps of this part, in order."""

    stage: Stage
    card: Card
    kubelet: FakeKubelet
    output: DemoOutput
    pods: dict[str, Running] = field(default_factory=dict)
    used_mib: dict[int, int] = field(default_factory=dict)
    """By PID."""

    async def offer(self) -> None:
        """Wait until the vGPUs are offered to the kubelet."""
        await self.kubelet.until(lambda: bool(self.kubelet.healthy(RESOURCE)), LIMIT_S)
        ids = sorted(self.kubelet.healthy(RESOURCE))
        by = "" if self.stage.runtime.cgroups else ", and so are the processes"
        self.output.line(f"The card and its usage are simulated{by}; {self.card.node} is a copy of /dev/null.")
        self.output.check(f"the kubelet is offered {len(ids)} {RESOURCE}: {', '.join(ids)}", len(ids) == len(USED_MIB))

    async def run(self) -> None:
        """Start the pods, with one vGPU each."""
        for name in USED_MIB:
            pod = PodSpec(name, (ContainerSpec("main", self.stage.runtime.image),))
            given = await self.kubelet.admit(Pod(pod.uid, pod.name), {RESOURCE: 1})
            running = Running(pod, await self.stage.kubelet.run_sandbox(pod), given=list(given.values()))
            await self._start(running)
            self.pods[name] = running
        got = {name: each.given[0].ids for name, each in self.pods.items()}
        allocated = ", ".join(f"{name} has {' '.join(ids)}" for name, ids in got.items())
        self.output.check(allocated, len(set(got.values())) == len(got))

    async def use(self) -> None:
        """Report the use of both pods once, and show it."""
        for name, mib in USED_MIB.items():
            reply = await self.stage.through.container_status(self.pods[name].container_id, verbose=True)
            self.used_mib[pid_in(reply.info) or 0] = mib
        answer = await self._usage()
        self.output.line("$ criproxy usage")
        self.output.show(render(answer, self.output.console.width - 2))
        text = "uses more than it may. One reading is not enough to stop it: the next ones follow now."
        self.output.line(f"{OVER} {text}")

    async def end(self) -> None:
        """Report the use of both pods until the one over its quota has exited; the kubelet then restarts it."""
        over = self.pods[OVER]
        reporting = asyncio.create_task(self._report_use())
        try:
            while (ended := await self._status(over)).state != api.CONTAINER_EXITED:  # noqa: ASYNC110 (runtimes may have no events)
                await asyncio.sleep(0.05)
        finally:
            reporting.cancel()
        await self._start(over, attempt=1)
        self._describe(ended, await self._state(over))
        message = f"{USED_MIB[OVER]} MiB used, {ALLOWED_MIB} MiB allowed on {CARD}"
        right = (ended.reason, ended.message) == ("GPUMemoryQuotaExceeded", message)
        self.output.check(f"{OVER} was stopped, and the kubelet gets the reason", right)
        for name in self.pods.keys() - {OVER}:
            self.output.check(f"{name} keeps running", await self._state(self.pods[name]) == "Running")

    async def leave(self) -> None:
        """Remove the pods."""
        for each in self.pods.values():
            await self.stage.kubelet.remove_pod(each.sandbox_id)
            self.kubelet.remove(Pod(each.pod.uid))

    async def _start(self, running: Running, attempt: int = 0) -> None:
        pod, kubelet = running.pod, self.stage.kubelet
        spec = pod.containers[0]
        running.container_id = await kubelet.create(pod, running.sandbox_id, spec, attempt, running.given)
        await kubelet.start(running.container_id)

    async def _usage(self) -> dict[str, Any]:
        """Return the answer for `criproxy usage` when the daemon knows the use.

        A single reading stops no container, so there is time for the query; after an outdated one, counting restarts.
        """
        while True:
            self.card.use(self.used_mib)
            until_s = asyncio.get_running_loop().time() + AGE_S
            while asyncio.get_running_loop().time() < until_s:
                answer: dict[str, Any] = await self.stage.serve.ask("usage", history=False)
                if {each["pod"]: each["memory_mib"] for each in answer["containers"]} == USED_MIB:
                    return answer
                await asyncio.sleep(0.05)  # the daemon does not notify clients of new reports

    async def _report_use(self) -> None:
        while True:
            self.card.use(self.used_mib)
            await asyncio.sleep(PERIOD_S / 2)

    def _describe(self, ended: api.ContainerStatus, state: str) -> None:
        """Print what the kubelet shows of the stopped container, and of the restarted one."""
        self.output.line(f"What kubectl describe pod {OVER} would show of its container:")
        for key, value in (
            ("State:", state),
            ("Last State:", "Terminated"),
            ("  Reason:", ended.reason),
            ("  Message:", ended.message),
            ("  Exit Code:", ended.exit_code),
            ("Restart Count:", 1),
        ):
            self.output.line(f"  {key:16}{value}")

    async def _status(self, running: Running) -> api.ContainerStatus:
        return (await self.stage.through.container_status(running.container_id)).status

    async def _state(self, running: Running) -> str:
        name = api.ContainerState.Name((await self._status(running)).state)
        return name.removeprefix("CONTAINER_").capitalize()
