"""The kubelet's part with pods: admits them, starts and restarts their containers, ends them; again where it failed."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from lab.kubelet.device_endpoint import AdmissionError, add
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, container_config, sandbox_config
from lab.lives.expected import card_of
from lab.lives.machine import NODE_OF, Machine
from lab.lives.node import CRIPROXY, EXEMPT, RUNTIME, Node
from lab.lives.pods import VISIBLE, Running, Wish, sees, should_see
from tests.deviceplugin.kubelet import Pod
from tests.node.world import GIB

TRIES_S = 20.0
"""So long the kubelet tries what fails, with all parts there."""
_PAUSE_S = 0.05


@dataclass(slots=True)
class Workloads:
    """The pods of one node."""

    node: Node
    machine: Machine
    running: dict[str, Running] = field(default_factory=dict)
    waiting: dict[str, Wish] = field(default_factory=dict)
    """Made while the kubelet was away."""
    wrong: list[str] = field(default_factory=list)
    """What containers saw that they should not, and the like."""
    admitted: int = 0
    refused: int = 0
    created: int = 0
    admitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The kubelet does not end while it admits a pod."""

    async def make(self, wish: Wish) -> None:
        """Somebody makes a pod."""
        if not self.node.up["kubelet"]:
            self.waiting[wish.name] = wish
            return
        async with self.admitting:
            await self._admit(wish)

    def end(self, name: str) -> None:
        """Somebody deletes a pod."""
        self.waiting.pop(name, None)
        if name in self.running:
            self.running[name].ending = True

    def crash(self, name: str) -> None:
        """The main container of a pod ends by itself."""
        pod = self.running.get(name)
        if pod is not None and "main" in pod.containers and not pod.ending:
            self.node.world.runtime.exit_container(pod.containers.pop("main"), 1)
            pod.started = False

    async def sync(self) -> None:
        """Do what is to be done, if the parts are there that it takes."""
        if not self.node.complete:
            return
        for wish in [*self.waiting.values()]:
            del self.waiting[wish.name]
            async with self.admitting:
                await self._admit(wish)
        for pod in [*self.running.values()]:
            await self._again(pod)

    async def kubelet_is_back(self) -> None:
        """It admits the pods that it had anew; those that run pass, the others are judged."""
        for pod in [*self.running.values()]:
            for name, wanted in pod.wish.containers:
                try:
                    await self.node.kubelet.admit(
                        _pod(pod.wish), wanted, name, init=_is_init(name), running=pod.started
                    )
                except AdmissionError:
                    pod.ending = True
                    break

    # ---------------------------------------------------------------- one pod

    async def _admit(self, wish: Wish) -> None:
        pod = Running(wish)
        for name, wanted in wish.containers:
            try:
                given = await self.node.kubelet.admit(_pod(wish), wanted, name, init=_is_init(name))
            except AdmissionError:
                self.node.kubelet.remove(_pod(wish))
                self.refused += 1
                return
            pod.given[name] = given
        self.running[wish.name] = pod
        self.admitted += 1

    async def _again(self, pod: Running) -> None:
        """Bring a pod to where it should be, and try again what fails."""
        until_s = asyncio.get_running_loop().time() + TRIES_S
        while True:
            try:
                await (self._ended(pod) if pod.ending else self._started(pod))
                return
            except RuntimeCallError as error:
                if error.code is StatusCode.RESOURCE_EXHAUSTED:
                    return  # no CPU can be its own, next to containers whose cards keep them where they are
                if asyncio.get_running_loop().time() > until_s:
                    self.wrong.append(f"{pod.wish.name} cannot be started or ended: {error}")
                    return
                await asyncio.sleep(_PAUSE_S)

    async def _started(self, pod: Running) -> None:
        if pod.started:
            return
        spec = pod.wish.spec
        if not pod.sandbox:
            pod.sandbox = self._sandbox(spec.uid) or await self.node.world.kubelet.run_sandbox(spec)
        for name, _ in pod.wish.containers:
            if name not in pod.containers:
                pod.containers[name] = key = await self._created(pod, name)
                await self.node.world.kubelet.start(key)
                if _is_init(name):
                    self.node.world.runtime.exit_container(key)
        pod.started = True

    async def _created(self, pod: Running, name: str) -> str:
        world, spec = self.node.world, pod.wish.spec
        attempt = pod.attempts[name] = pod.attempts.get(name, -1) + 1
        kind = next(each for each in spec.containers if each.name == name)
        request = api.CreateContainerRequest(
            pod_sandbox_id=pod.sandbox,
            config=container_config(spec, kind, 8 * GIB, attempt),
            sandbox_config=sandbox_config(spec),
        )
        add(request.config, pod.given[name].values())
        if pod.wish.asks_for_all:
            request.config.envs.add(key=VISIBLE, value=b"all")
        request.config.linux.security_context.privileged = pod.wish.privileged
        reply = await world.client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        key: str = reply.container_id
        self._judge(pod, name, world.runtime.core.records.containers[key].config)
        return key

    async def _ended(self, pod: Running) -> None:
        kubelet = self.node.world.kubelet
        if sandbox := pod.sandbox or self._sandbox(pod.wish.spec.uid):
            await kubelet.stop_sandbox(sandbox)
        self.node.kubelet.remove(_pod(pod.wish))
        if sandbox:
            await kubelet.remove_pod(sandbox)
        self.running.pop(pod.wish.name, None)

    def _sandbox(self, uid: str) -> str:
        """That of a pod, also where the answer that told its id was lost."""
        sandboxes = self.node.world.runtime.core.records.sandboxes.values()
        return next((each.id for each in sandboxes if each.config.metadata.uid == uid and each.ready), "")

    def _judge(self, pod: Running, name: str, config: api.ContainerConfig) -> None:
        """Look at what the runtime was told of a container."""
        self.created += 1
        ids = [one for given in pod.given[name].values() for one in given.ids]
        visible, nodes = sees(config)
        should, there = should_see(ids, self.machine)
        if pod.wish.namespace == EXEMPT:  # it gets what the kubelet says: of one variable, the last resource's value
            should, there = {"all"} if pod.wish.asks_for_all else should & visible, set()
        everything = {NODE_OF.get(card_of(one), "") for one in ids}
        if visible != should:
            self.wrong.append(f"{pod.wish.name}/{name} has {ids}, and sees {sorted(visible)}")
        if not there <= nodes <= everything:
            self.wrong.append(f"{pod.wish.name}/{name} has {ids}, and gets the nodes {sorted(nodes)}")

    # ---------------------------------------------------------------- all of them

    def twice(self) -> str:
        """Which card is given to two pods though one of them has it alone; empty: none."""
        owners: dict[str, list[tuple[str, str]]] = {}
        for (uid, _), given in self.node.kubelet.manager.given.items():
            for resource, each in given.items():
                for one in each.ids:
                    owners.setdefault(card_of(one), []).append((uid, f"{resource} {one}"))
        for card, those in owners.items():
            whole = [uid for uid, one in those if "::" not in one]
            if whole and len({uid for uid, _ in those}) > 1:
                return f"{card} is given to several pods: {', '.join(one for _, one in those)}"
        return ""

    def daemon_differs(self) -> str:
        """In which way what criproxy knows of containers' ids is not what the kubelet gave them; empty: in none."""
        if not (self.node.up[CRIPROXY] and self.node.up[RUNTIME]):
            return ""
        controller = self.node.world.controller
        for pod in self.running.values():
            for name, key in pod.containers.items():
                if _is_init(name) or not pod.started:
                    continue
                container = controller.node.containers.get(key)
                should = {resource: tuple(given.ids) for resource, given in pod.given[name].items()}
                facts = controller.devices.holdings.of(container) if container else None
                has = _allocated(facts or {})
                if container is None or has != should:
                    return f"{pod.wish.name}/{name} has {should}, and criproxy knows {has if container else 'nothing'}"
        return ""


def _allocated(facts: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key, value in facts.items():
        if key.endswith("_allocated") and isinstance(value, dict):
            found |= {resource: tuple(share["ids"].split(",")) for resource, share in value.items()}
    return found


def _is_init(name: str) -> bool:
    return name.startswith("init")


def _pod(wish: Wish) -> Pod:
    return Pod(wish.spec.uid, wish.name, wish.namespace)
