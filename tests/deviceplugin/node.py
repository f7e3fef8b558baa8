"""A made-up kubelet, and the device plugins beside it; both can be started anew, one without the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from criproxy.cri.podresources import PodresourcesClient
from criproxy.deviceplugin.resources.kubelet_state import InUse, KubeletInUse
from criproxy.deviceplugin.resources.plugin_manager import AskInUse, PluginManager
from criproxy.deviceplugin.server.plugin import Place, Plugin
from criproxy.deviceplugin.server.resource import Prefer, Resource
from criproxy.deviceplugin.server.state import State, Status, Times
from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.device_request import InvalidRequest, Response
from criproxy.devices.plugin.plan import Register
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from tests.deviceplugin.kubelet import FakeKubelet
from tests.deviceplugin.news import PATIENT_S, News
from tests.node.world import RecordingLog

GPU = "nvidia.com/gpu"
QUICK = Times(
    first_pause_s=0.02,
    longest_pause_s=0.1,
    in_use_soon_s=0.01,
    in_use_s=0.05,
    learn_s=PATIENT_S,
    first_answer_s=PATIENT_S,
    settle_s=0.1,
    poll_s=0.02,
    preference_s=PATIENT_S,
    register_s=PATIENT_S,
    stream_s=PATIENT_S,
    flush_s=PATIENT_S,
    replaced_pauses_s=(3600.0,),
)
"""Pauses that a test does not want to wait for are short; limits whose end would be a failure are long."""


@dataclass(frozen=True, slots=True)
class Named:
    """An allocator that writes the ids into a variable."""

    refuses: str = ""

    def __call__(self, ids: Sequence[str]) -> Response:
        """A response; an error for the id that it refuses."""
        if self.refuses in ids:
            raise InvalidRequest(f"unknown device: {self.refuses}")
        return Response(envs={"IDS": ",".join(ids)})


def devices(ids: Iterable[str], bad: Iterable[str] = ()) -> dict[str, Offered]:
    """Devices with these ids, next to NUMA node 0; *bad* ones are unhealthy."""
    unhealthy = set(bad)
    return {each: Offered(id=each, numa_node=0, healthy=each not in unhealthy) for each in ids}


def offer(
    *ids: str, name: str = GPU, bad: Iterable[str] = (), preference: Prefer | None = None
) -> Mapping[str, Resource]:
    """One resource with these ids, for `PluginManager.publish`."""
    return {name: Resource(name=name, devices=devices(ids, bad), allocate=Named(), preference=preference)}


class Log(RecordingLog, News):
    """A log whose lines a test can wait for."""

    def __init__(self) -> None:
        RecordingLog.__init__(self)
        News.__init__(self)

    def info(self, event: str, **keys: object) -> None:
        """Keep a line, and wake who waits for one."""
        super().info(event, **keys)
        self.wake()

    warning = error = info


@dataclass(slots=True, repr=False)
class Node:
    """The kubelet's folder, the kubelet, and the device plugin."""

    root: Path
    way: Register = "kubelet"
    times: Times = QUICK
    is_ours: Callable[[str], bool] = lambda _: False
    log: Log = field(default_factory=Log)
    failures: Failures = field(default_factory=Failures)
    kubelet: FakeKubelet = field(init=False)
    plugins: PluginManager = field(init=False)
    tasks: Tasks = field(init=False)
    ask: KubeletInUse | None = None
    """Asks the kubelet which ids are in use."""
    states: list[list[State]] = field(default_factory=list)
    """Those of all resources, after each change of one."""
    answers: int = 0
    """How often the plugin has asked which ids are in use; what came of it counts before it asks again."""

    def __post_init__(self) -> None:
        self.kubelet = FakeKubelet(self.root)

    def start_plugins(self, *ids: str, **keys: object) -> None:
        """Start the device plugin as its process does, and offer these *ids*; *keys* are fields of their resource."""
        self.tasks = Tasks(self.log, self.failures, first_pause_s=0.01, stop_s=PATIENT_S)
        connect = partial(PodresourcesClient, stat_s=PATIENT_S)
        # As in production, a question that is under way when the kubelet stops waits for another one, but not for ever.
        self.ask = KubeletInUse(self.kubelet.podresources.socket, self.log, connect=connect)
        self.plugins = PluginManager(
            Place(kubelet_dir=self.root, way=self.way),
            self._in_use(self.ask),
            self.tasks,
            is_ours=self.is_ours,
            times=self.times,
            state_changed=lambda: self.states.append([each.state for each in self.plugins.status]),
        )
        self.plugins.start()
        if ids:
            self.plugins.publish(changed(offer(*ids), **keys))

    def _in_use(self, ask: AskInUse) -> AskInUse:
        async def counted() -> InUse | None:
            self.answers += 1
            self.log.wake()
            return await ask()

        return counted

    async def stop_plugins(self) -> None:
        """End the device plugin, as its process does."""
        if self.ask is not None:
            await self.plugins.stop()
            await self.tasks.stop()
            await self.ask.close()
            self.ask = None

    async def stop(self) -> None:
        """End everything."""
        await self.stop_plugins()
        await self.kubelet.stop()

    def status(self, resource: str = GPU) -> Status:
        """What the plugin of *resource* says of itself."""
        return next(each for each in self.plugins.status if each.resource == resource)

    @property
    def plugin(self) -> Plugin:
        """That of `GPU`."""
        return self.plugins._plugins[GPU]

    async def until_state(self, state: State, resource: str = GPU) -> Status:
        """Return when the plugin of *resource* is in *state*."""
        await self.log.until(lambda: self.status(resource).state is state)
        return self.status(resource)

    def said(self, text: str) -> int:
        """How many log lines have *text*, in their sentence or a value."""
        return sum(text in str(line) for line in self.log.lines)


def changed(resources: Mapping[str, Resource], **keys: object) -> Mapping[str, Resource]:
    """The same resources with other fields."""
    return {name: replace(each, **keys) for name, each in resources.items()}  # type: ignore[arg-type]


async def started(node: Node, *ids: str, **keys: object) -> None:
    """Start the kubelet and the device plugin, and wait until the kubelet has the ids; *keys* are of the resource."""
    await node.kubelet.start()
    node.start_plugins(*ids, **keys)
    await node.kubelet.until_capacity(GPU, len(ids))
