"""What 1,000 agents ask of an API server: ``python -m lab.apiserver.scale [AGENTS]``; prints a table in Markdown.

This process is the server, another one has all agents (`agents`). The pauses are those of production, except that a try
lasts ten seconds.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import psutil

from criproxy.agent.kubernetes import client as api
from criproxy.agent.kubernetes.client import Resource
from criproxy.agent.signs.wanted import CONDITION
from lab.apiserver.fields import strategic
from lab.apiserver.server import ApiServer

WATCHES = 4
"""Of each agent: NodePolicies, its Node, its NodePlacement, its NodeResourceTopology."""
HEARTBEAT_S = 300.0
"""How often a kubelet writes the status of its Node at rest; no agent follows the Leases of kubelets."""
WRITTEN = (api.NODE_PLACEMENTS, api.NODE_RESOURCE_TOPOLOGIES)
"""By agents."""
LIMIT_S = 1800.0
HEADER = (
    "| Phase | Time | Requests | Per second | Most in a second | From agents | To agents | CPU of an agent |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the phases last."""

    first_contact_s: float = 30.0
    rest_s: float = 65.0
    """Long enough for a bookmark."""
    pods_s: float = 60.0
    """In which a pod comes or goes on each node."""
    gone_s: float = 30.0


@dataclass
class Phase:
    """What the server has counted in one phase, for all agents."""

    name: str
    time_s: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    """By verb and resource."""
    per_second: Counter[int] = field(default_factory=Counter)
    received_bytes: int = 0
    sent_bytes: int = 0
    agents_cpu_s: float = 0.0

    def row(self, agents: int) -> str:
        """Return a row of the table."""
        total, most = sum(self.requests.values()), max(self.per_second.values(), default=0)
        amounts = f"{self.received_bytes / 1e6:.2f} MB | {self.sent_bytes / 1e6:.2f} MB"
        cpu_milli_s = self.agents_cpu_s / agents * 1000
        return (
            f"| {self.name} | {self.time_s:.0f} s | {total} | {total / self.time_s:.1f} | {most} | {amounts} "
            f"| {cpu_milli_s:.0f} ms |"
        )


class Run:
    """One run.

    Args:
        server: with a Node for each agent.
        agents: their process.
        count: how many they are.
        plan: how long the phases last.
    """

    def __init__(self, server: ApiServer, agents: asyncio.subprocess.Process, count: int, plan: Plan) -> None:
        self.server, self.agents, self.count, self.plan = server, agents, count, plan
        self.process = psutil.Process(agents.pid)
        self.phases: list[Phase] = []

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look once a second, since what is asked takes long."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():  # noqa: ASYNC110 (an event for each request would be more work than the requests)
                await asyncio.sleep(1.0)

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        """Count what happens meanwhile, and print it."""
        server, found, begun_s = self.server, Phase(name), time.monotonic()
        before, cpu = server.requests.copy(), sum(self.process.cpu_times()[:2])
        amounts = server.received_bytes, server.sent_bytes
        seconds = asyncio.create_task(self._seconds(found))
        try:
            yield
        finally:
            seconds.cancel()
        found.time_s = time.monotonic() - begun_s
        found.requests = Counter({" ".join(key): many for key, many in (server.requests - before).items()})
        found.received_bytes, found.sent_bytes = server.received_bytes - amounts[0], server.sent_bytes - amounts[1]
        found.agents_cpu_s = sum(self.process.cpu_times()[:2]) - cpu
        self.phases.append(found)
        print(found.row(self.count), flush=True)
        print("  ", ", ".join(f"{many} {what}" for what, many in found.requests.most_common(8)), file=sys.stderr)

    async def _seconds(self, found: Phase) -> None:
        last = self.server.requests.total()
        for second in range(int(LIMIT_S)):
            await asyncio.sleep(1.0)
            now = self.server.requests.total()
            found.per_second[second], last = now - last, now

    def in_force(self) -> int:
        """How many nodes have kept the NodePolicy."""
        found = self.server.objects.all(api.NODE_PLACEMENTS)
        return sum((each.get("status") or {}).get("policy", {}).get("source", "") == "NodePolicy/all" and
                   each["status"].get("phase") == "Applied" for each in found)  # fmt: skip

    def are_there(self) -> bool:
        """Whether each agent has written its objects, and follows its own."""
        objects = self.server.objects
        told = sum("status" in each for each in objects.all(api.NODE_PLACEMENTS))
        nodes = objects.all(api.NODES)
        signs = sum(any(each["type"] == CONDITION for each in node["status"]["conditions"]) for node in nodes)
        counts = {told, signs, objects.count(api.NODE_RESOURCE_TOPOLOGIES)}
        return counts == {self.count} and len(self.server.watches) == WATCHES * self.count

    def writes(self, kind: Resource) -> int:
        """How often objects were written."""
        return self.server.requests["patch", kind.plural]

    async def start(self) -> None:
        """All agents start."""
        async with self.phase(f"start, first contact spread over {self.plan.first_contact_s:g} s"):
            await self.until(self.are_there)

    async def rest(self) -> None:
        """Nothing happens but what kubelets write."""
        async with self.phase("at rest"):
            await asyncio.sleep(self.plan.rest_s)

    async def pods(self) -> None:
        """The nodes change."""
        before = {kind: self.writes(kind) for kind in WRITTEN}
        async with self.phase("a pod comes or goes on each node in a minute"):
            assert self.agents.stdin is not None
            self.agents.stdin.write(f"{self.plan.pods_s}\n".encode())
            await self.until(lambda: all(self.writes(kind) >= before[kind] + self.count for kind in WRITTEN))

    async def rollout(self) -> None:
        """A NodePolicy for all nodes comes."""
        async with self.phase("rollout of a NodePolicy, 10 % at once, tries of 10 s"):
            rollout = {"try": "10s", "atOnce": "10%", "stopAfterFailures": 1}
            spec = {"nodeSelector": {}, "policy": {"policy": "balloons"}, "rollout": rollout}
            self.server.objects.create(api.NODE_POLICIES, {"metadata": {"name": "all"}, "spec": spec})
            await self.until(lambda: self.in_force() == self.count)

    async def gone(self) -> None:
        """The server goes, and comes back with all that it had."""
        async with self.phase(f"server gone for {self.plan.gone_s:g} s, until all are back"):
            await self.server.stop()
            await asyncio.sleep(self.plan.gone_s)
            await self.server.start()
            await self.until(self.are_there)

    async def wiped(self) -> None:
        """What agents have written is deleted."""
        async with self.phase("all NodePlacements and topologies deleted, until all are back"):
            for kind in WRITTEN:
                for each in self.server.objects.all(kind):
                    self.server.objects.delete(kind, each["metadata"]["name"])
            await self.until(self.are_there)


async def heartbeats(server: ApiServer, names: list[str]) -> None:
    """Change the status of each Node as kubelets do, for ever."""
    while True:
        for name in random.sample(names, len(names)):
            await asyncio.sleep(HEARTBEAT_S / len(names))
            condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"{time.time()}"}
            change = partial(strategic, patch={"status": {"conditions": [condition]}})
            server.objects.update(api.NODES, name, "", change, subresource="status")


@asynccontextmanager
async def running(count: int, plan: Plan) -> AsyncIterator[Run]:
    """Yield a run of so many agents, which have just started."""
    names = [f"node-{number}" for number in range(count)]
    async with ApiServer(bookmark_s=60.0) as server:
        for name in names:
            labels = {f"example.com/label-{number}": "value" for number in range(20)}
            status = {"conditions": [{"type": "Ready", "status": "True"}]}
            server.objects.create(api.NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        command = (sys.executable, "-m", "lab.apiserver.agents", server.url, str(count), str(plan.first_contact_s))
        agents = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        beats = asyncio.create_task(heartbeats(server, names))
        try:
            yield Run(server, agents, count, plan)
        finally:
            beats.cancel()
            with suppress(ProcessLookupError):
                agents.kill()
            await agents.wait()


async def main(count: int) -> None:
    """Run all phases with so many agents."""
    print(HEADER, flush=True)
    async with running(count, Plan()) as run:
        for phase in (run.start, run.rest, run.pods, run.rollout, run.gone, run.wiped):
            await phase()
        print(f"\n{run.process.memory_info().rss / 2**20:.0f} MiB for {count} agents in one process")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
