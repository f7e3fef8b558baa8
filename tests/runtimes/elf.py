"""Lets a program that was linked with a newer C library run with an older one, where all it lacks is `strtol`.

glibc 2.38 gave the functions of C23 names of their own: a compiler writes `__isoc23_strtol` for `strtol`, and the
program starts nowhere else. Both read decimal numbers alike. docs/decisions/0037-newer-runtimes.md
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_RENAMED = b"__isoc23_"
_NEWER = b"GLIBC_2.38"
_UNVERSIONED = 1
_DT_STRTAB, _DT_SYMTAB, _DT_VERSYM, _DT_VERNEED = 5, 6, 0x6FFFFFF0, 0x6FFFFFFE
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED, _AUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    size_in_memory: int
    alignment: int


class _Program:
    """A dynamically linked, little-endian ELF program of 64 bits, changed in place."""

    def __init__(self, image: bytearray) -> None:
        self.image = image
        table, size, count = struct.unpack_from("<Q14xHH", image, 32)
        self._segments = [_Segment(*struct.unpack_from("<IIQQQQQQ", image, table + size * n)) for n in range(count)]
        dynamic = next(segment for segment in self._segments if segment.kind == _PT_DYNAMIC)
        entries = range(dynamic.offset, dynamic.offset + dynamic.size, 16)
        self._dynamic: dict[int, int] = dict(struct.unpack_from("<QQ", image, at) for at in entries)
        self.strings, self.symbols = self._at(_DT_STRTAB), self._at(_DT_SYMTAB)
        self.versions, self.needs = self._at(_DT_VERSYM), self._at(_DT_VERNEED)

    def _at(self, tag: int) -> int:
        """Where a table that the dynamic section names by its address lies in the file."""
        address = self._dynamic[tag]
        for segment in self._segments:
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ValueError(f"no segment of the program has the table of tag {tag}")

    def string(self, offset: int) -> bytes:
        """A name out of the table of strings."""
        start = self.strings + offset
        return bytes(self.image[start : self.image.index(0, start)])

    def undefined(self) -> Iterator[tuple[int, int]]:
        """Number and name of each symbol that a library gives; symbols end where the table of strings begins."""
        for number, at in enumerate(range(self.symbols, self.strings, _SYMBOL.size)):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(self.image, at)
            if name and not section:
                yield number, name

    def needed_versions(self) -> Iterator[list[int]]:
        """For each library, where the records of the versions lie that are needed of it."""
        at = self.needs
        while True:
            _, count, _, first, following = _NEED.unpack_from(self.image, at)
            records = [at + first]
            for _ in range(count - 1):
                records.append(records[-1] + _AUX.unpack_from(self.image, records[-1])[4])
            yield records
            if not following:
                return
            at += following


def fits_older_libc(path: Path) -> bool:
    """Make the program *path* ask for ``strtol`` in place of ``__isoc23_strtol``; whether it had to be changed.

    Raises:
        ValueError: if it needs more of the newer library than that.
    """
    image = bytearray(path.read_bytes())
    program = _Program(image)
    newer = _newer_version(program)
    if not newer:
        return False
    record, other = newer
    index = _AUX.unpack_from(image, record)[2]
    for number, name in program.undefined():
        version = program.versions + 2 * number
        if struct.unpack_from("<H", image, version)[0] == index:
            _rename(program, path, number, name)
            struct.pack_into("<H", image, version, _UNVERSIONED)
    # The loader refuses a program that needs a version which it does not know: this one is needed twice, then.
    for field in (0, 8):  # its hash and its name
        image[record + field : record + field + 4] = image[other + field : other + field + 4]
    path.write_bytes(image)
    return True


def _newer_version(program: _Program) -> tuple[int, int] | None:
    """The records of the newer version, and of another version of the same library."""
    for records in program.needed_versions():
        names = {program.string(_AUX.unpack_from(program.image, record)[3]): record for record in records}
        if record := names.pop(_NEWER, None):
            return record, min(names.values())
    return None


def _rename(program: _Program, path: Path, number: int, name: int) -> None:
    if not program.string(name).startswith(_RENAMED):
        raise ValueError(f"{path.name} needs {program.string(name).decode()} of {_NEWER.decode()}")
    struct.pack_into("<I", program.image, program.symbols + _SYMBOL.size * number, name + len(_RENAMED))
