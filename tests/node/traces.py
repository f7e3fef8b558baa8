"""What a real kubelet said, played again: the recordings in ``traces/`` of the shared facts, message for message.

Ids are those that the runtime gives here. A call that waited for a reply there waits for it here, calls that overlapped
overlap, and the pauses between them are left out. Nobody tells of a process that ends by itself: `ends_of` and
`dies_before` say which do, as a recording implies it, and when.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from criproxy.cri import api_pb2 as cri
from criproxy.cri.methods import METHODS
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.emulator.runtime import IMAGE, EmbeddedRuntime
from lab.kubelet.kubelet import PodSpec, sandbox_config

PAUSE_S = 1.0
"""A kubelet that says nothing for so long after a start waits for a container: with the first such pause, one ends."""
ROUNDED_S = 0.001
"""Times are told in milliseconds: what seems to overlap by so little does not."""
TIMEOUT_S = 30.0

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of a recording."""

    line: int
    at_s: float
    """When it began, from the first call on."""
    took_s: float
    method: str
    """Its short name."""
    outcome: str
    """``ok``, ``failed``, or ``not sent``: criproxy refused it there."""
    request: Values
    reply: Values

    @property
    def ended_s(self) -> float:
        """When its reply came, at the earliest."""
        return self.at_s + self.took_s - ROUNDED_S

    @property
    def sandbox_id(self) -> str:
        """The sandbox that the request or, of a new one, the reply names."""
        return str(self.request.get("pod_sandbox_id") or self.reply.get("pod_sandbox_id") or "")

    @property
    def container_id(self) -> str:
        """The container that the request or, of a new one, the reply names."""
        return str(self.request.get("container_id") or self.reply.get("container_id") or "")

    @property
    def instance(self) -> tuple[str, str, int]:
        """Of a create: its sandbox, the container's name and the attempt."""
        metadata = self.request["config"]["metadata"]
        return self.sandbox_id, metadata["name"], metadata.get("attempt", 0)


def recordings(shared: Path) -> dict[str, Path]:
    """The recordings of all kubelets, by name; none where the shared facts have none."""
    return {file.stem: file for file in sorted(shared.glob("traces/kubelet-*/*.jsonl"))}


def read(file: Path) -> list[Recorded]:
    """The calls of *file* in the order in which they began."""
    return [_recorded(line, json.loads(text)) for line, text in enumerate(file.read_text().splitlines(), start=1)]


def _recorded(line: int, said: Values) -> Recorded:
    method = said["method"].rpartition("/")[2]
    times = said["at_s"], said["duration_s"]
    return Recorded(line, *times, method, said["outcome"], said["request"], said.get("reply") or {})


def ends_of(calls: Sequence[Recorded]) -> dict[int, list[str]]:
    """Line of a call → containers whose processes have ended by themselves before it.

    A container that was started and never stopped has: at the latest before the next attempt of its name, before its
    removal, and before its sandbox is stopped. In each pause one ends, the oldest of those that no later call resizes.
    """
    never_stopped = _never_stopped(calls)
    resized = {call.container_id: call.line for call in calls if call.method == "UpdateContainerResources"}
    running: dict[str, list[str]] = {}
    created: dict[str, Recorded] = {}
    found: dict[int, list[str]] = {}
    for before, call in zip([calls[0], *calls], calls, strict=False):
        there = [one for ids in running.values() for one in ids]
        ended = [one for one in there if _must_have_ended(created[one], call)]
        if not ended and there and call.at_s - before.ended_s >= PAUSE_S:
            ended = [one for one in there if resized.get(one, 0) < call.line][:1]
        for one in ended:
            running[created[one].sandbox_id].remove(one)
            found.setdefault(call.line, []).append(one)
        if call.method == "CreateContainer" and call.container_id:
            created[call.container_id] = call
        elif call.method == "StartContainer" and call.container_id in never_stopped:
            running.setdefault(created[call.container_id].sandbox_id, []).append(call.container_id)
    return found


def _never_stopped(calls: Sequence[Recorded]) -> set[str]:
    named = {
        method: {call.container_id for call in calls if call.method == method}
        for method in ("CreateContainer", "StartContainer", "StopContainer")
    }
    return (named["CreateContainer"] & named["StartContainer"]) - named["StopContainer"]


def _must_have_ended(one: Recorded, call: Recorded) -> bool:
    """Whether the container of the create *one* cannot be running when *call* comes."""
    sandbox_id, name, attempt = one.instance
    if call.method == "CreateContainer":
        return call.instance[:2] == (sandbox_id, name) and call.instance[2] > attempt
    if call.method == "RemoveContainer":
        return call.container_id == one.container_id
    return call.method in ("StopPodSandbox", "RemovePodSandbox") and call.sandbox_id == sandbox_id


def dies_before(calls: Sequence[Recorded]) -> dict[int, str]:
    """Line of a call → the sandbox whose own process has ended before it.

    The kubelet makes another sandbox for the same pod only then; it is the first call about the old one after a pause.
    """
    found: dict[int, str] = {}
    runs = [call for call in calls if call.method == "RunPodSandbox" and call.outcome == "ok"]
    for old, new in pairwise(runs):
        if old.request["config"]["metadata"]["uid"] != new.request["config"]["metadata"]["uid"]:
            continue
        ids = {old.sandbox_id} | {c.container_id for c in calls if c.sandbox_id == old.sandbox_id and c.container_id}
        ending = (c for c in calls if c.method.startswith("Stop") and {c.container_id, c.sandbox_id} & ids)
        found[next(ending).line] = old.sandbox_id
    return found


@dataclass(frozen=True, slots=True)
class EmbeddedEnds:
    """Ends processes of the embedded runtime behind the kubelet's and criproxy's back."""

    runtime: EmbeddedRuntime
    noticed: Callable[[str], Awaitable[None]]
    """Returns when criproxy knows that the container has ended."""

    async def exit(self, container_id: str) -> None:
        """Let a container end by itself, and return when that has been noticed."""
        self.runtime.exit_container(container_id, exit_code=1)
        await self.noticed(container_id)

    async def lose(self, sandbox_id: str) -> None:
        """Let a sandbox's own process end, its containers going on."""
        sandbox = self.runtime.core.records.sandbox(sandbox_id)
        sandbox.ready, sandbox.listed = False, None
        self.runtime.core.events.of_sandbox(cri.CONTAINER_STOPPED_EVENT, sandbox)


class Differs(AssertionError):
    """A call ended otherwise than in the recording."""


@dataclass(slots=True)
class Player:
    """Plays recordings through *client*.

    What criproxy refused there may succeed here, under a policy that has room: a kubelet would not repeat it then.

    Raises (`play`):
        Differs: a call that was ok there is not ok here, or the other way round where the runtime refused it.
    """

    client: RuntimeClient
    ends: EmbeddedEnds
    at_rest: Callable[[Recorded], Awaitable[None]] | None = None
    """Asked to look around after each call with which no other overlaps."""
    ids: dict[str, str] = field(default_factory=dict)
    """The id there → the id here, of sandboxes and containers."""
    refused: dict[int, str] = field(default_factory=dict)
    """Line of a call that was refused there and is refused here → what the kubelet was told."""
    _sandboxes: list[str] = field(default_factory=list)
    _made: dict[tuple[str, str, int], str] = field(default_factory=dict)

    async def play(self, calls: Sequence[Recorded]) -> None:
        """Play *calls*; what came before them in the recording exists then, and has ended."""
        await self._run_earlier(calls)
        ends, dies = ends_of(calls), dies_before(calls)
        under_way: dict[asyncio.Task[None], Recorded] = {}
        for call in calls:
            await _until_done(under_way, lambda other, at_s=call.at_s: other.ended_s <= at_s)  # type: ignore[misc]
            if call.line in dies:
                await self.ends.lose(self.ids[dies[call.line]])
            for one in ends.get(call.line, ()):
                await self.ends.exit(self.ids[one])
            under_way[asyncio.create_task(self._make(call))] = call
            if not any(other.at_s < call.ended_s for other in calls[call.line :]):
                await _until_done(under_way, lambda _: True)
                if self.at_rest:
                    await self.at_rest(call)
        await _until_done(under_way, lambda _: True)

    async def clean_up(self) -> None:
        """Stop and remove all sandboxes that are left, as the kubelet does later."""
        for sandbox_id in self._sandboxes:
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                await self._send(method, {"pod_sandbox_id": sandbox_id})
        self._sandboxes.clear()

    async def _run_earlier(self, calls: Sequence[Recorded]) -> None:
        """Run and stop the sandboxes of pods that came before the first of *calls*."""
        made = {call.sandbox_id for call in calls if call.method == "RunPodSandbox"}
        earlier = {call.sandbox_id: None for call in calls if call.sandbox_id and call.sandbox_id not in made}
        for number, there in enumerate(earlier):
            request = cri.RunPodSandboxRequest(config=sandbox_config(PodSpec(f"earlier-{number}")))
            reply = await self.client.call("RunPodSandbox", request, cri.RunPodSandboxResponse, TIMEOUT_S)
            self.ids[there] = reply.pod_sandbox_id
            self._sandboxes.append(reply.pod_sandbox_id)
            await self._send("StopPodSandbox", {"pod_sandbox_id": reply.pod_sandbox_id})

    async def _make(self, call: Recorded) -> None:
        """Make one call, compare its end with the recording, and note the ids that it gives."""
        if call.method == "CreateContainer" and call.instance in self._made:
            self._note(call, {"container_id": self._made[call.instance]})  # it was refused there, and is not here
            return
        try:
            reply = await self._send(call.method, self._mapped(call.request))
        except RuntimeCallError as error:
            if call.outcome == "ok":
                raise Differs(f"line {call.line}: {call.method} was ok, and is refused: {error.details}") from error
            self.refused[call.line] = error.details
            return
        if call.outcome == "failed":
            raise Differs(f"line {call.line}: {call.method} failed there, and is ok")
        self._note(call, reply)

    def _note(self, call: Recorded, reply: Mapping[str, str]) -> None:
        if call.method == "RunPodSandbox":
            self._sandboxes.append(reply["pod_sandbox_id"])
        elif call.method == "RemovePodSandbox":
            self._sandboxes.remove(self.ids[call.sandbox_id])
        elif call.method == "CreateContainer":
            self._made[call.instance] = reply["container_id"]
        self.ids.update({call.reply[key]: here for key, here in reply.items() if key in call.reply})

    def _mapped(self, request: Values) -> Values:
        """*request* with the ids and the image of here."""
        mapped = dict(request)
        for key in ("pod_sandbox_id", "container_id"):
            if key in request:
                mapped[key] = self.ids.get(request[key], request[key])
        if "image" in request.get("config", {}):
            mapped["config"] = {**request["config"], "image": {"image": IMAGE}}
        return mapped

    async def _send(self, name: str, request: Values) -> dict[str, str]:
        method = METHODS[name]
        message = ParseDict(request, method.request(), ignore_unknown_fields=True)
        reply: Any = await self.client.call(name, message, method.reply, TIMEOUT_S)
        return {field.name: value for field, value in reply.ListFields() if isinstance(value, str)}


async def _until_done(under_way: dict[asyncio.Task[None], Recorded], which: Callable[[Recorded], bool]) -> None:
    """Wait for the replies of the calls of *under_way* of which *which* is true."""
    for task in [task for task, call in under_way.items() if which(call)]:
        del under_way[task]
        await task
