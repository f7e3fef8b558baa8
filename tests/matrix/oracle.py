"""Who may run where, derived from what was asked of a node and read off the kernel's files: what --check must say.

It imports nothing of criproxy. It believes the requests that were sent, the policy file, what was done to the node, and
the cgroups; and it judges only what follows from these for sure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab.chaos.checker.cgroups import CpuSet, show

NOBODY, STAYS, STRANGER = "nobody", "stays", "stranger"
"""In place of the policy that has placed a container: none of them, or it is nobody's business any more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A container as its create asked for it."""

    title: str
    """NAMESPACE/POD/CONTAINER."""
    milli: int = 0
    guaranteed: bool = False
    wishes: Mapping[str, str] = field(default_factory=dict)
    """Its pod's annotations, without domain and scope."""
    placed_by: str = STRANGER
    """The policy that is to have placed it, or one of the words above."""
    owed: bool = False
    """It came while criproxy could not place: it shares, and only CPUs of its own are owed to it."""

    @property
    def namespace(self) -> str:
        """Of its pod."""
        return self.title.partition("/")[0]

    @property
    def owns(self) -> int:
        """How many CPUs must be its alone."""
        whole, rest = divmod(self.milli, 1000)
        whole = whole if self.guaranteed and not rest else 0
        match self.placed_by:
            case "static":
                return whole
            case "topology-aware":
                return 0 if self.namespace == "kube-system" or self._shares else whole
            case "pools":
                return 2 if self.wishes.get("pool.podpools") == "alone" else 0
        return 0

    @property
    def _shares(self) -> bool:
        return any(self.wishes.get(key) == "true" for key in _SHARING)

    @property
    def realm(self) -> str:
        """The pool or kind of balloon that is apart from all others; empty where nothing follows from the file."""
        if self.owed:
            return ""
        match self.placed_by:
            case "pools":
                default = "reserved" if self.namespace == "kube-system" else "default"
                return self.wishes.get("pool.podpools", default)
            case "balloons" if self.wishes.get("cpu.preserve") != "true":
                default = "reserved" if self.namespace == "kube-system" else "default"
                return self.wishes.get("balloon.balloons", default)
        return ""


_SHARING = ("cpu.preserve", "prefer-shared-cpus", "prefer-reserved-cpus")
"""By these annotations of topology-aware, a container has no CPUs of its own."""


@dataclass(slots=True)
class Ledger:
    """What was asked of a node, in order, by id; what became of it is the kernel's to say."""

    policy: str
    asked: dict[str, Asked] = field(default_factory=dict)
    released: bool = False
    away: bool = False
    """Nobody places: criproxy is down, or does not look."""
    unseen: set[str] = field(default_factory=set)
    """Those that came meanwhile."""
    resized: set[str] = field(default_factory=set)
    """Those that got another size meanwhile."""
    refused: set[str] = field(default_factory=set)
    """Titles of those whose resize did not fit."""
    failing: int = 0
    """How much keeps criproxy from placing though it looks."""

    def creates(self, identifier: str, asked: Asked) -> None:
        """A container was created."""
        if self.away:
            self.unseen.add(identifier)
        placed_by = STRANGER if self.away else NOBODY if self.released else self.policy
        self.asked[identifier] = replace(asked, placed_by=placed_by, owed=bool(self.failing))

    def resizes(self, identifier: str, milli: int) -> None:
        """The runtime has taken another size: by the policy that is in force now, if any is."""
        one = replace(self.asked[identifier], milli=milli)
        if self.away:
            self.resized.add(identifier)
        if not (self.away or self.released or self.policy == "none"):
            one = replace(one, placed_by=self.policy, owed=bool(self.failing))
        self.asked[identifier] = one

    def resize_refused(self, identifier: str) -> None:
        """It keeps the size that it has, and --check may tell what it asks for."""
        self.refused.add(self.asked[identifier].title)

    def looks(self) -> None:
        """Criproxy sees again what there is."""
        self.away = False
        self.unseen.clear()
        if not self.released:  # sizes that nobody saw are a matter of the policy that is in force by now
            placed_by = STAYS if self.policy == "none" else self.policy
            self.asked |= {key: replace(self.asked[key], placed_by=placed_by) for key in self.resized}
        self.resized.clear()

    def releases(self) -> None:
        """Everybody may run everywhere."""
        self.released = self.policy != "none"
        self._all(NOBODY)

    def undoes(self) -> None:
        """Everybody is placed as if they came now."""
        if self.released:
            self.released = False
            self._all(self.policy)

    def reloads(self, policy: str, *, everybody: bool) -> None:
        """Another policy file is in force."""
        was_released, self.released, self.policy = self.released, False, policy
        if everybody or (was_released and policy != "none"):
            self._all(NOBODY if policy == "none" else policy)
        elif policy == "none":
            self._all(STAYS)
        else:  # owners keep what they own; of all others only the new policy knows what it makes of their CPUs
            self.asked |= {key: replace(one, placed_by=STAYS) for key, one in self.asked.items() if not one.owns}

    def _all(self, placed_by: str) -> None:
        owed, seen = bool(self.failing), self.asked.keys() - self.unseen
        self.asked |= {key: replace(self.asked[key], placed_by=placed_by, owed=owed) for key in seen}

    @property
    def excused(self) -> set[str]:
        """Titles of containers of which --check may speak, or not: it need not know what they should have."""
        return self.refused.union(one.title for one in self.asked.values() if one.placed_by in (STAYS, STRANGER))


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is not as it should be."""

    about: frozenset[str]
    """Titles; --check must name one of them. Nobody: any sentence will do."""
    text: str
    never: bool = False
    """It must not happen, whatever --check says of it."""


def wrongs(asked: Mapping[str, Asked], running: Mapping[str, CpuSet], reserved: CpuSet) -> Iterator[Wrong]:
    """What --check must tell of the containers that are *running*, by id on which CPUs."""
    known = {key: one for key, one in asked.items() if key in running}
    for key, one in known.items():
        cpus = running[key]
        if not one.owns:
            continue
        others = {other: running[other] for other in known if other != key and running[other] & cpus}
        if len(cpus) != one.owns:
            yield Wrong(frozenset([one.title]), f"{one.title} shall own {one.owns} CPUs and is on {show(cpus)}")
        elif others:
            also = ", ".join(f"{known[other].title} on {show(found)}" for other, found in others.items())
            about = frozenset([one.title, *(known[other].title for other in others)])
            yield Wrong(about, f"{one.title} shall own {show(cpus)}, and there are {also}", never=not one.owed)
        elif cpus & reserved and one.placed_by != "pools":
            yield Wrong(
                frozenset([one.title]), f"{one.title} has exclusive use of reserved CPUs {show(cpus & reserved)}"
            )
    yield from _mixed(known, running)


def _mixed(known: Mapping[str, Asked], running: Mapping[str, CpuSet]) -> Iterator[Wrong]:
    """Containers of different realms of one policy on the same CPUs."""
    placed = [(key, one) for key, one in known.items() if one.realm]
    for at, (key, one) in enumerate(placed):
        for other, two in placed[at + 1 :]:
            both = running[key] & running[other]
            if both and one.placed_by == two.placed_by and one.realm != two.realm:
                text = f"{one.title} ({one.realm}) and {two.title} ({two.realm}) are both on {show(both)}"
                yield Wrong(frozenset([one.title, two.title]), text)


def disagreements(expected: Sequence[Wrong], answer: Mapping[str, Any], excused: Collection[str] = ()) -> list[str]:
    """Where --check and what is expected differ, a sentence each.

    Args:
        expected: what must be told.
        answer: of ``criproxy status --check --format json``.
        excused: parts of sentences that may be there or not: titles, or whole ones.
    """
    said: list[str] = [*answer["problems"], *answer["under_way"]]
    silent = [
        f"--check is silent: {wrong.text}"
        for wrong in expected
        if not any(title in sentence for sentence in said for title in wrong.about or [""])
    ]
    fine = {title for wrong in expected for title in wrong.about or [""]}.union(excused)
    loud = [sentence for sentence in said if not any(part in sentence for part in fine)]
    return [*silent, *(f"--check complains, and nothing is wrong: {sentence}" for sentence in loud)]
