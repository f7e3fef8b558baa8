"""A program that wants a newer C library for `strtol` is changed; one that wants it for more is refused."""

import struct
from pathlib import Path

import pytest

from tests.runtimes.elf import fits_older_libc

BASE, STRINGS, VERSIONS, NEEDS, DYNAMIC = 0x400000, 512, 768, 800, 1024


def program(function: bytes = b"__isoc23_strtol", version: bytes = b"GLIBC_2.38") -> bytes:
    """An ELF file that takes two functions from libc.so.6: `unshare` of an old version, *function* of *version*."""
    image, names = bytearray(2048), b"\0unshare\0GLIBC_2.4\0libc.so.6\0" + function + b"\0" + version + b"\0"
    image[STRINGS : STRINGS + len(names)] = names
    struct.pack_into("<Q14xHH", image, 32, 64, 56, 2)
    struct.pack_into("<IIQQQQQQ", image, 64, 1, 5, 0, BASE, BASE, len(image), len(image), 4096)
    struct.pack_into("<IIQQQQQQ", image, 64 + 56, 2, 4, DYNAMIC, BASE + DYNAMIC, 0, 80, 80, 8)
    symbols = STRINGS - 3 * 24
    for number, name in enumerate((b"", b"unshare", function)):
        struct.pack_into("<IBBHQQ", image, symbols + 24 * number, names.index(name) if name else 0, 0x12, 0, 0, 0, 0)
    struct.pack_into("<HHH", image, VERSIONS, 0, 2, 3)
    struct.pack_into("<HHIII", image, NEEDS, 1, 2, names.index(b"libc"), 16, 0)
    for number, (name, hash_) in enumerate({b"GLIBC_2.4": 1111, version: 2222}.items()):
        following = 0 if number else 16
        struct.pack_into("<IHHII", image, NEEDS + 16 + 16 * number, hash_, 0, 2 + number, names.index(name), following)
    tables = {5: STRINGS, 6: symbols, 0x6FFFFFF0: VERSIONS, 0x6FFFFFFE: NEEDS, 0: 0}
    for number, (tag, at) in enumerate(tables.items()):
        struct.pack_into("<QQ", image, DYNAMIC + 16 * number, tag, BASE + at if tag else 0)
    return bytes(image)


def test_it_asks_for_the_old_function(tmp_path: Path) -> None:
    """Name and version of that symbol change, and the newer version is no longer asked for; the rest stays."""
    file = tmp_path / "program"
    file.write_bytes(program())

    assert fits_older_libc(file)

    image, before = file.read_bytes(), program()
    name = STRINGS + struct.unpack_from("<I", image, STRINGS - 24)[0]
    assert image[name : name + 7] == b"strtol\0"
    assert struct.unpack_from("<HHH", image, VERSIONS) == (0, 2, 1)
    needed = [struct.unpack_from("<IHHII", image, NEEDS + 16 + 16 * number) for number in range(2)]
    assert needed[0] == struct.unpack_from("<IHHII", before, NEEDS + 16)
    assert needed[1] == (1111, 0, 3, needed[0][3], 0)
    assert sum(one != other for one, other in zip(image, before, strict=True)) < 12


def test_a_program_that_fits_stays(tmp_path: Path) -> None:
    """And so does one that was changed."""
    file = tmp_path / "program"
    file.write_bytes(program(b"strtol", b"GLIBC_2.34"))

    assert not fits_older_libc(file)

    assert file.read_bytes() == program(b"strtol", b"GLIBC_2.34")
    file.write_bytes(program())
    assert [fits_older_libc(file), fits_older_libc(file)] == [True, False]


def test_what_cannot_be_replaced_is_told(tmp_path: Path) -> None:
    """By the name of the function, and the file stays."""
    file = tmp_path / "runc"
    file.write_bytes(program(b"strlcpy"))

    with pytest.raises(ValueError, match=r"runc needs strlcpy of GLIBC_2\.38"):
        fits_older_libc(file)
    assert file.read_bytes() == program(b"strlcpy")
