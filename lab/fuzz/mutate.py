"""New inputs from old ones, for where no coverage-guided engine is to be had."""

from random import Random

FRESH_BYTES = (20, 60, 150, 400, 800)


def mutate(kept: list[bytes], random: Random, longest: int) -> bytes:
    """A new input of at most *longest* bytes: one of *kept* with a few changes, or one made from nothing."""
    if not kept or random.random() < 0.1:
        return random.randbytes(random.choice(FRESH_BYTES))
    data = bytearray(random.choice(kept[-50:] if random.random() < 0.3 else kept))
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        _change(data, kept, random)
    return bytes(data[:longest])


def _change(data: bytearray, kept: list[bytes], random: Random) -> None:
    at, size = random.randrange(len(data) + 1), random.choice((1, 1, 2, 4, 16, 64))
    match random.randrange(6):
        case 0:
            data[at : at + size] = random.randbytes(size)
        case 1:
            del data[at : at + size]
        case 2:
            data[at:at] = random.randbytes(size)
        case 3:
            data[at:at] = data[: at + size][-size:]
        case 4:
            other = random.choice(kept)
            data[at:] = other[random.randrange(len(other) + 1) :]
        case _:
            data[at : at + 1] = bytes((random.choice((0, 1, 0x7F, 0x80, 0xFF)),))
