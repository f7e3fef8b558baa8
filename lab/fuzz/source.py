"""Bytes of a fuzzer as choices. Whatever the bytes are, the choices are valid; after the last byte all are 0."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

BLOCK = Random(1).randbytes(1 << 17) * 2
"""Payloads are cut from here, so that a script of few bytes makes large messages."""


class Source:
    """Reads choices from the front of *data*."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def exhausted(self) -> bool:
        """Nothing is left: only zeros would follow."""
        return self._at >= len(self._data)

    def byte(self) -> int:
        """0 to 255."""
        at, self._at = self._at, self._at + 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, count: int) -> int:
        """0 to *count* - 1, from as many bytes as it takes."""
        value, space = self.byte(), 256
        while space < count:
            value, space = value << 8 | self.byte(), space << 8
        return value % count

    def pick(self, choices: Sequence[T]) -> T:
        """One of *choices*."""
        return choices[self.below(len(choices))]

    def chance(self, one_in: int) -> bool:
        """True for one value in *one_in*; False when nothing is left."""
        return self.byte() % one_in == one_in - 1

    def size(self) -> int:
        """A length in bytes: mostly small, sometimes at the sizes where windows and frames end."""
        base = self.pick((0, 1, 5, 9, 30, 100, 1000, 5000, 16_379, 16_384, 20_000, 65_535))
        return max(0, base + self.byte() % 9 - 4) if base > 9 else base

    def payload(self) -> bytes:
        """Bytes that do not compress and differ from one another."""
        start = self.byte() * 257
        return BLOCK[start : start + self.size()]

    def rest(self) -> bytes:
        """All that is left, as it is."""
        at, self._at = self._at, len(self._data)
        return self._data[at:]
