"""The pods of a life: what they ask for, and what their containers have to see."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA as NVIDIA_CLASS
from lab.kubelet.device_endpoint import Given
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from lab.lives.configurations import MIG, RESOURCES
from lab.lives.expected import card_of
from lab.lives.machine import NODE_OF, Machine
from lab.lives.node import EXEMPT
from tests.node.devices.test_hints import SIZES

VISIBLE = NVIDIA_CLASS.visible_env
SHARED = tuple(f"{name}.shared" for name in RESOURCES.values())


@dataclass(frozen=True, slots=True)
class Wish:
    """A pod that somebody makes."""

    name: str
    containers: tuple[tuple[str, Mapping[str, int]], ...]
    """Name and devices of each; one that begins with ``init`` is an init container."""
    qos: str = "Burstable"
    namespace: str = "default"
    privileged: bool = False
    asks_for_all: bool = False
    """Whether its containers say themselves that they want to see all GPUs."""

    @property
    def spec(self) -> PodSpec:
        """As criproxy's kubelet has it."""
        specs = tuple(ContainerSpec(name, SIZES[self.qos].image) for name, _ in self.containers[:-1])
        return PodSpec(self.name, (*specs, replace(SIZES[self.qos], name="main")), self.namespace)


@dataclass(slots=True)
class Running:
    """A pod that the kubelet has admitted."""

    wish: Wish
    given: dict[str, Mapping[str, Given]] = field(default_factory=dict)
    """By container."""
    sandbox: str = ""
    containers: dict[str, str] = field(default_factory=dict)
    """Ids by name, of those that were created last."""
    attempts: dict[str, int] = field(default_factory=dict)
    started: bool = False
    """Whether all its containers have been started."""
    ending: bool = False
    """Whether it shall go, and has not."""


def draw(random: Random, name: str, offered: Collection[str]) -> Wish:
    """Any pod, which mostly asks for what is *offered*."""
    everything = (*RESOURCES.values(), *SHARED, MIG)
    resources = tuple(offered) * 8 + everything
    wanted = {random.choice(resources): random.choice((1, 1, 1, 2))}
    containers: tuple[tuple[str, Mapping[str, int]], ...] = (("main", wanted),)
    match random.random():
        case chance if chance < 0.15:
            containers = (("main", {}),)
        case chance if chance < 0.35:
            containers = (("init-0", wanted), ("main", wanted))
        case chance if chance < 0.5:
            containers = (("side", {random.choice(resources): 1}), ("main", wanted))
        case chance if chance < 0.6:
            containers = (("main", {**wanted, random.choice(resources): 1}),)
    special = random.random()
    return Wish(
        name,
        containers,
        random.choice(tuple(SIZES)),
        namespace=EXEMPT if special < 0.1 else "default",
        privileged=0.1 < special < 0.2,
        asks_for_all=random.random() < 0.3,
    )


def sees(config: api.ContainerConfig) -> tuple[set[str], set[str]]:
    """The GPUs and MIG devices of the visible variable, and the nodes of single cards, in a create of the runtime's."""
    values = [env.value.decode() for env in config.envs if env.key == VISIBLE]
    visible = {each for each in (values[-1] if values else "void").split(",") if each not in ("", "void")}
    return visible, {device.host_path for device in config.devices} & {*NODE_OF.values()}


def should_see(given: Iterable[str], machine: Machine) -> tuple[set[str], set[str]]:
    """The same for a container that has the ids *given*, of any resource, as far as their nodes are there."""
    cards = {card_of(one) for one in given}
    visible = {card for card in cards if card.startswith(("GPU-", "MIG-"))}
    nodes = {NODE_OF[card] for card in cards if card in NODE_OF}
    return visible, {path for path in nodes if (machine.host.root / path[1:]).exists()}
