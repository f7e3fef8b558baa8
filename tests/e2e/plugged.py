"""All parts in front of a real containerd: a made-up kubelet, our device plugin and criproxy, each of them a process.

The cards are those of a made-up machine; their device nodes have to be on this one, too (`device_nodes`).
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from criproxy.cri import api_pb2 as api
from lab.containerd.containerd import PrivateContainerd
from lab.kubelet.device_endpoint import Given, add
from lab.kubelet.kubelet import PodSpec
from tests.daemons import until
from tests.deviceplugin.hosts import Host
from tests.deviceplugin.kubelet import CHECKPOINT, FakeKubelet, Pod
from tests.deviceplugin.news import PATIENT_S
from tests.deviceplugin.program import Program
from tests.e2e.scene import Scene, proxied
from tests.e2e.test_devices import DENIED, inside, process_env

POLICY = """\
policy: topology-aware
devices:
  podresources: {{socket: "{kubelet}/pod-resources/kubelet.sock"}}
  checkpoint: "{kubelet}/device-plugins/{checkpoint}"
  classes: [{kind}]
  plugin: {{advertise: [{advertised}]}}
"""
KINDS = {
    "nvidia": "nvidia",
    "ali-npu": '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}',
}
ABSENT = "No such file or directory"
_OF_ALL = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
"""/dev/null, and the like."""
_OF_THE_RUNTIME = {"PATH", "HOSTNAME", "HOME", "TERM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a container has of cards: as runc was told, and as a process inside finds it."""

    env: tuple[str, ...]
    """Told, in alphabetical order."""
    nodes: frozenset[tuple[str, int, int]]
    """Told: path, major and minor number."""
    rules: frozenset[tuple[int, int]]
    """Told: the numbers of the nodes that may be used, beside those of every container."""
    mounts: tuple[tuple[str, str], ...]
    """Told: sources on the host and destinations, in the order of the latter, but for those of containerd.

    Of several at one place, the last one is seen: containerd 2 leaves one below that which a plugin adds instead.
    """
    process_env: tuple[str, ...]
    """Found, in alphabetical order."""
    opened: frozenset[str]
    """Found: the nodes that are there and that the kernel lets it use."""


@dataclass(slots=True)
class Plugged:
    """One node."""

    scene: Scene
    program: Program
    containerd: PrivateContainerd
    watched: tuple[str, ...]
    """Device nodes that containers try to open."""
    _sandboxes: dict[str, str] = field(default_factory=dict)
    """By the UID of the pod."""

    @property
    def kubelet(self) -> FakeKubelet:
        """The kubelet."""
        return self.program.kubelet

    async def admit(self, spec: PodSpec, wanted: Mapping[str, int], *, running: bool = False) -> Mapping[str, Given]:
        """What the only container of *spec* gets: the kubelet allocates before it creates the sandbox."""
        return await self.kubelet.admit(Pod(spec.uid, spec.name), wanted, running=running)

    async def create(self, spec: PodSpec, given: Mapping[str, Given], *volumes: api.Mount, attempt: int = 0) -> str:
        """Create the container with what was *given*, and its *volumes*; its id."""

        def give(config: api.ContainerConfig) -> None:
            add(config, given.values())
            config.mounts.extend(volumes)

        sandbox_id = self._sandboxes.get(spec.uid) or await self.scene.kubelet.run_sandbox(spec)
        self._sandboxes[spec.uid] = sandbox_id
        return (await self.scene.create(spec, give, sandbox_id=sandbox_id, attempt=attempt)).container_id

    async def run(self, spec: PodSpec, given: Mapping[str, Given], *volumes: api.Mount, attempt: int = 0) -> str:
        """Create and start the container; its id."""
        container_id = await self.create(spec, given, *volumes, attempt=attempt)
        await self.scene.kubelet.start(container_id)
        return container_id

    async def end(self, container_id: str) -> None:
        """Let the container end by itself."""
        os.kill(await self.scene.pid(container_id), signal.SIGKILL)
        await self.scene.has_exited(container_id)

    async def complete(self, spec: PodSpec, container_id: str) -> None:
        """Let the pod's container end by itself: the kubelet stops the sandbox, and frees what the pod had."""
        await self.end(container_id)
        await self.scene.kubelet.stop_sandbox(self._sandboxes[spec.uid])
        self.kubelet.remove(Pod(spec.uid))

    async def sees(self, container_id: str) -> Seen:
        """What a running container has."""
        told, opens = self._told(container_id), await self.opens(container_id)
        return Seen(
            env=_own(told["process"]["env"]),
            nodes=frozenset((each["path"], each["major"], each["minor"]) for each in told["linux"].get("devices", ())),
            rules=frozenset(_numbers(told["linux"]["resources"]["devices"])),
            mounts=self._mounts(told["mounts"]),
            process_env=_own(await process_env(self.scene, container_id)),
            opened=frozenset(self.watched) - {path for path, said in opens.items() if said in (ABSENT, DENIED)},
        )

    async def opens(self, container_id: str) -> dict[str, str]:
        """What a process inside is told that cannot open nodes."""
        lines = (await inside(self.scene, container_id, "cat", *self.watched)).splitlines()
        return {path: line.rpartition(": ")[2] for path in self.watched for line in lines if f"{path}'" in line}

    async def until_held(self, kind: str, number: int, by: set[str]) -> None:
        """Return when these pods have a card: what follows a stop is done after its reply."""

        async def is_held() -> bool:
            return await self._holders(kind, number) == by

        await until(is_held)

    async def _holders(self, kind: str, number: int) -> set[str]:
        """The pods that have a card, as `criproxy devices` shows them."""
        answer = await self.scene.serve.ask("devices")
        cards = next(each["cards"] for each in answer["classes"] if each["name"] == kind)
        (card,) = [each for each in cards if each["number"] == number]
        return {each["pod"] for each in card["containers"]}

    def _mounts(self, told: Iterable[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
        own = str(self.containerd.directory)
        found = [(each["source"], each["destination"]) for each in told if each["type"] == "bind"]
        seen = {destination: source for source, destination in found if not source.startswith(own)}
        return tuple(sorted(((source, destination) for destination, source in seen.items()), key=itemgetter(1)))

    def _told(self, container_id: str) -> Any:  # noqa: ANN401 (JSON)
        """The OCI specification as runc was given it."""
        bundles = "state/io.containerd.runtime.v2.task/k8s.io"
        return json.loads((self.containerd.directory / bundles / container_id / "config.json").read_text())


def _own(env: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(each for each in env if each and each.partition("=")[0] not in _OF_THE_RUNTIME))


def _numbers(rules: Iterable[Mapping[str, Any]]) -> Iterable[tuple[int, int]]:
    found = [(rule.get("major", -1), rule.get("minor", -1)) for rule in rules if rule["allow"]]
    return [numbers for numbers in found if -1 not in numbers and numbers not in _OF_ALL]


@asynccontextmanager
async def plugged(
    folder: Path,
    containerd: PrivateContainerd,
    advertised: str,
    plug: Callable[[Host], None],
    watched: Iterable[str],
    nvidia: str = "version: v1",
) -> AsyncIterator[Plugged]:
    """Start all parts.

    Args:
        folder: for everything; its path has to be short.
        containerd: the runtime.
        advertised: the only class, whose cards are offered: a key of `KINDS`.
        plug: gives the made-up machine its cards.
        watched: device nodes that containers try to open.
        nvidia: NVIDIA's file.
    """
    (places := folder / "p").mkdir()
    (folder / "s").mkdir()
    (folder / "nvidia.yaml").write_text(nvidia)
    async with (
        asyncio.timeout(PATIENT_S * 2),
        Program(places, "--nvidia-config", str(folder / "nvidia.yaml")) as program,
    ):
        plug(program.host)
        await program.kubelet.start()
        policy = POLICY.format(
            kubelet=program.kubelet.root, checkpoint=CHECKPOINT, kind=KINDS[advertised], advertised=advertised
        )
        drivers = ("-m", "tests.e2e.with_drivers", str(program.host.root))
        async with proxied(folder / "s", containerd, policy, drivers) as scene:
            program.policy, program.control = scene.serve.policy, scene.serve.control
            await program.ready()
            yield Plugged(scene, program, containerd, tuple(watched))
