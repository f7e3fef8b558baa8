"""Empty shared libraries, in place of CUDA's gigabytes.

PyTorch's package for Linux is linked with the libraries of CUDA, and does not start without files of these names. On a
machine without cards it calls none of their functions, so that libraries without any are enough: the program loads them
and, told to bind functions only where they are called, never looks into them.
"""

import platform
import struct
from collections.abc import Iterable
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
MACHINES = {"x86_64": 62, "aarch64": 183}
"""What ``uname -m`` says → the number that an ELF file has for it."""
_ET_DYN, _PT_LOAD, _PT_DYNAMIC, _READ = 3, 1, 2, 4
_WRITE = 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_SYMBOL_BYTES = 24


def library(name: str, machine: str = platform.machine()) -> bytes:
    """An ELF library that calls itself *name* and has no functions.

    Raises:
        KeyError: *machine* (as ``uname -m`` has it) is unknown.
    """
    strings = b"\0" + name.encode() + b"\0"
    symbols = bytes(_SYMBOL_BYTES)  # the first symbol of every table stands for none
    hashed = struct.pack("<4I", 1, 1, 0, 0)  # one chain, which is empty
    begin = _HEADER.size + 2 * _SEGMENT.size
    at_symbols = (begin + 15) // 16 * 16
    at_hash = at_symbols + len(symbols)
    at_strings = at_hash + len(hashed)
    at_dynamic = (at_strings + len(strings) + 15) // 16 * 16
    entries = [
        *((_DT_HASH, at_hash), (_DT_STRTAB, at_strings), (_DT_SYMTAB, at_symbols)),
        *((_DT_STRSZ, len(strings)), (_DT_SYMENT, _SYMBOL_BYTES), (_DT_SONAME, 1), (0, 0)),
    ]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = at_dynamic + len(dynamic)
    image = bytearray(size)
    counts = (_HEADER.size, _SEGMENT.size, 2, 0, 0, 0)
    _HEADER.pack_into(image, 0, _IDENTITY, _ET_DYN, MACHINES[machine], 1, 0, _HEADER.size, 0, 0, *counts)
    # The loader writes into the dynamic section: one segment, readable and writable.
    _SEGMENT.pack_into(image, _HEADER.size, _PT_LOAD, _READ | _WRITE, 0, 0, 0, size, size, 1 << 16)
    place = (at_dynamic, at_dynamic, at_dynamic, len(dynamic), len(dynamic), 8)
    _SEGMENT.pack_into(image, _HEADER.size + _SEGMENT.size, _PT_DYNAMIC, _READ | _WRITE, *place)
    for at, part in ((at_symbols, symbols), (at_hash, hashed), (at_strings, strings), (at_dynamic, dynamic)):
        image[at : at + len(part)] = part
    return bytes(image)


def write(folder: Path, names: Iterable[str]) -> None:
    """Write a library for each of *names* into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(library(name))
