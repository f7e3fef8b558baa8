"""Runs one command, or a shell, in a throw-away guest, and passes on its output and its exit status."""

import ctypes
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lab.vm import kernel, qemu
from lab.vm.kernel import GuestError

GUEST_SCRIPT = Path(__file__).with_name("guest.sh")

SYSTEMD = "/lib/systemd/systemd"

_POWER_OFF_TIMEOUT_S = 10.0
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
_LOG_CHARS = 1500


@dataclass(frozen=True, slots=True)
class Job:
    """What a guest is started for."""

    command: str | None
    """For bash; None is a shell on our terminal."""
    directory: Path
    """Where the command runs, as on the host."""
    timeout_s: float
    """For all of it, boot and power-off included."""
    share: Path | None = None
    """A folder of the host that the guest can write to, as /share."""
    environment: Mapping[str, str] = field(default_factory=dict)
    systemd: bool = False
    """Whether systemd is the first process, with the job as its only service."""


class GuestTimeoutError(GuestError):
    """The guest was ended because its time was over."""

    status = 124


def unavailable() -> str | None:
    """Why no guest can run on this machine; None if one can."""
    if platform.machine() != "x86_64":
        return f"guests are x86_64, this machine is {platform.machine()}"
    if os.geteuid() != 0:
        return "guests see this machine's files as root: needs root"
    if not shutil.which(qemu.PROGRAM):
        return "not installed: qemu-system-x86 (make setup installs it)"
    if not kernel.find():
        return f"no guest kernel in {kernel.CACHE} (make setup fetches it)"
    if not shutil.which("busybox"):
        return "not installed: busybox-static"
    return None


def run(hardware: qemu.Hardware, job: Job, out: BinaryIO | None = None, error: BinaryIO | None = None) -> int:
    """Boot, run the job, and power off; the command's exit status.

    Args:
        hardware: the guest.
        job: what to do in it.
        out: gets the command's standard output while it runs; nobody if None.
        error: the same for standard error.

    Raises:
        GuestTimeoutError: if it takes longer than the job may.
        GuestError: if no guest can run here, or it ended before the command did; with the end of its logs.
    """
    found = kernel.find()
    if (reason := unavailable()) or not found:
        raise GuestError(reason or "no kernel")
    if job.systemd and not Path(SYSTEMD).exists():
        raise GuestError("not installed: systemd (make setup installs it)")
    with tempfile.TemporaryDirectory(prefix="criproxy-vm-") as scratch:
        directory = Path(scratch)
        command = _prepare(hardware, job, found, directory)
        tails = [_Tail(directory / name, stream) for name, stream in (("stdout", out), ("stderr", error)) if stream]
        with _started(command, directory, terminal=job.command is None) as process:
            _follow(process, directory, tails, time.monotonic() + job.timeout_s)
        for tail in tails:
            tail.pump()
        if not (directory / "status").exists():
            raise _failure(directory, "the guest ended before its command did")
        return int((directory / "status").read_text())


def _prepare(hardware: qemu.Hardware, job: Job, found: kernel.Kernel, directory: Path) -> list[str]:
    """Fill the run directory; returns QEMU's command line."""
    busybox = Path(shutil.which("busybox") or "busybox").resolve()
    modules = (*kernel.BASE_MODULES, *(kernel.PMEM_MODULES if hardware.machine.pmem_nodes else ()))
    archive = kernel.build(kernel.CACHE, busybox, found, modules)
    shutil.copy(busybox, directory / "busybox")
    shutil.copy(GUEST_SCRIPT, directory / "guest.sh")
    (directory / "settings").write_text(_settings(job))
    (directory / "command").write_text(_script(job, hardware))
    for name in ("busybox", "guest.sh", "command"):
        (directory / name).chmod(0o755)
    folders = [qemu.Shared("vmroot", Path("/"), read_only=True), qemu.Shared("vmrun", directory)]
    folders += [qemu.Shared("vmshare", job.share)] if job.share else []
    console = directory / "console.log"
    return qemu.command(hardware, found.image, archive, folders, console, terminal=job.command is None)


def _settings(job: Job) -> str:
    """Variables for the scripts in the guest."""
    values = {
        "SHARE": "1" if job.share else "",
        "DIRECTORY": str(job.directory),
        "TERMINAL": "" if job.command is not None else "1",
        "SYSTEMD": SYSTEMD if job.systemd else "",
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _script(job: Job, hardware: qemu.Hardware) -> str:
    given = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TERM") if name in os.environ}
    # Only tmpfs carries an overlay as containerd makes them: the guest's root is one already.
    variables = {**given, "TMPDIR": "/run/tmp", "CRIPROXY_VM": hardware.machine.name, **job.environment}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    size = shutil.get_terminal_size()
    # QEMU leaves it to our terminal to return the carriage.
    shell = f"stty sane -onlcr rows {size.lines} cols {size.columns}\nexec bash"
    return f"#!/bin/bash\n{exports}{shell if job.command is None else job.command}\n"


@contextmanager
def _started(command: list[str], directory: Path, *, terminal: bool) -> Iterator[subprocess.Popen[bytes]]:
    """QEMU, which ends with the context, and with us however we end."""
    libc = ctypes.CDLL(None)
    with (directory / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=None if terminal else subprocess.DEVNULL,
            stdout=None if terminal else log,
            stderr=log,
            # A terminal belongs to one session; otherwise an interrupt is for us, and we end it.
            start_new_session=not terminal,
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (the child runs no threads)
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_POWER_OFF_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _follow(process: subprocess.Popen[bytes], directory: Path, tails: "list[_Tail]", deadline: float) -> None:
    """Pass output on until the guest has powered off."""
    while process.poll() is None:
        now = time.monotonic()
        if now > deadline:
            raise _failure(directory, "its time is over", GuestTimeoutError)
        if (directory / "status").exists():
            deadline = min(deadline, now + _POWER_OFF_TIMEOUT_S)
        for tail in tails:
            tail.pump()
        time.sleep(_POLL_S)  # files on 9p tell nobody that they have grown


def _failure(directory: Path, what: str, kind: type[GuestError] = GuestError) -> GuestError:
    """An error with the ends of what QEMU and the guest's kernel wrote."""
    ends = []
    for name in ("qemu.log", "console.log", "stderr"):
        path = directory / name
        text = path.read_text(errors="replace").strip()[-_LOG_CHARS:] if path.exists() else ""
        if text:
            ends.append(f"--- end of {name}\n{text}")
    return kind("\n".join([what, *ends]))


class _Tail:
    """Copies what a growing file gains."""

    def __init__(self, path: Path, out: BinaryIO) -> None:
        self._path, self._out, self._at = path, out, 0

    def pump(self) -> None:
        """Copy what is new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        self._out.write(data)
        self._out.flush()
