"""The files of a life's device plugin, and what they have it offer: derived here anew, not asked of criproxy."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from lab.lives.machine import FAST, NPU, NUMBERS, NVIDIA, Key, Machine, card_id, replace_file

RESOURCES = {NVIDIA: "nvidia.com/gpu", NPU: "aliyun.com/npu", FAST: "example.com/fast"}
MIG = "nvidia.com/mig-1g.5gb"
HOLD_DOWN_S = 1.2
"""Longer than a change may take: a card that recovers too early is told wrongly for so long."""
_PERIOD = "400ms"
_CLASSES = {
    NVIDIA: NVIDIA,
    NPU: '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}',
    FAST: '{name: fast, resources: [example.com/fast], idFormat: index, nodes: {perDevice: ["/dev/fast{index}"]}}',
}

Offered = Mapping[str, Mapping[str, Key]]
"""By resource and id, the card."""


@dataclass(frozen=True, slots=True)
class Offer:
    """How the cards of one class are offered."""

    kind: str
    replicas: int = 0
    """0: whole."""
    rename: bool = False
    """Whether replicas have a resource of their own."""
    devices: tuple[int, ...] = ()
    """The cards that are shared; empty: all."""

    @property
    def target(self) -> str:
        """The resource of the replicas."""
        return RESOURCES[self.kind] + (".shared" if self.rename else "")

    def shares(self, number: int) -> bool:
        """Whether a card is shared."""
        return bool(self.replicas) and (not self.devices or number in self.devices)


@dataclass(frozen=True, slots=True)
class Files:
    """What the files of the device plugin say; at most one offer for each class."""

    offers: tuple[Offer, ...] = ()
    mig_replicas: int = 0
    """Of each MIG device; 0: whole."""
    mig_rename: bool = False

    @property
    def mig_target(self) -> str:
        """The resource of MIG devices."""
        return MIG + (".shared" if self.mig_replicas and self.mig_rename else "")

    @property
    def kinds(self) -> set[str]:
        """The classes that are advertised."""
        return {offer.kind for offer in self.offers}

    @property
    def named(self) -> tuple[str, ...]:
        """The resources that they name."""
        whole = [RESOURCES[offer.kind] for offer in self.offers]
        shared = [offer.target for offer in self.offers if offer.replicas]
        return tuple(dict.fromkeys((*whole, *shared, *((self.mig_target,) if self.mig_replicas else ()))))

    @property
    def usual(self) -> tuple[str, ...]:
        """Those of them that are offered where all cards are there."""
        shared = [offer.target for offer in self.offers if offer.replicas]
        whole = [RESOURCES[offer.kind] for offer in self.offers if offer.devices or not offer.replicas]
        return tuple(dict.fromkeys((*shared, *whole, *((self.mig_target,) if self.mig_replicas else ()))))

    def fits(self, machine: Machine) -> bool:
        """Whether all cards that they name are there, as long as the class has any: else they are not used."""
        return all(
            set(offer.devices) <= machine.present[offer.kind] or not machine.present[offer.kind]
            for offer in self.offers
            if offer.replicas
        )

    def offered(self, machine: Machine) -> Offered:
        """What the kubelet shall be told of the cards of *machine*."""
        found: dict[str, dict[str, Key]] = {}
        for offer in self.offers:
            for number in sorted(machine.present[offer.kind]):
                key = (offer.kind, card_id(offer.kind, number))
                shared = offer.shares(number)
                resource = offer.target if shared else RESOURCES[offer.kind]
                found.setdefault(resource, {}).update(dict.fromkeys(_ids(key[1], offer.replicas * shared), key))
            if offer.kind == NVIDIA and machine.has_mig:
                ids = found[self.mig_target] = {}
                for each in machine.mig_ids:
                    ids |= dict.fromkeys(_ids(each, self.mig_replicas), (NVIDIA, each))
        return found

    def write(self, path: Path, machine: Machine) -> None:
        """Replace the policy file."""
        replace_file(path, "\n".join(self._lines(path, machine)) + "\n")

    def _lines(self, path: Path, machine: Machine) -> Iterator[str]:
        nvidia = path.with_name("nvidia.yaml")
        if not nvidia.exists():
            replace_file(nvidia, "version: v1\nflags: {migStrategy: mixed}\n")
        yield from ("policy: none", "devices:", "  classes:")
        yield from (f"    - {_CLASSES[kind]}" for kind in (NVIDIA, NPU, *({FAST} & self.kinds)))
        yield "  plugin:"
        yield f"    advertise: [{', '.join(offer.kind for offer in self.offers)}]"
        if NVIDIA in self.kinds:
            yield f"    nvidiaConfig: /{nvidia.relative_to(machine.host.root)}"
        yield f"    sharing: {json.dumps([*self._sharing()])}"
        command = {"class": NPU, "command": list(machine.health_command), "period": _PERIOD, "timeout": _PERIOD}
        commands = [command] if NPU in self.kinds else []
        yield f"    health: {json.dumps({'holdDown': f'{HOLD_DOWN_S * 1000:.0f}ms', 'commands': commands})}"

    def _sharing(self) -> Iterator[dict[str, object]]:
        for offer in self.offers:
            rename = {"rename": offer.target} if offer.rename else {}
            devices = {"devices": list(offer.devices)} if offer.devices else {}
            if offer.replicas:
                yield {"resource": RESOURCES[offer.kind], "replicas": offer.replicas, **rename, **devices}
        if self.mig_replicas:
            rename = {"rename": self.mig_target} if self.mig_rename else {}
            yield {"resource": MIG, "replicas": self.mig_replicas, **rename}


def spoil(path: Path, number: int) -> None:
    """Replace the policy file by one that cannot be used."""
    mistakes = (
        "policy: none\ndevices: {plugin: {sharing: [{resource: aliyun.com/npu, replicas: 1}]}}\n",
        "policy: [\n",
    )
    replace_file(path, mistakes[number % len(mistakes)])


def draw(random: Random, *, shares_mig: bool) -> Files:
    """Any files, in which MIG devices are mostly shared, or never."""
    kinds = [kind for kind in NUMBERS if random.random() < (0.4 if kind == FAST else 0.9)]
    files = Files(tuple(_drawn(random, kind) for kind in kinds or [NPU]))
    if not shares_mig or NVIDIA not in files.kinds or random.random() < 0.3:
        return files
    return replace(files, mig_replicas=random.choice((2, 3)), mig_rename=random.random() < 0.5)


def _drawn(random: Random, kind: str) -> Offer:
    if random.random() < 0.4:
        return Offer(kind)
    some = kind != NVIDIA and random.random() < 0.4
    devices = tuple(sorted(random.sample(NUMBERS[kind], 1 + random.randrange(2)))) if some else ()
    return Offer(kind, random.choice((2, 3)), random.random() < 0.5, devices)


def _ids(card: str, replicas: int) -> list[str]:
    return [f"{card}::{number}" for number in range(replicas)] if replicas else [card]
