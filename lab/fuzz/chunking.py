"""Plays a script again with the same order of frames, but other cuts, and compares what came of it."""

from random import Random

from criproxy.wire.state import Held
from lab.fuzz.conversation import Answered, Conversation, Drained, Fed, Step
from lab.fuzz.peer import require
from lab.fuzz.tap import Result, Tap

MAX_PIECES = 150
"""About as many pieces at most are made of one script: small scripts may be cut into single bytes."""


def compare(talk: Conversation, seed: int) -> None:
    """Complain if other cuts of the same bytes have another result."""
    steps = talk.steps
    expected = talk.tap.result
    size = sum(len(step.unit) for step in steps if isinstance(step, Fed))
    ways = [1 << 30, max(1 << seed % 14, size // MAX_PIECES)]
    for longest in ways:
        result = _play(steps, Random(seed), longest)
        for name, one, other in zip(Result._fields, expected, result, strict=True):
            require(one == other, f"{name} depends on chunking (at most {longest} bytes):", _difference(one, other))


def _difference(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> str:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"entry {at}: {a!r:.300} became {b!r:.300}"
    return f"{len(one)} entries became {len(other)}"


def _play(steps: list[Step], random: Random, longest: int) -> Result:
    """Feed *steps*, joined where one direction has several in a row, and cut at random."""
    player = _Player(random, longest, steps)
    for group in _groups(steps):
        player.do(group)
    player.tap.splice.lost()
    player.tap.collect()
    return player.tap.result


def _groups(steps: list[Step]) -> list[list[Step]]:
    """Runs of units of the same direction; everything else alone."""
    groups: list[list[Step]] = []
    last: bool | None = None
    for step in steps:
        side = step.from_client if isinstance(step, Fed) else None
        if side is None or side != last:
            groups.append([])
        groups[-1].append(step)
        last = side
    return groups


class _Player:
    """Feeds the bytes of each direction at most so far that no unit is whole before its turn."""

    def __init__(self, random: Random, longest: int, steps: list[Step]) -> None:
        self.tap = Tap()
        self.random = random
        self.longest = longest
        self.coming = [[s.unit for s in steps if isinstance(s, Fed) and s.from_client == side] for side in (0, 1)]
        self.at = [0, 0]
        self.ahead = [0, 0]

    def do(self, group: list[Step]) -> None:
        match group[0]:
            case Fed(from_client, _):
                self._feed(int(from_client), len(group))
            case Answered(stream, verdict):
                held = next(e for e in self.tap.events if isinstance(e, Held) and e.call.stream == stream)
                require(
                    self.tap.splice.answer(held.call, held.body, verdict), "another chunking, and no call to answer"
                )
            case Drained():
                self.tap.splice.go_away()
        self.tap.collect()

    def _feed(self, side: int, count: int) -> None:
        units = self.coming[side][self.at[side] : self.at[side] + count]
        self.at[side] += count
        data = b"".join(units)[self.ahead[side] :]
        following = self.coming[side][self.at[side] : self.at[side] + 1]
        self.ahead[side] = self.random.randrange(len(following[0])) if following else 0
        data += b"".join(following)[: self.ahead[side]]
        while data:
            size = self.random.randint(1, self.longest) if self.longest < len(data) else len(data)
            self.tap.feed(side, data[:size])
            data = data[size:]
            if self.random.random() < 0.3:
                self.tap.collect()
