"""Reading the small files of /sys and /proc, which may be missing, empty or odd."""

from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.model.cpuset import CpuSet, parse_cpuset


def read_text(path: Path) -> str | None:
    """The file without surrounding white space and NUL bytes; None where it is not there or cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace").strip("\0 \t\n")
    except OSError:
        # Missing, a directory, or offline hardware (sysfs answers EIO or EINVAL): all mean that it says nothing.
        return None


def read_ids(*paths: Path) -> CpuSet | None:
    """Ids in list notation (``0-3,8``) from the first of *paths* that says something; None where none does.

    Raises:
        CriproxyError: a file says something else.
    """
    for path in paths:
        text = read_text(path)
        if text is not None and text != "(null)":
            try:
                return parse_cpuset(text)
            except ValueError as error:
                raise CriproxyError(f"cannot read {path}: {error}") from error
    return None


def read_mask(*paths: Path) -> CpuSet | None:
    """Ids from a hexadecimal mask (``00000000,0000000f``) in the first of *paths* that exists; None where none does."""
    for path in paths:
        text = read_text(path)
        if text:
            try:
                mask = int(text.replace(",", ""), 16)
            except ValueError as error:
                raise CriproxyError(f"cannot read {path}: {text[:40]!r} is no mask of CPUs") from error
            return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    return None


def numbered(folder: Path, prefix: str) -> CpuSet:
    """The numbers N for which *folder* holds an entry named *prefix* and N."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return frozenset()
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return frozenset(int(number) for number in numbers if number.isascii() and number.isdigit())
