"""What the kubelet has to be told of every id at one moment: from what happened to the cards, not from criproxy."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from lab.lives.configurations import HOLD_DOWN_S, Files, Offered
from lab.lives.machine import NODES, NPU, NVIDIA, Key, Machine, card_id

NOTICED_S = 1.0
"""So long after a change the kubelet knows of it."""
GOOD, BAD, ANY = "healthy", "unhealthy", "either"
InUse = Mapping[str, Collection[str]]
"""By resource, the ids that living containers have."""


@dataclass(slots=True)
class Memory:
    """What one run of the device plugin knows of the health of cards; another run begins anew."""

    causes: dict[Key, frozenset[str]] = field(default_factory=dict)
    """Of each card that it has seen, what is wrong now."""
    had_node: set[Key] = field(default_factory=set)
    over_s: dict[Key, float] = field(default_factory=dict)
    """When something was last over that was wrong."""
    served: set[str] = field(default_factory=set)
    """The resources that it has offered."""

    def observe(self, machine: Machine, files: Files, now_s: float) -> None:
        """Note what is to be seen at *now_s*."""
        self.causes = {key: causes for key, causes in self.causes.items() if key[0] in files.kinds}
        self.had_node &= self.causes.keys()
        self.over_s = {key: over_s for key, over_s in self.over_s.items() if key in self.causes}
        there = {key: has_node for key, has_node in _cards(machine) if key[0] in files.kinds}
        for key, has_node in there.items():
            if has_node:
                self.had_node.add(key)
            self.causes.setdefault(key, frozenset())
        for key, before in self.causes.items():
            now = frozenset(self._wrong(machine, key, there.get(key)))
            if before - now:
                self.over_s[key] = now_s
            self.causes[key] = now
        self.served |= files.offered(machine).keys()

    def happened(self, key: Key, now_s: float) -> None:
        """Something was wrong with a card at that moment."""
        if key in self.causes:
            self.over_s[key] = now_s

    def state(self, key: Key, now_s: float) -> str:
        """How a card is."""
        if self.causes.get(key):
            return BAD
        since_s = now_s - self.over_s.get(key, float("-inf"))
        if since_s < HOLD_DOWN_S:
            return BAD
        return ANY if since_s <= HOLD_DOWN_S + NOTICED_S else GOOD

    def settles_s(self) -> float:
        """When no card recovers any more."""
        recovering = [over_s for key, over_s in self.over_s.items() if not self.causes[key]]
        return max(recovering, default=float("-inf")) + HOLD_DOWN_S + NOTICED_S

    def _wrong(self, machine: Machine, key: Key, has_node: bool | None) -> Iterator[str]:
        if has_node is None:
            yield "gone"
        if has_node is False and key in self.had_node:
            yield "node"
        if key[0] == NPU and (machine.broken or int(key[1].removeprefix("npu")) in machine.bad):
            yield "command"


def _cards(machine: Machine) -> Iterator[tuple[Key, bool]]:
    """All that are there, and whether their nodes are."""
    for kind in NODES:
        for number in machine.present[kind]:
            yield (kind, card_id(kind, number)), kind != NVIDIA or number not in machine.without_node
    for each in machine.mig_ids:
        yield (NVIDIA, each), True


def card_of(one: str) -> str:
    """The card of an id."""
    return one.partition("::")[0]


def expected(machine: Machine, files: Files, memory: Memory, in_use: InUse, now_s: float) -> dict[str, dict[str, str]]:
    """By resource and id what the kubelet has to be told at *now_s*."""
    offered = files.offered(machine)
    found: dict[str, dict[str, str]] = {}
    for resource, cards in offered.items():
        states = {one: memory.state(key, now_s) for one, key in cards.items()}
        taken = {one for one in cards if is_taken(resource, one, offered, in_use)}
        found[resource] = {one: BAD if one in taken else state for one, state in states.items()}
    for resource in memory.served | {name for name in files.named if in_use.get(name)}:
        held = set(in_use.get(resource, ())) - offered.get(resource, {}).keys()
        found.setdefault(resource, {}).update(dict.fromkeys(held, BAD))
    return found


def is_taken(resource: str, one: str, offered: Offered, in_use: InUse) -> bool:
    """Whether a container has the card of *one* under an id that is not offered, and none has *one* itself."""
    return one not in in_use.get(resource, ()) and any(
        card_of(other) == card_of(one) and other not in offered.get(name, {})
        for name, ids in in_use.items()
        for other in ids
    )


def differs(expected: Mapping[str, Mapping[str, str]], told: Mapping[str, Mapping[str, bool]]) -> str:
    """In which way the kubelet was *told* wrongly whether each id of each resource is healthy; empty: in none."""
    for resource in sorted(expected.keys() | told.keys()):
        should, has = expected.get(resource), told.get(resource, {})
        if should is None:
            if good := sorted(one for one, healthy in has.items() if healthy):
                return f"{resource} is not offered, and {', '.join(good)} can be allocated"
            continue
        if should.keys() != has.keys():
            more, less = sorted(has.keys() - should.keys()), sorted(should.keys() - has.keys())
            return f"{resource} has {more or 'nothing'} too much, and lacks {less or 'nothing'}"
        wrong = [one for one, state in should.items() if state != ANY and (state == GOOD) != has[one]]
        if wrong:
            return f"{resource}: {', '.join(f'{one} should be {should[one]}' for one in sorted(wrong))}"
    return ""
