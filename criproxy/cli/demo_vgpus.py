"""The act of the demo about vGPUs: a card is cut in two, and a pod that takes more than its half is ended."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from criproxy.cli.demo_teller import Teller
from criproxy.cli.render.usage import render
from criproxy.cli.stage import Stage
from criproxy.cli.stage_card import AGE_S, ALLOWED_MIB, CARD, CARD_MIB, PERIOD_S, RESOURCE, Card
from criproxy.cri import api_pb2 as api
from criproxy.cri.translate import pid_in
from criproxy.emulator.device_endpoint import Given
from criproxy.emulator.device_kubelet import DeviceKubelet
from criproxy.emulator.exits import exited
from criproxy.emulator.kubelet import ContainerSpec, PodSpec
from criproxy.errors import CriproxyError

LIMIT_S = 60.0
"""Ends a demo that hangs."""
USED_MIB = {"chat": 2048, "train": 6144}
OVER = "train"


@dataclass(slots=True)
class Running:
    """A pod with a vGPU."""

    pod: PodSpec
    given: list[Given]
    sandbox_id: str
    container_id: str = ""


async def vgpus(stage: Stage, teller: Teller) -> None:
    """Cut the card, run two pods on it, and let one take more than it may."""
    teller.title(f"A card of {CARD_MIB} MiB is divided between two pods; {OVER} uses more than its half.")
    if stage.card is None:
        teller.line("Skipped: this process cannot create files in /dev, so there is no card.")
        return
    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(DeviceKubelet(stage.card.kubelet))
        stack.push_async_callback(stage.end_device_plugin)
        await stage.start_device_plugin()
        act = Act(stage, stage.card, kubelet, teller)
        try:
            async with asyncio.timeout(LIMIT_S):
                await act.play()
        except TimeoutError as error:
            raise CriproxyError(
                f"this part of the demo took longer than {LIMIT_S:g} s:\n{stage.log('device-plugin')}"
            ) from error


@dataclass(slots=True)
class Act:
    """One step after the other."""

    stage: Stage
    card: Card
    kubelet: DeviceKubelet
    teller: Teller
    pods: dict[str, Running] = field(default_factory=dict)
    used_mib: dict[int, int] = field(default_factory=dict)
    """By process."""

    async def play(self) -> None:
        """All steps."""
        await self.offer()
        await self.run()
        await self.use()
        await self.end()
        await self.leave()

    async def offer(self) -> None:
        """The kubelet hears of the vGPUs."""
        await self.kubelet.until(lambda: bool(self.kubelet.healthy(RESOURCE)), LIMIT_S)
        ids = self.kubelet.healthy(RESOURCE)
        by = "" if self.stage.runtime.has_processes else ", and so are the processes"
        self.teller.line(f"The card and its usage are simulated{by}; {self.card.node} is a copy of /dev/null.")
        self.teller.check(f"the kubelet is offered {len(ids)} {RESOURCE}: {', '.join(ids)}", len(ids) == len(USED_MIB))

    async def run(self) -> None:
        """Each pod gets one of them."""
        for name in USED_MIB:
            pod = PodSpec(name, (ContainerSpec("main", self.stage.runtime.image),))
            given = await self.kubelet.admit(pod, "main", {RESOURCE: 1})
            running = Running(pod, given, await self.stage.kubelet.run_sandbox(pod))
            await self._start(running)
            self.pods[name] = running
        got = {name: each.given[0].ids for name, each in self.pods.items()}
        told = ", ".join(f"{name} has {' '.join(ids)}" for name, ids in got.items())
        self.teller.check(told, len(set(got.values())) == len(got))

    async def use(self) -> None:
        """What both use is told once, and shown."""
        self.used_mib = {await self._pid(self.pods[name]): mib for name, mib in USED_MIB.items()}
        answer = await self._usage()
        self.teller.line("$ criproxy usage")
        self.teller.show(render(answer, self.teller.console.width - 2))

    async def end(self) -> None:
        """What both use is told until the one that uses too much has exited; the kubelet then restarts it."""
        over = self.pods[OVER]
        telling = asyncio.create_task(self._tell())
        try:
            ended = await exited(self.stage.through, over.container_id)
        finally:
            telling.cancel()
        await self._start(over, attempt=1)
        self._describe(ended, await self._state(over))
        said = f"{USED_MIB[OVER]} MiB used, {ALLOWED_MIB} MiB allowed on {CARD}"
        right = (ended.reason, ended.message) == ("GPUMemoryQuotaExceeded", said)
        self.teller.check(f"{OVER} was stopped, and the kubelet gets the reason", right)
        for name in self.pods.keys() - {OVER}:
            self.teller.check(f"{name} keeps running", await self._state(self.pods[name]) == "Running")

    async def leave(self) -> None:
        """The pods are removed."""
        for each in self.pods.values():
            await self.stage.kubelet.remove_pod(each.sandbox_id)
            self.kubelet.remove(each.pod)

    async def _start(self, running: Running, attempt: int = 0) -> None:
        pod, kubelet = running.pod, self.stage.kubelet
        spec = pod.containers[0]
        running.container_id = await kubelet.create(pod, running.sandbox_id, spec, attempt, running.given)
        await kubelet.start(running.container_id)

    async def _pid(self, running: Running) -> int:
        """The first process of its container."""
        reply = await self.stage.through.container_status(running.container_id, verbose=True)
        return pid_in(reply.info) or 0

    async def _usage(self) -> dict[str, Any]:
        """What `criproxy usage` prints once the daemon knows what is used.

        A single reading ends nobody, so that there is time to ask; one that has grown too old begins anew.
        """
        while True:
            self.card.use(self.used_mib)
            until_s = asyncio.get_running_loop().time() + AGE_S
            while asyncio.get_running_loop().time() < until_s:
                answer: dict[str, Any] = await self.stage.query("usage", history=False)
                if {each["pod"]: each["memory_mib"] for each in answer["containers"]} == USED_MIB:
                    return answer
                await asyncio.sleep(0.05)  # the daemon tells nobody when it is told

    async def _tell(self) -> None:
        while True:
            self.card.use(self.used_mib)
            await asyncio.sleep(PERIOD_S / 2)

    def _describe(self, ended: api.ContainerStatus, state: str) -> None:
        """Print what the kubelet makes of the status of the container that was stopped, and of its successor's."""
        self.teller.line(f"What kubectl describe pod {OVER} would show of its container:")
        for key, value in (
            ("State:", state),
            ("Last State:", "Terminated"),
            ("  Reason:", ended.reason),
            ("  Message:", ended.message),
            ("  Exit Code:", ended.exit_code),
            ("Restart Count:", 1),
        ):
            self.teller.line(f"  {key:16}{value}")

    async def _state(self, running: Running) -> str:
        status = (await self.stage.through.container_status(running.container_id)).status
        return api.ContainerState.Name(status.state).removeprefix("CONTAINER_").capitalize()
