"""Files that a command was given and cannot read: what is wrong, where, and what would be right."""

from pathlib import Path

from criproxy.errors import UsageError


def unreadable(file: Path, error: OSError | UnicodeDecodeError, wanted: str) -> UsageError:
    """What to raise of *error* at *file*, which must be *wanted*."""
    if isinstance(error, UnicodeDecodeError):
        line, byte = _first_strange(file)
        return UsageError(f"{file}{line}: the byte 0x{byte:02X} is not UTF-8 text: it must be {wanted}")
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{file}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{file}: is a directory: it must be {wanted}")
    return UsageError(f"{file}: cannot be read ({error.strerror or error}): it must be {wanted}")


def _first_strange(file: Path) -> tuple[str, int]:
    """``:LINE`` and value of the first byte that is no UTF-8; as far as it can be found out."""
    try:
        with file.open("rb") as source:
            for number, line in enumerate(source, start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    return f":{number}", line[error.start]
    except OSError:
        pass
    return "", 0xFF
