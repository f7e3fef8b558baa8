"""Tells irqbalance, by its socket, which CPUs and which interrupts it leaves alone; else it would undo all affinities.

For the rest of this package, that is one more file: its content is ``cpus 2-3 irqs 24,30``, with what is banned.
irqbalance applies it within a minute, and then does not answer for a while; what it was told last counts until then.
"""

import re
import socket
import struct
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from errno import ENOENT
from os import getegid, geteuid, getpid
from pathlib import Path
from time import monotonic

from criproxy.controls.machine.kernel import KernelFiles, Value
from criproxy.host.files import entries, parse_mask, read_text
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset

PLACE = "run/irqbalance"
_SOCKET = re.compile(r"irqbalance\d+\.sock")
_TIMEOUT_S = 0.5
_APPLIES_S = 120.0
"""How long irqbalance may take to do what it was told."""
_MOST_BYTES = 1 << 20
_IN_CONTAINER = re.compile(r"^NSpid:\s*\d+\s+\d", re.MULTILINE)
"""In /proc/PID/status of a process in a PID namespace of its own, which has a number there, too."""
_FOUND = re.compile(r"cpus ([\d,-]*) irqs ([\d,]*)")


@dataclass(frozen=True, slots=True)
class Banned(Value):
    """What irqbalance shall leave alone, and what it left alone before."""

    cpus: CpuSet
    irqs: frozenset[int]

    def content(self, original: str) -> str:
        """Return both."""
        return _text(self.cpus, self.irqs | _parsed(original)[1])

    def holds(self, found: str) -> bool:
        """Whether all is banned."""
        cpus, irqs = _parsed(found)
        return cpus == self.cpus and irqs >= self.irqs


class IrqbalanceFiles(KernelFiles):
    """Files, with irqbalance as one of them.

    Args:
        host_root: the folder with /run.
        files: reads and writes all others.
    """

    def __init__(self, host_root: Path, files: KernelFiles) -> None:
        self.path = f"{str(host_root).rstrip('/')}/{PLACE}"
        self._files = files
        self._told: tuple[str, str, float] = ("", "", 0.0)
        """The socket, what it was told, and when."""

    @property
    def runs(self) -> bool:
        """Whether there is a socket of it."""
        return any(map(_SOCKET.fullmatch, entries(self.path)))

    def read(self, path: str) -> str:
        """Return the content of a file."""
        if path != self.path:
            return self._files.read(path)
        place, told, at_s = self._told
        if monotonic() - at_s < _APPLIES_S and place == self._socket():
            return told
        answer = self._ask("setup", answers=True)
        irqs = frozenset(int(number) for number in re.findall(r"\bIRQ (\d+)", answer))
        mask = re.search(r"\bBANNED ([0-9a-fA-F,]+)", answer)
        return _text(parse_mask(mask[1]) if mask else frozenset(), irqs)

    def write(self, path: str, text: str) -> None:
        """Write the content of a file."""
        if path != self.path:
            self._files.write(path, text)
            return
        cpus, irqs = _parsed(text)
        self._ask(f"settings cpus {format_cpuset(cpus) or 'NULL'}")
        self._ask(f"settings ban irqs {' '.join(map(str, sorted(irqs))) or 'NONE'}")
        self._told = self._socket(), text, monotonic()

    def _socket(self) -> str:
        for name in entries(self.path):
            if _SOCKET.fullmatch(name):
                return f"{self.path}/{name}"
        raise FileNotFoundError(ENOENT, "irqbalance has no socket", self.path)

    def _ask(self, request: str, *, answers: bool = False) -> str:
        """Send a request with who we are; return the answer, which ends with the connection."""
        found = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_TIMEOUT_S)
            sock.connect(self._socket())
            credentials = struct.pack("3i", getpid(), geteuid(), getegid())
            sock.sendmsg([request.encode()], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)])
            with nullcontext() if answers else suppress(TimeoutError):  # it reads settings later, in any case
                while len(found) < _MOST_BYTES and (part := sock.recv(1 << 16)):
                    found += part
        return found.decode(errors="replace")


def unreachable(host_root: Path) -> bool:
    """Whether irqbalance runs without a socket, outside of containers. Reads /proc of all processes."""
    proc = host_root / "proc"
    found = (name for name in entries(proc) if name.isdigit() and read_text(proc / name / "comm") == "irqbalance")
    return any(not _IN_CONTAINER.search(read_text(proc / name / "status") or "") for name in found)


def _text(cpus: CpuSet, irqs: frozenset[int]) -> str:
    return f"cpus {format_cpuset(cpus)} irqs {','.join(map(str, sorted(irqs)))}"


def _parsed(text: str) -> tuple[CpuSet, frozenset[int]]:
    found = _FOUND.fullmatch(text)
    if found is None:
        return frozenset(), frozenset()
    return parse_cpuset(found[1]), frozenset(int(number) for number in found[2].split(",") if number)
