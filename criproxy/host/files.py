"""Reads the small files of /sys and /proc, which may be missing, empty or malformed."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.model.cpuset import MAX_ID, CpuSet, parse_cpuset

READ_BYTES = 1 << 16


def read_text(path: Path | str) -> str | None:
    """Return the file without surrounding white space and NUL bytes; None if it is missing or cannot be read."""
    try:
        return _read_bytes(path).decode(errors="replace").strip("\0 \t\n")
    except OSError:
        # Missing, a directory, or offline hardware (sysfs answers EIO or EINVAL): in all cases there is no information.
        return None


def _read_bytes(path: Path | str) -> bytes:
    # A machine with hundreds of CPUs has thousands of these files: Python's file objects would take most of the time.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while chunk := os.read(fd, READ_BYTES):
            content += chunk
        return content
    finally:
        os.close(fd)


def read_once(path: str, most_bytes: int = READ_BYTES) -> bytes:
    """Return what one read gives, which is all of the kernel's files with one value; raises OSError."""
    # Thousands of these files are read every few seconds: Python's file objects would take most of the time.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.read(fd, most_bytes)
    finally:
        os.close(fd)


def read_ids(*lists: Path | str, masks: Iterable[Path | str] = ()) -> CpuSet | None:
    """Read IDs from the first file that exists: *lists* (``0-3,8``), then *masks* (`parse_mask`); None if none does.

    Raises:
        CriproxyError: A file has invalid content.
    """
    for path, parse in [*((each, parse_cpuset) for each in lists), *((each, parse_mask) for each in masks)]:
        text = read_text(path)
        if text is not None and text != "(null)":
            try:
                return parse(text)
            except ValueError as error:
                raise CriproxyError(f"cannot read {path}: {error}") from error
    return None


def parse_mask(text: str) -> CpuSet:
    """Return the IDs in a hexadecimal mask such as ``00000000,0000000f``; raises ValueError."""
    try:
        mask = int(text.replace(",", "") or "0", 16)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a CPU mask") from None
    if not 0 <= mask < 1 << MAX_ID + 1:
        raise ValueError(f"it names CPUs beyond the largest id, {MAX_ID}")
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def read_number(path: Path | str) -> int | None:
    """Read a decimal number, which may be negative; None if there is none."""
    return number_of(read_text(path) or "")


def number_of(text: str) -> int | None:
    """Parse a decimal number; None if *text* is none."""
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20 else None


def ids_of(text: str) -> CpuSet | None:
    """Parse IDs in list notation; None if *text* is invalid."""
    try:
        return parse_cpuset(text)
    except ValueError:
        return None


def numbered(folder: Path | str, prefix: str) -> CpuSet:
    """Return the numbers N for which *folder* has an entry named *prefix* plus N."""
    numbers = (name.removeprefix(prefix) for name in entries(folder) if name.startswith(prefix))
    return frozenset(int(number) for number in numbers if number.isascii() and number.isdigit())


def entries(folder: Path | str) -> list[str]:
    """Return the names in *folder*, sorted; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - paths would double the time
    except OSError:
        return []


def mounts(host_root: Path) -> Iterator[tuple[Path, str, frozenset[str]]]:
    """Yield place, file system and options of all that is mounted, as /proc/mounts below *host_root* says.

    The kernel escapes spaces, tabs and line feeds in names, and nothing else. Pods choose some, such as that of an NFS
    server: other characters that end lines and words in Python would let them add lines of their own.
    """
    for line in (read_text(host_root / "proc/mounts") or "").split("\n"):
        _, place, kind, options, *_ = [*line.split(" "), "", "", "", ""]
        yield host_root / place.lstrip("/"), kind, frozenset(options.split(","))
