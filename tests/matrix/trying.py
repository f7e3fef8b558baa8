"""Tries of configurations meet what can happen to a node: the cases, and a node that tries as the daemon does."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy.errors import StoreError
from criproxy.model.node import Node as NodeValue
from criproxy.model.record import Record
from tests.matrix.cases import FRONTS
from tests.matrix.covering import covering
from tests.matrix.moments import POLICIES
from tests.matrix.scene import MACHINE, Disk, FillableStore, Scene
from tests.node.configuration.tried_node import Node

MEETS = ("nothing", "release", "bypass on", "bypass automatic", "adoption", "disk full")
"""What a try meets, of `MOMENTS`."""


@dataclass(frozen=True, slots=True)
class TryCase:
    """What meets in one case."""

    number: int
    policy: str
    tried: str
    """The policy of the file that is tried."""
    apply: str
    meets: str
    """Of `MEETS`: it lasts while the try ends."""
    end: str
    """Of `ENDS`."""
    front: str

    @property
    def id(self) -> str:
        """Short, and stable as long as the slots stay."""
        return f"{self.policy}-{self.number:02}"

    @property
    def words(self) -> str:
        """All of it, for people."""
        return f"{self.id}: {self.tried} is tried, {self.apply}; {self.meets}; {self.end}; {self.front}"

    @property
    def features(self) -> frozenset[str]:
        """The words that a plant may name."""
        return frozenset((self.policy, f"try {self.tried}", self.apply, self.meets, self.end, self.front))

    @property
    def is_kept(self) -> bool:
        """Whether what is tried stays."""
        return self.end == "it is kept"


class MortalStore(FillableStore):
    """A store on which nothing is written any more after criproxy was killed."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._is_dead = False
        super().__init__(directory, disk)

    def die(self) -> None:
        """Let go of the directory, with what is written so far."""
        self._is_dead = True
        self.close()

    def _save(self, before: NodeValue, after: NodeValue, records: Sequence[Record]) -> None:
        if self._is_dead:
            raise StoreError("killed")
        super()._save(before, after, records)


class TryScene(Scene):
    """A node of the matrix that tries configurations; `node` has what the daemon has beside the controller."""

    def __init__(self, directory: Path, case: TryCase) -> None:
        super().__init__(directory, case.policy, "absent", "", everybody=case.apply == "apply: all")
        self.case = case
        self._store: MortalStore
        self.node = Node(directory, self, MACHINE, self._open)

    def _open(self) -> MortalStore:
        self._store = MortalStore(self.node.state, self.disk)
        return self._store

    async def start_criproxy(self) -> None:
        """With what is tried, or was kept, in place of the file."""
        await super().start_criproxy()
        await self.node.begun()
        self.reload = self.node.reload

    async def kill(self) -> None:
        """End criproxy as SIGKILL does, and forget the bypass."""
        self.bypass.close()
        self.ledger.away = True
        await self.kill_criproxy(self._store.die)

    @property
    def tried_text(self) -> str:
        """The file that is tried; of the same policy, with another option."""
        text = self._words(self.case.tried)
        if self.case.tried != self.case.policy:
            return text
        return (
            text.replace('reservedCpus: "0"', 'reservedCpus: "0-1"')
            if "reservedCpus" in text
            else f"{text}onError: refuse\n"
        )

    @property
    def in_force(self) -> str:
        """The policy in force."""
        return self.controller.context.settings.policy_name

    async def again(self) -> None:
        """Start criproxy again, and connect the kubelet to it."""
        await self.start_criproxy()
        await self.reconnect()
        await self.poll(lambda: self.controller.ready)


async def time_is_over(scene: TryScene) -> None:
    """It ends by itself."""
    scene.node.time_is_over()
    await scene.poll(lambda: scene.node.trial is None)


async def it_is_kept(scene: TryScene) -> None:
    """It stays, over a restart."""
    await scene.node.try_out.keep({})
    await scene.stop_criproxy()
    await scene.again()
    assert scene.in_force == scene.case.tried, f"{scene.in_force} is not what was kept"


async def killed_in_the_middle(scene: TryScene) -> None:
    """It goes on after the start, and then ends by itself."""
    await scene.kill()
    await scene.again()
    assert scene.in_force == scene.case.tried, "the try does not go on"
    await time_is_over(scene)


async def killed_and_over(scene: TryScene) -> None:
    """The start ends it."""
    await scene.kill()
    scene.node.time_is_over_at_start()
    await scene.again()


async def restarted_in_the_middle(scene: TryScene) -> None:
    """As after a kill."""
    await scene.stop_criproxy()
    await scene.again()
    assert scene.in_force == scene.case.tried, "the try does not go on"
    await time_is_over(scene)


async def restarted_and_over(scene: TryScene) -> None:
    """As after a kill."""
    await scene.stop_criproxy()
    scene.node.time_is_over_at_start()
    await scene.again()


ENDS: Mapping[str, Callable[[TryScene], Coroutine[Any, Any, None]]] = {
    "its time is over": time_is_over,
    "it is kept": it_is_kept,
    "killed in the middle": killed_in_the_middle,
    "killed, and its time is over": killed_and_over,
    "restarted in the middle": restarted_in_the_middle,
    "restarted, and its time is over": restarted_and_over,
}
"""By the words in a case."""


def cases() -> list[TryCase]:
    """Every two of policy, tried policy, apply, moment, end and front are in some case."""
    tried = [f"try {policy}" for policy in POLICIES]
    rows = covering([POLICIES, tried, ("apply: new", "apply: all"), MEETS, list(ENDS), FRONTS])
    numbered = enumerate(rows, 1)
    return [TryCase(number, policy, trial.removeprefix("try "), *rest) for number, (policy, trial, *rest) in numbered]


ALL = cases()
