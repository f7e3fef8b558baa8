"""A node of the matrix: criproxy on the embedded runtime, as its daemon builds it, with faults to be switched."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from criproxy.api.live import LiveNode
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.cri.stamp import ANNOTATION
from criproxy.devices.classes.offers import card_of
from criproxy.devices.classes.vgpu_profiles import is_vgpu
from criproxy.devices.evidence.device_request import Response
from criproxy.devices.evidence.evidence import own_annotations
from criproxy.errors import StatusCode, StoreError
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.model.resources import DEFAULT_PERIOD_US, milli_to_quota, milli_to_shares
from criproxy.model.text.notices import Notice
from criproxy.node.bypass import Bypass, BypassMode
from criproxy.node.configuration.in_place import InPlaceOfFile
from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.configuration.load import load_configuration
from criproxy.node.configuration.reload import Reload
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import options_of
from criproxy.process.systemd import Notifier
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from lab.chaos.checker.cgroups import Cgroups, CpuSet
from lab.emulator.runtime import IMAGE, RuntimeOptions
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.matrix.oracle import Asked, Ledger
from tests.node.devices.test_create_checks_vgpu import allocated
from tests.node.devices.test_guard import host
from tests.node.world import FAST, PATIENT_STORE, Slow, World

MACHINE = machine(nodes=2, cores=8, threads=1)
RESERVED = frozenset({0})
MEMORY_BYTES = 64 << 20
CAPACITY_BYTES = 8 << 30
REST_S = 60.0
"""Within this time all that is under way must have ended."""
PLACED_S, UNPLACED = 2.0, "without having been placed"
"""How soon who has no place gets one, if there is room, and what is said until then."""
BARRIER_S = 60.0
"""How long a start waits for others to give up CPUs."""
OPTIONS = {
    "none": "",
    "static": 'reservedCpus: "0"\n',
    "topology-aware": 'reservedCpus: "0"\n',
    "balloons": 'reservedCpus: "0"\n'
    "balloonTypes: [{name: database, minCPUs: 2, maxCPUs: 4, preferNewBalloons: true}]\n",
    "pools": 'reservedCpus: "0"\npools: [{name: pair, cpu: 2, instances: 2, maxPods: 3}, '
    '{name: alone, exclusive: true, cpuLists: [{cpuset: "12-13"}, {cpuset: "14-15"}]}]\n',
}
"""What a policy file of the matrix says beside the policy's name."""
OURS = frozenset({StatusCode.RESOURCE_EXHAUSTED, StatusCode.INVALID_ARGUMENT})
"""With these codes, and a sentence, criproxy may refuse a container."""


def policy_file(policy: str, devices: str, privileged: str, section: str = "", *, everybody: bool) -> str:
    """A policy file.

    Args:
        policy: of `OPTIONS`.
        devices: ``absent``, or a value of hideUnallocated.
        privileged: a value of the option of that name; empty for the default.
        section: what is below devices.plugin; empty for no such section.
        everybody: apply: all.
    """
    text = f"policy: {policy}\n{OPTIONS[policy]}apply: {'all' if everybody else 'new'}\n"
    text += 'annotations: {allow: {"*": ["*"]}}\n'
    if devices == "absent":
        return text
    text += f"devices:\n  classes: [nvidia]\n  hideUnallocated: {devices}\n"
    text += '  podresources: {socket: "", timeout: 50ms}\n  checkpoint: /k/checkpoint\n'
    text += f"  plugin: {section}\n" if section else ""
    return text + (f"  privileged: {privileged}\n" if privileged else "")


@dataclass(slots=True)
class Disk:
    """Whether the disk has room, over restarts of criproxy."""

    full: bool = False
    failures: int = 0
    """Writes that failed since it is full."""


class FillableStore(Store):
    """A store on a disk that can be full."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._disk = disk
        super().__init__(directory, may_fail=True)

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        if self._disk.full:
            self._disk.failures += 1
            raise StoreError("the state database cannot be written: database or disk is full")
        super()._save(before, after, records)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a pod of one container, ``main``."""

    pod: PodSpec
    sandbox_id: str
    container_id: str = ""
    refusal: RuntimeCallError | None = None


@dataclass(slots=True)
class Asks:
    """What a pod's create says beside its sizes."""

    envs: tuple[tuple[str, str], ...] = ()
    privileged: bool = False
    card: str = ""
    """The id that our device plugin has allocated: what it answers comes before what the pod says."""


class Scene(World):
    """One node of the matrix, whose policy is that of a file."""

    limit_s = None

    def __init__(
        self, directory: Path, policy: str, devices: str, privileged: str, section: str = "", *, everybody: bool
    ) -> None:
        self.file = directory / "policy.yaml"
        self._words = partial(policy_file, devices=devices, privileged=privileged, everybody=everybody)
        self.everybody, self._said, self.section = everybody, policy, section
        self.file.write_text(self._words(policy, section=section))
        self.disk = Disk()
        self.slow = Slow()
        self.ledger = Ledger(policy)
        self.runs: list[Ran] = []
        self.stranger = Asks()
        """Of a pod that comes while criproxy is down."""
        (directory / "k").mkdir()
        self.allocations = Allocations(directory / "k/sock", directory / "k/checkpoint")
        self.allocations.write()
        host(directory)
        hurry = replace(
            FAST,
            barrier_timeout_s=BARRIER_S,
            host_root=directory,
            store=replace(PATIENT_STORE, retry_pause_s=0.02, retry_limit_s=0.05),
        )
        configuration = load_configuration(self.file, MACHINE, replace(hurry, drift_period_s=0.2))
        super().__init__(
            directory, RuntimeOptions(latency_s=self.slow), configuration.settings, configuration.policy, MACHINE
        )
        self.make_store = lambda: FillableStore(directory / "state", self.disk)
        self._cgroups = Cgroups(directory / "sys/fs/cgroup/cpuset/kubepods")
        self.bypass: Bypass
        self.reload: Reload

    async def start_criproxy(self) -> None:
        """With the file as it is now, its bypass and its reload, as the daemon starts it."""
        configuration = load_configuration(self.file, MACHINE, self._settings)
        self.use(configuration.policy)
        self._settings = configuration.settings
        await super().start_criproxy()
        controller = self.controller
        self.bypass = Bypass([self.front], controller.bypass, lambda: bool(controller.problem))
        self.front.on_error = self.bypass.watch(controller.fallback.on_error)
        had_file = configuration.source is not None
        context, in_place = controller.context, InPlaceOfFile(self.file.parent / "state", controller.context)
        keeper, switch = ConfigurationKeeper(in_place.state_dir, self.log), controller.policy_switch
        self.reload = Reload(self.file, had_file, context, switch, in_place, Notifier({}), str, keeper)
        self.answers = LiveNode(controller, self._notices)
        self.ledger.looks()

    async def stop_criproxy(self) -> None:
        """End the bypass's timer first; what it was is forgotten."""
        self.bypass.close()
        self.ledger.away = True
        await super().stop_criproxy()

    async def _notices(self) -> list[Notice]:
        return [Notice("bypass", f"{self.bypass.sentence} ({self.bypass.reason})")] if self.bypass.on else []

    async def reconnect(self) -> None:
        """A connection of the kubelet that does not wait out a pause of grpc."""
        await self.client.close()
        self.client = RuntimeClient(self.client.endpoint)
        self.kubelet = MiniKubelet(self.client)
        await self.asked()

    async def asked(self) -> None:
        """Wait until criproxy is asked about calls: a proxy always is."""

    def heard(self, error: RuntimeCallError) -> RuntimeCallError:
        """The refusal as criproxy has said it."""
        return error

    def next_attempt(
        self, request: api.CreateContainerRequest, error: RuntimeCallError
    ) -> api.CreateContainerRequest | None:
        """The kubelet's next create after a start that has failed, where a proxy would have waited; None: it has."""
        return None

    def has_stamp(self, ran: Ran) -> bool:
        """Whether criproxy has seen the create of a container."""
        return ANNOTATION in self.config(ran).annotations

    async def change_policy(self, policy: str) -> None:
        """Name another policy in the file, and have it read."""
        self._said = policy
        self.file.write_text(self._words(policy, section=self.section))
        await self.reload._once(asked=True)
        if not self.controller.context.in_force.problem:
            self.ledger.reloads(policy, everybody=self.everybody)

    async def change_section(self, section: str) -> None:
        """Say something else below devices.plugin, and have it read: nothing that places anybody."""
        self.section = section
        self.file.write_text(self._words(self._said, section=section))
        await self.reload._once(asked=True)

    @asynccontextmanager
    async def checkpoint_hangs(self) -> AsyncIterator[None]:
        """Whoever opens the kubelet's checkpoint waits until this ends."""
        file = self.allocations.checkpoint
        file.unlink()
        os.mkfifo(file)
        yield
        release = os.open(file, os.O_RDWR | os.O_NONBLOCK)  # who waits gets nothing at all now
        self.allocations.write()
        os.close(release)

    async def bring(self, pod: PodSpec, asks: Asks | None = None, *, direct: bool = False) -> Ran:
        """Run a pod of one container, through criproxy or beside it; a refusal is part of what comes back."""
        client = self.direct if direct else self.client
        sandbox_id = await MiniKubelet(client).run_sandbox(pod)
        request = self.request(pod, sandbox_id, asks or Asks())
        return await self.create(pod, request, client)

    def request(self, pod: PodSpec, sandbox_id: str, asks: Asks, attempt: int = 0) -> api.CreateContainerRequest:
        """The create of the pod's container."""
        config = container_config(pod, pod.containers[0], CAPACITY_BYTES, attempt)
        if asks.card:
            given = _allocated(asks.card)
            self._admit(pod, given)
            config.annotations.update(given.annotations)
            for key, value in {"NVIDIA_VISIBLE_DEVICES": card_of(asks.card), **given.envs}.items():
                config.envs.add(key=key, value=value.encode())
            for mount in given.mounts:
                config.mounts.add(container_path=mount.container_path, host_path=mount.host_path)
            config.devices.add(container_path="/dev/nvidia1", host_path="/dev/nvidia1", permissions="rw")
        for key, value in asks.envs:
            config.envs.add(key=key, value=value.encode())
        config.linux.security_context.privileged = asks.privileged
        return api.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(pod))

    def _admit(self, pod: PodSpec, given: Response) -> None:
        """Write into the kubelet's checkpoint what the pod's container was given; not while that hangs."""
        for resource, ids in own_annotations(given.annotations).resources.items():
            entry = Allocated(
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                container=pod.containers[0].name,
                resource=resource,
                ids=tuple(ids),
            )
            if entry not in self.allocations.entries:
                self.allocations.entries.append(entry)
        if self.allocations.checkpoint.is_file():
            self.allocations.write()

    async def create(self, pod: PodSpec, request: api.CreateContainerRequest, client: RuntimeClient) -> Ran:
        """Create and start it."""
        ran = Ran(pod, request.pod_sandbox_id)
        try:
            reply = await client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
            ran = replace(ran, container_id=reply.container_id)
            self._book(pod, reply.container_id)
            await MiniKubelet(client).start(reply.container_id)
        except RuntimeCallError as error:
            if ran.container_id and (again := self.next_attempt(request, error)):
                await MiniKubelet(client).remove(ran.container_id)
                return await self.create(pod, again, client)
            ran = replace(ran, refusal=self.heard(error))
        self.runs.append(ran)
        return ran

    def _book(self, pod: PodSpec, container_id: str) -> None:
        spec = pod.containers[0]
        wishes = {key.partition(".criproxy.io")[0]: value for key, value in pod.annotations.items()}
        title = f"{pod.namespace}/{pod.name}/{spec.name}"
        self.ledger.creates(container_id, Asked(title, spec.cpu_milli, pod.qos == "Guaranteed", wishes))

    async def resize(self, ran: Ran, milli: int, memory_bytes: int = 0) -> RuntimeCallError | None:
        """What the kubelet sends for a resize in place; the refusal, if it is one."""
        linux = api.LinuxContainerResources(cpu_period=DEFAULT_PERIOD_US, memory_limit_in_bytes=memory_bytes)
        if milli:
            linux.cpu_shares, linux.cpu_quota = milli_to_shares(milli), milli_to_quota(milli)
        try:
            await self.client.update_container_resources(ran.container_id, linux)
        except RuntimeCallError as error:
            self.ledger.resize_refused(ran.container_id)
            return self.heard(error)
        if milli:
            self.ledger.resizes(ran.container_id, milli)
        return None

    def config(self, ran: Ran) -> api.ContainerConfig:
        """The container as the runtime has got it."""
        return self.runtime.core.records.container(ran.container_id).config

    def running(self) -> dict[str, CpuSet]:
        """The kernel's word: containers that run, and their CPUs."""
        return {key: group.cpus for key, group in self._cgroups.running().items()}

    async def check(self) -> dict[str, Any]:
        """What ``criproxy status --check --format json`` prints now."""
        answer: dict[str, Any] = json.loads(await self.answers.status({"check": True}))
        return answer

    async def settled(self) -> dict[str, Any]:
        """What it prints when nothing is under way any more, as the command waits for that."""
        begun_s = time.monotonic()
        deadline_s = begun_s + REST_S
        while True:
            asked = self.controller.ready and not self.controller.resync.error  # a runtime that restarts is asked again
            if asked and not self.busy():
                answer = await self.check()
                if self.mode() is BypassMode.ORDERED:  # nobody moves before it is over
                    return answer
                is_due = self.mode() is BypassMode.OFF and not self.disk.full and time.monotonic() < begun_s + PLACED_S
                waits = is_due and any(UNPLACED in text for text in answer["problems"])
                if not (answer["under_way"] or waits) or time.monotonic() > deadline_s:
                    return answer
            if time.monotonic() > deadline_s:
                return await self.check()
            await asyncio.sleep(0.01)

    def busy(self) -> bool:
        """Whether something of a call is still to be booked."""
        return bool(self.controller.context.in_flight.sent() or self.controller.reconciler._workers)

    def violations(self) -> list[str]:
        """Invariants of the node that do not hold."""
        controller = self.controller
        policy = controller.context.state.policy
        return violations(controller.node, options_of(policy).reserved(controller.node.topology))

    def mode(self) -> BypassMode:
        """The bypass."""
        return self.bypass.mode


def _allocated(card: str) -> Response:
    """What our Allocate answers for a replica or a vGPU, beside the card."""
    if is_vgpu(card):
        return allocated(card, "hami-core", "watch")
    return Response(annotations={"devices.criproxy.io/nvidia.com_gpu": card})


def pod(
    name: str,
    milli: int,
    wishes: Mapping[str, str] | None = None,
    *,
    namespace: str = "default",
    guaranteed: bool = True,
) -> PodSpec:
    """A pod of one container, ``main``; *wishes* are annotations of ours by key."""
    spec = ContainerSpec("main", IMAGE, cpu_request_milli=milli)
    if guaranteed:
        spec = replace(spec, cpu_limit_milli=milli, memory_limit_bytes=MEMORY_BYTES)
    annotations = {f"{key}.criproxy.io/pod": value for key, value in (wishes or {}).items()}
    return PodSpec(name, (spec,), namespace, annotations=annotations)
