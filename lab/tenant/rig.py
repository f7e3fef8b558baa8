"""A node with a few pods that behave, to which a hostile one comes again and again; each time the same is asked."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from criproxy.api.live import LiveNode, commands
from criproxy.cli.queries import devices as devices_table
from criproxy.cli.queries import explain as explain_text
from criproxy.cli.queries import status as status_table
from criproxy.cli.render.console import UNLIMITED, console
from criproxy.config.settings import find, options_model
from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import METHODS
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Grant
from criproxy.model.record import Record
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.process import log
from criproxy.simulate.hosts import machine
from lab.tenant.hostile import Attempt
from tests.node.devices.test_guard import host
from tests.node.world import FAST, RecordingLog, World, owner, sharer

CALL_S = 60.0
"""Longer than anything takes, where nothing hangs."""
GONE_S = CALL_S
"""How long the others may take to be where they were, once the hostile pod has gone."""
CPU_S = 3.0
"""Of CPU time that all about one hostile pod may cost; a usual one takes a fiftieth of it."""
MAX_LOG_BYTES = 256 << 10
"""That all about one hostile pod may write."""
MAX_HISTORY_BYTES = 256 << 10
MAX_SHOWN_CHARS = 200_000
SHOWN_EACH = 10
"""Of so many pods with usual names one is shown by every renderer, and every other one with an unusual name."""
OURS = frozenset({StatusCode.INVALID_ARGUMENT, StatusCode.RESOURCE_EXHAUSTED})
FORBIDDEN = ("Error(", "Traceback", "Exception", "errno", "NoneType", "object at 0x", "argument", "Exceeds the limit")
"""What no sentence of ours has, and texts of exceptions have."""
MACHINE = machine(nodes=2, cores=4, threads=1)
ALL = {"annotations": {"allow": {"*": ["*"]}}}
CLASSES = {
    "classes": {
        "gold": {
            "cpu": {"weight": 500, "burst": "idle", "governor": "performance"},
            "rdt": {"l3": "50%"},
            "scheduling": {"nice": 5},
            "memory": {"low": "50%"},
            "irq": "away",
        },
        "batch": {
            "for": {"qos": ["BestEffort"]},
            "cpu": {"idle": True},
            "memory": {"high": "90%", "swapMax": 0},
            "blockIO": {"weight": 10, "devices": [{"paths": ["/dev/sd*"], "readBps": "1M"}]},
        },
    }
}
CHOICES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "none": ("none", {}),
    "static": ("static", {"reservedCpus": "0"}),
    "static-plus": ("static", {"reservedCpus": "0", "sharedRemainder": True, "cpuQuota": "lift", **ALL, **CLASSES}),
    "pools": ("pools", {"reservedCpus": "0", "pools": [
        {"name": "p0", "cpu": 2, "instances": 1, "exclusive": True}], **ALL}),
    "balloons": ("balloons", {"reservedCpus": "0", "balloonTypes": [
        {"name": "b0", "maxCPUs": 2}, {"name": "b1", "annotationNamespaces": ["team"]}]}),
    "balloons-all": ("balloons", {"reservedCpus": "0", "balloonTypes": [
        {"name": "b0", "maxCPUs": 2, "groupBy": "${pod/labels/app}-${pod/namespace}"}], **ALL,
        "preserve": {"matchExpressions": [{"key": "name", "operator": "Equals", "values": ["web"]}]}}),
    "topology-aware": ("topology-aware", {"reservedCpus": "0"}),
    "topology-aware-all": ("topology-aware", {"reservedCpus": "0", "cpuQuota": "lift", "colocatePods": True, **ALL}),
    "topology-aware-classes": ("topology-aware", {"reservedCpus": "0", **ALL, **CLASSES}),
    "balloons-classes": ("balloons", {"reservedCpus": "0", **CLASSES, "balloonTypes": [{"name": "b0", "maxCPUs": 2}]}),
}  # fmt: skip
"""Policies, each with options that matter to tenants."""


class CountingLog(RecordingLog):
    """Renders each line as the journal gets it, and keeps how much that was and what was no line of daily life."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0
        self.errors: list[str] = []

    def _line(self, level: str, event: str, **keys: object) -> None:
        logger = log._Logger("criproxy", lambda _: None)
        text = log._render_journal(logger, level, log._completed(logger, level, {"event": event, **keys}))
        self.size_bytes += len(text.encode())
        if level == "error":
            self.errors.append(text[:2000])

    def info(self, event: str, **keys: object) -> None:
        """A line."""
        self._line("info", event, **keys)

    def warning(self, event: str, **keys: object) -> None:
        """A line that somebody should read."""
        self._line("warning", event, **keys)

    def error(self, event: str, **keys: object) -> None:
        """A line that must not be."""
        self._line("error", event, **keys)


@dataclass
class Rig:
    """A node under one of `CHOICES`."""

    world: World
    log: CountingLog
    reserved: frozenset[int]
    answers: LiveNode
    keys: list[str] = field(default_factory=list)
    """The containers that behave."""
    history_bytes: int = 0
    lives: int = 0
    refusals: int = 0
    started: int = 0

    async def settle(self) -> None:
        """Two pods that behave: one with a CPU for itself, one that shares."""
        for pod in (owner("trader"), sharer("shop")):
            self.keys.append(await self.world.run(pod))
        await self.world.rested()
        outbox = self.world.controller.context.state._outbox
        write = outbox._write

        def counted(record: Record) -> None:
            self.history_bytes += len(json.dumps([record.sentences, dict(record.facts)], default=str))
            write(record)

        outbox._write = counted

    def places(self) -> dict[str, Grant]:
        """Where those are that behave."""
        grants = self.world.controller.node.grants
        return {key: replace(grants[key], pool="", home=frozenset()) for key in self.keys if key in grants}

    async def live(self, attempt: Attempt) -> list[str]:
        """All that is wrong when this pod comes, runs, is resized and goes."""
        self.lives += 1
        before, begun_s, wrong = self.places(), time.process_time(), list[str]()
        self.log.size_bytes, self.history_bytes = 0, 0
        self.log.errors.clear()
        made = await self._asked("RunPodSandbox", api.RunPodSandboxRequest(config=attempt.sandbox), wrong)
        if made is None:
            return wrong
        pod = made.pod_sandbox_id
        try:
            wrong += await self._container(attempt, pod)
            wrong += self._apart(before)
        finally:
            await self.world.kubelet.remove_pod(pod)
        await self._gone(pod, before, wrong)
        await self.world.controller.context.state.flush()  # all of it is told
        cpu_s = time.process_time() - begun_s
        wrong += [f"it took {cpu_s:.1f} s of CPU time"] * (cpu_s > CPU_S)
        wrong += [f"{self.log.size_bytes} bytes were logged"] * (self.log.size_bytes > MAX_LOG_BYTES)
        wrong += [f"{self.history_bytes} bytes went into the history"] * (self.history_bytes > MAX_HISTORY_BYTES)
        return wrong + [f"an error was logged: {line}" for line in self.log.errors]

    async def _container(self, attempt: Attempt, pod: str) -> list[str]:
        """What is wrong with the container of the pod."""
        create = api.CreateContainerRequest(
            pod_sandbox_id=pod, config=attempt.container, sandbox_config=attempt.sandbox
        )
        wrong, names = list[str](), attempt.sandbox.metadata
        made = await self._asked("CreateContainer", create, wrong)
        if made is None:
            self.refusals += 1
            title = "/".join(filter(None, (names.namespace, names.name, attempt.container.metadata.name)))
            return wrong + await self._shown(title)
        self.started += 1
        key = made.container_id
        try:
            await self.world.kubelet.start(key)
        except RuntimeCallError as error:  # the runtime tries CPUs that only the policy none lets pass
            theirs = error.details.startswith("failed to create containerd task")
            return [] if theirs else [f"StartContainer: the kubelet hears {error}"]
        wrong += self._in_order("after its start")
        await self.world.controller.context.state.flush()  # it is on disk, as where it runs for longer
        update = api.UpdateContainerResourcesRequest(container_id=key, linux=attempt.resize)
        await self._asked("UpdateContainerResources", update, wrong)
        wrong += self._in_order("after its resize")
        return wrong + await self._shown(key)

    def _in_order(self, when: str) -> list[str]:
        return [f"{when}: {text}" for text in violations(self.world.controller.node, self.reserved)]

    def _apart(self, before: Mapping[str, Grant]) -> list[str]:
        """Whether those that behave are disturbed while the hostile pod is there."""
        wrong, now = list[str](), self.places()
        for key, grant in before.items():
            if key not in now:
                wrong.append(f"{key} has no place any more")
            elif now[key].exclusive != grant.exclusive:
                wrong.append(f"{key} has other CPUs for itself")
            elif not now[key].cpus:
                wrong.append(f"{key} has no CPU")
        return wrong

    async def _gone(self, pod: str, before: Mapping[str, Grant], wrong: list[str]) -> None:
        """Whether everything is as before, once the hostile pod has gone."""
        try:
            async with asyncio.timeout(GONE_S):
                node = self.world.controller
                await self.world.poll(lambda: pod not in node.node.pods and not node.node.containers_of(pod))
                await self.world.poll(lambda: self.places() == before)
                await self.world.poll(lambda: all(in_place(self.world, key) for key in self.keys))
        except TimeoutError:
            wrong.append(f"the others are elsewhere than before: {before} → {self.places()}")
        wrong += self._in_order("after its end")

    async def _asked(self, method: str, request: Message, wrong: list[str]) -> Any:  # noqa: ANN401 (its reply)
        """The reply to a call; None where it is refused, and *wrong* has what is wrong with the refusal."""
        try:
            return await self.world.client.call(method, request, METHODS[method].reply, CALL_S)
        except RuntimeCallError as error:
            wrong += await self._theirs(method, request, error)

    async def _theirs(self, method: str, request: Message, error: RuntimeCallError) -> list[str]:
        """What is wrong with a refusal: one of ours has a code and a sentence of ours, else it is the runtime's."""
        if error.code in OURS and error.details.startswith(("container ", "pod ")):
            return [f"{method}: {error.details}" for word in FORBIDDEN if word in error.details]
        said = [await self._directly(method, request)]
        if isinstance(request, api.UpdateContainerResourcesRequest):
            request.linux.cpuset_cpus = ""  # criproxy sends its own: then the memory nodes may be what is wrong
            said.append(await self._directly(method, request))
        if (error.code, error.details) in said:
            return []
        return [f"{method}: the kubelet hears {error}, and the runtime would say {said}"]

    async def _directly(self, method: str, request: Message) -> tuple[StatusCode, str] | None:
        """What the runtime says without criproxy; None if it does not refuse."""
        try:
            await self.world.direct.call(method, request, METHODS[method].reply, CALL_S)
        except RuntimeCallError as error:
            return error.code, error.details
        return None

    async def _shown(self, text: str) -> list[str]:
        """What is wrong with that which commands print now."""
        handlers, wrong = commands(self.answers), list[str]()
        if self.lives % (SHOWN_EACH if len(text) < 1000 else 2):
            return []
        for name, arguments, render in (
            ("status", {}, lambda values: status_table.render(values, 200)),
            ("explain", {"container": text}, explain_text.render),
            ("devices", {}, lambda values: devices_table.render(values, 200)),
        ):
            try:
                encoded: Any = await handlers[name](arguments)
            except CriproxyError:
                continue  # a name that cannot be asked for, since it is none or another one's, too
            values = json.loads(encoded.text if hasattr(encoded, "text") else encoded)
            file = StringIO()
            console(file, UNLIMITED).print(render(values))
            shown = "\n".join(line.rstrip() for line in file.getvalue().split("\n"))
            if not all(line.isprintable() for line in shown.split("\n")):
                wrong.append(f"{name} prints what a terminal acts on")
            if len(shown) > MAX_SHOWN_CHARS:
                wrong.append(f"{name} prints {len(shown)} characters")
        return wrong


def in_place(world: World, key: str) -> bool:
    """Whether a container is where it was granted."""
    grant = world.controller.node.grants.get(key)
    return grant is None or world.runtime.cpuset(key) is None or world.cpus(key) == format_cpuset(grant.cpus)


def policy_of(choice: str) -> Policy:
    """The policy of one of `CHOICES`."""
    name, options = CHOICES[choice]
    entry = find(name)
    return entry.build(options_model(entry, options).model_validate(options))


async def make_rig(directory: Path, choice: str) -> tuple[World, Rig]:
    """A world that is not entered yet, and the rig around it; devices are on."""
    host(directory, [f"GPU-{minor:04x}" for minor in range(8)])
    policy = policy_of(choice)
    settings = replace(FAST, devices=DeviceRules(classes=(NVIDIA,)), policy_name=CHOICES[choice][0])
    world = World(directory, settings=settings, policy=policy, topology=MACHINE)
    counting = CountingLog()
    world.log, world.limit_s = counting, None
    await world.__aenter__()
    reserved = options_of(policy).reserved(MACHINE)
    rig = Rig(world, counting, reserved, LiveNode(world.controller))
    await rig.settle()
    return world, rig
