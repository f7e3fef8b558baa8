"""Containers on a node with rules about devices: what the runtime gets, and what is told of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.devices.classes.builtin import ASCEND, NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.evidence import Known, Subject
from criproxy.errors import StatusCode
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.devices.guard import MAX_VARIABLES
from criproxy.node.settings import DeviceLimits, OnError
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from tests.node.world import FAST, STATIC, World, sharer, situation

RULES = DeviceRules(classes=(NVIDIA,))
NONE = NonePolicy(Options())
VOID = {"NVIDIA_VISIBLE_DEVICES": b"void"}


class Broken:
    """A policy with a mistake."""

    options = Options()

    def place(self, node: Node, container: Container) -> Change:
        """Fail."""
        raise ZeroDivisionError

    def release(self, node: Node, left: Grant) -> Change:
        """Nobody has a place."""
        return Change({})


class Podresources:
    """Allocations by container name, as a kubelet would tell; None: it does not answer."""

    def __init__(self, **allocated: str | None) -> None:
        self.allocated = allocated
        self.prefetched = asyncio.Event()

    async def prefetch(self, pod: Subject) -> None:
        """Remember that a pod was seen."""
        self.prefetched.set()

    async def known(self, container: Subject) -> Known | None:
        """Everything that the container was given."""
        ids = self.allocated.get(container.container, "")
        if ids is None:
            return None
        return Known("podresources", {"nvidia.com/gpu": tuple(filter(None, ids.split(",")))}, complete=True)

    def sandboxes(self) -> set[str]:
        """None."""
        return set()

    def forget(self, sandbox_id: str) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


def host(directory: Path, uuids: Sequence[str] = ("GPU-a", "GPU-b")) -> None:
    """GPUs below *directory*, two where nothing is said."""
    (directory / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(len(uuids)))):
        (directory / "dev" / name).touch()
    for minor, uuid in enumerate(uuids):
        folder = directory / f"proc/driver/nvidia/gpus/0000:{minor}b:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


def world(
    directory: Path, policy: Policy = STATIC, rules: DeviceRules | None = RULES, limits: DeviceLimits | None = None
) -> World:
    """A node with these rules, and with limits that a test needs to be other than those of `FAST`."""
    host(directory)
    settings = replace(FAST, devices=rules, device_limits=limits or FAST.device_limits)
    return World(directory, settings=settings, policy=policy)


def knows(world: World, source: Podresources) -> None:
    """Let the node ask *source*."""
    world.controller.devices.evidence.source = source  # type: ignore[assignment]  # of the same form


async def create(
    world: World, *envs: str, handler: str = "", privileged: bool = False, seen: bool = True, cdi: str = ""
) -> api.ContainerConfig:
    """Create a container with variables such as ``A=1``; returns its configuration as the runtime got it.

    Unless *seen*, its sandbox is made beside criproxy.
    """
    pod = sharer(f"pod-{len(world.runtime.core.records.sandboxes)}")

    def change(request: api.CreateContainerRequest) -> None:
        for env in envs:
            name, _, value = env.partition("=")
            request.config.envs.add(key=name, value=value.encode())
        request.config.linux.security_context.privileged = privileged
        if cdi:
            request.config.CDI_devices.add(name=cdi)

    sandbox_by = world.client if seen else world.direct
    return (await world.create_as(pod, change, sandbox_by=sandbox_by, handler=handler))[1]


def envs(config: api.ContainerConfig) -> Mapping[str, bytes]:
    """The variables of a container, none of them twice."""
    found = {env.key: env.value for env in config.envs}
    assert len(found) == len(config.envs)
    return found


async def told(world: World) -> list[str]:
    """Everything that the history says about devices."""
    records = await world.controller.context.state.find_history("default/pod-0/main")
    return [sentence for record in records if record.kind is Kind.DEVICES for sentence in record.sentences]


@pytest.mark.parametrize("policy", [pytest.param(STATIC, id="static"), pytest.param(NONE, id="none")])
async def test_who_was_given_nothing_sees_nothing(tmp_path: Path, policy: Policy) -> None:
    """With every policy, none included, a container without an allocation gets the hide value.

    Log and history tell of variables by their names only.
    """
    async with world(tmp_path, policy) as node:
        knows(node, Podresources())

        config = await create(node, "A=se-cret", "NVIDIA_VISIBLE_DEVICES=also-se-cret")

        assert envs(config) == {"A": b"se-cret"} | VOID
        assert "devices" in node.log.events()
        history = await node.controller.context.state.find_history("default/pod-0/main")
        assert "se-cret" not in repr(node.log.lines) + repr(history)
        assert [sentence.partition(":")[2].strip()[:32] for sentence in await told(node)] == [
            "no card is allocated to it (podr",
            "it asked for more than was alloc",
        ]
        assert node.counters.devices == {("nvidia", "hidden"): 1, ("nvidia", "stripped"): 1}


async def test_who_was_given_a_card_sees_it_and_keeps_it(tmp_path: Path) -> None:
    """The variable names the card that was allocated, and its nodes are in the create."""
    async with world(tmp_path) as node:
        knows(node, source := Podresources(main="GPU-b"))

        config = await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b", "NVIDIA_VISIBLE_DEVICES=all")

        assert envs(config) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert [device.host_path for device in config.devices] == ["/dev/nvidia1", "/dev/nvidiactl"]
        assert config.linux.resources.cpuset_cpus == "0-3"
        assert source.prefetched.is_set()
        record = next(
            r for r in await node.controller.context.state.find_history("default/pod-0/main") if r.kind is Kind.DEVICES
        )
        assert record.facts == {
            "nvidia": "allocated,stripped,nodes-added",
            "nvidia_ids": "GPU-b",
            "nvidia_source": "podresources",
            "nvidia_allocated": {"nvidia.com/gpu": {"ids": "GPU-b", "source": "podresources"}},
            "nvidia_nodes": "/dev/nvidia1",
            "nvidia_pci": "0000:1b:00.0",
        }


@pytest.mark.parametrize(("mode", "told_in_log"), [("keep", False), ("report", True)])
async def test_a_kept_override_is_loud_if_wanted(
    tmp_path: Path, mode: Literal["keep", "report"], told_in_log: bool
) -> None:
    """With report the log has a warning that says how; with keep the history alone does."""
    async with world(tmp_path, rules=replace(RULES, user_override=mode)) as node:
        knows(node, Podresources())

        assert envs(await create(node, "NVIDIA_VISIBLE_DEVICES=all")) == {"NVIDIA_VISIBLE_DEVICES": b"all"}

        assert any("why" in keys for event, keys in node.log.lines if event == "devices") is told_in_log
        assert "NVIDIA_VISIBLE_DEVICES, which criproxy leaves unchanged" in (await told(node))[0]


async def test_nobody_can_tell(tmp_path: Path) -> None:
    """A container that asks for cards while no source answers stays as it came; one that asks for none is hidden."""
    async with world(tmp_path) as node:
        knows(node, Podresources(main=None))

        assert envs(await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert envs(await create(node)) == VOID
        assert node.counters.devices == {("nvidia", "no-evidence"): 1, ("nvidia", "hidden"): 1}


async def test_a_source_that_does_not_answer_holds_nobody(tmp_path: Path) -> None:
    """The create goes on without it after the bound, by what it says itself."""

    class Silent(Podresources):
        """Takes the question, and never answers."""

        async def known(self, container: Subject) -> Known | None:
            """Wait for ever."""
            await asyncio.Event().wait()
            return None

    async with world(tmp_path, limits=replace(FAST.device_limits, source_s=0.05)) as node:
        knows(node, Silent(main="GPU-b"))

        assert envs(await create(node)) == VOID
        config = await create(node, cdi="nvidia.com/gpu=GPU-b")

        assert [device.name for device in config.CDI_devices] == ["nvidia.com/gpu=GPU-b"]


async def test_refused_until_somebody_can_tell(tmp_path: Path) -> None:
    """With onNoEvidence=fail it is refused with the code at which the kubelet tries again, and holds no place."""
    async with world(tmp_path, rules=replace(RULES, on_no_evidence="fail")) as node:
        why = "container default/pod-0/main is refused: nvidia: it is unknown whether a card is allocated"
        with pytest.raises(RuntimeCallError, match=why) as refused:
            await create(node, "NVIDIA_VISIBLE_DEVICES=all")

        assert refused.value.code is StatusCode.UNAVAILABLE
        assert not node.controller.node.containers
        assert [refusal.container for refusal in situation(node.controller).refusals] == ["default/pod-0/main"]


@pytest.mark.parametrize("way", [OnError.SHARED, OnError.PASS])
async def test_a_policy_that_fails_lets_nobody_see_more(tmp_path: Path, way: OnError) -> None:
    """A container that goes on without a place of its own sees no card either."""
    async with world(tmp_path) as node:
        node.controller.context.in_force.settings = replace(node.controller.context.settings, on_error=way)
        node.controller.context.state.policy = Broken()
        knows(node, Podresources())

        assert envs(await create(node, "NVIDIA_VISIBLE_DEVICES=all")) == VOID


async def test_ascend_is_hidden_from_its_own_runtime(tmp_path: Path) -> None:
    """The runtime handler of the pod counts, also if criproxy has not seen its sandbox come."""
    kind = replace(ASCEND, runtimes=("runc",))  # which the embedded runtime has
    async with world(tmp_path, rules=DeviceRules(classes=(kind,))) as node:
        assert envs(await create(node, handler="runc")) == {"ASCEND_VISIBLE_DEVICES": b"void"}
        assert envs(await create(node, handler="runc", seen=False)) == {"ASCEND_VISIBLE_DEVICES": b"void"}
        assert not envs(await create(node))
        assert not envs(await create(node, seen=False))


async def test_cards_that_come_later_are_found(tmp_path: Path) -> None:
    """A driver that makes a node at its first use is looked at again once a card is allocated."""
    node = world(tmp_path)
    (tmp_path / "dev/nvidia1").unlink()
    async with node:
        knows(node, Podresources(main="GPU-b"))
        assert not (await create(node)).devices

        (tmp_path / "dev/nvidia1").touch()

        assert [device.host_path for device in (await create(node)).devices] == ["/dev/nvidia1", "/dev/nvidiactl"]


async def test_the_section_comes_and_goes_with_a_reload(tmp_path: Path) -> None:
    """With the policy none, calls are held as long as there are rules about devices, and no longer."""
    async with world(tmp_path, NONE, rules=None) as node:
        modes = node.controller.policy_switch
        assert not node.controller.table()
        assert envs(await create(node, "NVIDIA_VISIBLE_DEVICES=all")) == {"NVIDIA_VISIBLE_DEVICES": b"all"}

        await modes.change(NONE, replace(node.controller.context.settings, devices=RULES, configuration="with"))
        assert envs(await create(node)) == VOID

        await modes.change(NONE, replace(node.controller.context.settings, devices=None, configuration="without"))
        await node.poll(lambda: not modes.active)
        assert not envs(await create(node))


@pytest.mark.parametrize("exempt", [False, True])
async def test_very_many_variables_about_devices(tmp_path: Path, *, exempt: bool) -> None:
    """The pod is refused, and nothing is wrong with criproxy; any number of other variables is fine."""
    kind = replace(NVIDIA, strip_env=("DOCKER_RESOURCE_*",))
    rules = DeviceRules(classes=(kind,), exempt_namespaces=("default",) if exempt else ())
    variables = [f"DOCKER_RESOURCE_{number}=" for number in range(MAX_VARIABLES)]
    async with world(tmp_path, rules=rules) as node:
        knows(node, Podresources())
        if exempt:
            assert len(envs(await create(node, "NVIDIA_VISIBLE_DEVICES=all", *variables))) == MAX_VARIABLES + 1
            return

        with pytest.raises(RuntimeCallError, match=r"it sets 1001 environment variables for devices") as caught:
            await create(node, "NVIDIA_VISIBLE_DEVICES=all", *variables)
        many = envs(await create(node, *variables, *(f"A{number}=" for number in range(3 * MAX_VARIABLES))))

        assert StatusCode(caught.value.code) is StatusCode.INVALID_ARGUMENT
        assert many.keys() == {f"A{number}" for number in range(3 * MAX_VARIABLES)} | VOID.keys()
        assert not node.counters.fallbacks
        assert not node.controller.context.failures.recent()
