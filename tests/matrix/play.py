"""Plays one case: containers come before, within and after what happens, and at each rest all must be right."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode
from criproxy.node.bypass import BypassMode
from tests.matrix.cases import VALUES, Case
from tests.matrix.fronts import SCENES
from tests.matrix.moments import MOMENTS
from tests.matrix.oracle import Wrong, disagreements, wrongs
from tests.matrix.scene import OURS, RESERVED, Asks, Ran, Scene, pod
from tests.matrix.vgpus import FOR_CARD, SWITCH, UNSAID, Vgpus
from tests.matrix.vgpus import HELD as HELD_VGPU
from tests.matrix.vgpus import SECTION as VGPU_SECTION
from tests.nri.cannot import PRIVILEGED, REASONS, cannot

CARD = "NVIDIA_VISIBLE_DEVICES"
HELD = "GPU-b"
FAILED = {"device_class": "nvidia", "card": HELD, "since_s": 1700000000.0, "reason": "XID 79", "action": "stop"}
SECTION, OTHER_SECTION = "{}", "{sharing: [{resource: nvidia.com/gpu, replicas: 5}]}"
EXPECTED_ERRORS = {
    "disk full": {
        "state cannot be stored; criproxy continues in memory",
        "call not handled",
        "state lost: the runtime is asked at the next start",
    }
}
"""What is logged as an error, and should be, by what happens."""
FAILURES = frozenset({"disk full", "bypass automatic"})
"""After these, criproxy may go on to tell of its failures."""
UNNAMED = "without having been placed, for similar reasons"
"""The end of the sentence about those who came during a bypass and are beyond what is named; they are placed soon."""
STATES = frozenset({"bypass", "resync", "runtime", "store", "config", "competing-manager", "left-running"})
"""Kinds of notices about what is so now."""


@dataclass(slots=True)
class Play:
    """One case; `problems` are what is wrong with it."""

    case: Case
    scene: Scene
    problems: list[str] = field(default_factory=list)
    vgpus: Vgpus | None = None
    """None: cards are whole or shared."""

    def __post_init__(self) -> None:
        if self.case.has_vgpus:
            tells = not (self.case.is_plugin and cannot(REASONS))
            self.vgpus = Vgpus(self.scene, self._namespace, self.problems, tells=tells)

    async def run(self) -> None:
        """All of it."""
        case, scene = self.case, self.scene
        await scene.poll(lambda: scene.controller.ready)
        await self._comes(pod("first", 2000, {"pool.podpools": "pair", "balloon.balloons": "database"}))
        await self._comes(pod("shares", 100, guaranteed=False))
        await self._plugin_begins()
        await self._rests("before")
        async with AsyncExitStack() as stack:
            for moment in case.moments:
                await stack.enter_async_context(MOMENTS[moment](scene))
            await self._newcomers()
            await self._rests("meanwhile")
        await self._rests("afterwards")
        await self._comes(pod("last", 1000))
        await self._plugin_ends()
        await self._rests("at the end")

    async def _newcomers(self) -> None:
        case, namespace = self.case, self._namespace
        for number, key in enumerate(case.keys):
            wish = {key: VALUES.get(key, "true")}
            spec = pod(f"wishes-{number}", 1000, wish, namespace=namespace)
            self._knows(await self._comes(spec), key)
        if case.plugin.endswith("section changes"):
            await self._section_changes()
        envs = ((CARD, "all"), SWITCH) if self.vgpus else ((CARD, "all"),)
        asks = Asks(envs, privileged=case.privileged != "unprivileged", card=self._card)
        async with AsyncExitStack() as stack:
            if case.plugin.endswith("checkpoint hangs"):
                await stack.enter_async_context(self.scene.checkpoint_hangs())
            self._sees(ran := await self._comes(pod("card", 100, namespace=namespace, guaranteed=False), asks))
        if self.vgpus:
            await self.vgpus.twin(ran, guarded=self._guarded)
            await self._uses()

    async def _uses(self) -> None:
        """The holder of a vGPU uses more than its quota, if the case says so."""
        if self.vgpus and self.case.plugin.endswith("over its quota"):
            await self.vgpus.read()

    @property
    def _namespace(self) -> str:
        return self.case.namespace.partition(" ")[2]

    @property
    def _card(self) -> str:
        """What the device plugin has allocated to a container that asks for a card."""
        if self.vgpus:
            return FOR_CARD
        return "" if self.case.plugin == "no plugin" else f"{HELD}::1"

    @property
    def _guarded(self) -> bool:
        return self.scene.mode() is not BypassMode.ORDERED and self.case.devices != "devices absent"

    @property
    def _unhealthy(self) -> bool:
        """Whether containers with the card are stopped and not created."""
        return self.case.plugin.endswith("unhealthy") and self._guarded

    async def _plugin_begins(self) -> None:
        """A container gets a card; where that fails, the container is stopped."""
        if self.case.plugin == "no plugin":
            return
        if self.vgpus:
            await self._comes(self.vgpus.pod("holder"), Asks(card=HELD_VGPU))
            return
        ran = await self._comes(pod("holder", 100, guaranteed=False), Asks(card=f"{HELD}::0"))
        if self.case.plugin.endswith("unhealthy"):
            await self._tells(FAILED)
        if self._unhealthy:
            await self.scene.poll(lambda: ran.container_id not in self.scene.running())

    async def _plugin_ends(self) -> None:
        """Whatever has happened: who was stopped says why, and who comes once the card is healthy gets it."""
        if self.vgpus:
            await self.vgpus.ends(guarded=self._guarded, over=self.case.plugin.endswith("over its quota"))
        if not self._unhealthy:
            return
        holder = next(ran for ran in self.scene.runs if ran.pod.name == "holder")
        request = api.ContainerStatusRequest(container_id=holder.container_id)
        reply = await self.scene.client.call("ContainerStatus", request, api.ContainerStatusResponse)
        expected = ("DeviceUnhealthy", f"XID 79; {HELD}")
        if self.case.is_plugin and cannot(REASONS):
            expected = UNSAID
        if (reply.status.reason, reply.status.message) != expected:
            self.problems.append(f"the holder's status says {reply.status.reason!r}, {reply.status.message!r}")
        await self._tells(FAILED)  # a device plugin that starts again reports it once more
        await self._tells({**FAILED, "healthy": True})
        ran = await self._comes(pod("healed", 100, guaranteed=False), Asks(card=f"{HELD}::2"))
        if not ran.refusal and self._shown(ran) != HELD:
            self.problems.append(f"healed sees {self._shown(ran)!r}")

    async def _tells(self, arguments: Mapping[str, Any]) -> None:
        await DevicePluginCommands(self.scene.controller).incident(arguments)

    async def _section_changes(self) -> None:
        """Another section devices.plugin is in force at once, and releases or places nobody."""
        scene = self.scene
        released = scene.controller.node.released
        await scene.change_section(OTHER_SECTION)
        if scene.controller.node.released != released:
            self.problems.append(f"a change of devices.plugin: released was {released!r}")

    async def _comes(self, spec: Any, asks: Asks | None = None) -> Ran:  # noqa: ANN401 (a PodSpec)
        ran = await self.scene.bring(spec, asks)
        denied = self._is_privileged("deny") and spec.name == "card"
        if error := ran.refusal:
            waits = self._unhealthy and error.code is StatusCode.FAILED_PRECONDITION and asks and asks.card
            ours = (error.code in OURS or waits) and spec.name in error.details
            if not ours and not (denied and error.code is StatusCode.PERMISSION_DENIED):
                self.problems.append(f"{spec.name} does not come up: {error}")
        return ran

    def _knows(self, ran: Ran, key: str) -> None:
        """The annotation has reached the policy, unless nothing does."""
        scene = self.scene
        node = scene.controller.node
        if scene.mode() is BypassMode.ORDERED or not scene.controller.policy_switch.active or ran.refusal:
            return
        known = node.pods[ran.sandbox_id].annotations
        assert any(name.startswith(key) for name in known), f"{key} is not known"

    def _sees(self, ran: Ran) -> None:
        """The container that asks for all cards has got what the section says."""
        case, scene = self.case, self.scene
        guarded = self._guarded
        if guarded and case.devices != "devices off":
            assert scene.counters.devices, "the boundary has looked at it"
        if ran.refusal:
            return
        if guarded and self._is_privileged("deny") and case.namespace == "in default":
            self.problems.append("card is created although it is privileged")
        if self.vgpus:
            self.vgpus.limited(ran, guarded=guarded)
        if self._unhealthy:
            self.problems.append("card is created although its card is unhealthy")
        exempt = case.namespace == "in kube-system" or self._is_privileged("allow")
        hidden = "void" if case.devices == "devices enforce" else None
        meant = HELD if self._card else hidden
        if (shown := self._shown(ran)) != (meant if guarded and not exempt else "all"):
            self.problems.append(f"card sees {shown!r}")

    def _is_privileged(self, word: str) -> bool:
        """Whether the rule for privileged containers is *word*, and it can be seen that one is."""
        if self.case.is_plugin and cannot(PRIVILEGED):
            return False
        return self.case.privileged == f"privileged: {word}"

    def _shown(self, ran: Ran) -> str | None:
        return {env.key: env.value.decode() for env in self.scene.config(ran).envs}.get(CARD)

    async def _rests(self, when: str) -> None:
        """Kernel, invariants and --check at rest."""
        scene = self.scene
        answer = await scene.settled()
        disk_fails = scene.disk.full and scene.controller.context.persister.error
        if disk_fails:  # perhaps only since that answer was put together: the next one must say it
            answer = await scene.check()
        self.problems += [f"{when}: {text}" for text in scene.violations()]
        judged = scene.mode() is BypassMode.OFF
        expected = list(wrongs(scene.ledger.asked, scene.running(), RESERVED)) if judged else []
        self.problems += [f"{when}: {wrong.text}" for wrong in expected if wrong.never]
        if not judged:
            expected.append(Wrong(frozenset(), "the bypass is on"))
        if disk_fails:
            expected.append(Wrong(frozenset(), "the disk is full"))
        if scene.ledger.released:
            expected.append(Wrong(frozenset({"the node is released"}), "the node is released"))
        excused = scene.ledger.excused
        if self.case.plugin != "no plugin":
            about_quota = f"{self._namespace}/holder/main has been over its quota"
            excused |= {"has been unhealthy since", "no answer from", about_quota}
        if "bypass on" in self.case.moments:
            excused.add(UNNAMED)
        if FAILURES & set(self.case.moments):
            excused |= {notice["text"] for notice in answer["notices"] if notice["kind"] not in STATES}
        self.problems += [f"{when}: {text}" for text in disagreements(expected, answer, excused)]

    def quiet(self, beside: Sequence[Mapping[str, Any]]) -> None:
        """Nothing is logged as an error, by the controller or *beside* it, but what is meant to be."""
        meant = set[str]().union(*(EXPECTED_ERRORS.get(moment, set()) for moment in self.case.moments))
        logged = [*self.scene.log.error_lines, *((line["event"], dict(line)) for line in beside)]
        self.problems += [f"logged as an error: {event} {keys}" for event, keys in logged if event not in meant]


async def play(case: Case, directory: Path) -> list[str]:
    """What is wrong with *case*: sentences."""
    everybody = case.apply == "apply: all"
    privileged = case.privileged.partition(": ")[2]
    section = "" if case.plugin == "no plugin" else VGPU_SECTION if case.has_vgpus else SECTION
    devices, scenes = case.devices.partition(" ")[2], SCENES[case.front]
    scene = scenes(directory, case.policy, devices, privileged, section, everybody=everybody)
    with capture_logs() as lines:
        async with scene:
            playing = Play(case, scene)
            await playing.run()
        playing.quiet([line for line in lines if line["log_level"] == "error"])
    return playing.problems
