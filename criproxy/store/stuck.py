"""Processes that have been killed, but that the kernel does not let end: they wait for a disk or a driver.

Such a process keeps its locks until the disk or the driver answers.
"""

import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_KILL = 1 << (signal.SIGKILL - 1)
_PENDING = ("SigPnd", "ShdPnd")


def is_ending(pid: int) -> bool:
    """Whether a process exists, and has been killed or has exited."""
    status = _status(_PROC / str(pid))
    killed = any(int(status.get(name, "0"), 16) & _KILL for name in _PENDING)
    return killed or status.get("State", "")[:1] in ("Z", "X")


def why_it_stays(pid: int) -> str:
    """Return a sentence about such a process, without its subject, for those who want its lock."""
    places = sorted(filter(None, map(_place, _tasks(pid))))
    where = f" (it waits in {', '.join(places)})" if places else ""
    return (
        f"has been killed, but cannot end, because the kernel does not let it{where}: usually, a disk or a driver does "
        "not answer. It ends when that answers, or with a restart of the machine; nothing else can end it"
    )


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return [*(_PROC / str(pid) / "task").iterdir()]
    return []


def _place(task: Path) -> str:
    """Return the function of the kernel in which a thread waits and cannot be interrupted."""
    if not _status(task).get("State", "").startswith("D"):
        return ""
    with suppress(OSError):
        return (task / "wchan").read_text().strip("\0\n0")
    return ""


def _status(place: Path) -> dict[str, str]:
    """Return the fields of a process or thread; none if it has ended."""
    with suppress(OSError):
        lines = (place / "status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
