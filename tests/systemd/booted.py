"""A small node with systemd as its process 1, in namespaces of this machine: no virtual machine, no change to it.

It has criproxy's units as they are shipped, at the place that they name, and the machine's containerd. What is tried
in it is `tests.systemd.inside`, a service of that node.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lab.containerd import containerd

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0
RESULT, BOOT_LOG, INSIDE_LOG = "result.json", "boot.log", "inside.log"
DAEMON_LOG, PLUGIN_LOG = "criproxy.log", "device-plugin.log"
_SYSTEMD = Path("/lib/systemd/systemd")
_CGROUPS = Path("/sys/fs/cgroup")
_TARGETS = "sysinit basic sockets shutdown umount final slices multi-user local-fs network".split()
HOME, HOME_BESIDE_PACKAGE = "/opt/criproxy", "/opt/node"
"""Where the node has this checkout with its libraries: as if it were installed, or so that a package can be."""
_PYTHON = f"""#!/bin/sh
export LD_LIBRARY_PATH={{home}}/python/lib
export PYTHONPATH={{home}}/source:{{home}}/libraries PYTHONDONTWRITEBYTECODE=1
exec {{home}}/python/bin/python{sys.version_info.major}.{sys.version_info.minor} "$@"
"""
_PROGRAMS = {"python": _PYTHON, "criproxy": '#!/bin/sh\nexec {home}/bin/python -m criproxy "$@"\n'}
_UNITS = {
    "node.target": "[Unit]\nRequires=multi-user.target inside.service\n",
    "inside.service": f"""[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
RuntimeMaxSec={LIMIT_S:.0f}
ExecStart={{home}}/bin/python -m {{module}} /run/shared/{RESULT}
WorkingDirectory={{home}}/source
StandardOutput=append:/run/shared/{INSIDE_LOG}
StandardError=append:/run/shared/{INSIDE_LOG}
""",
    "kubelet.service": "[Service]\nExecStart=/bin/sleep infinity\n",
    "criproxy.service.d/log.conf": f"[Service]\nStandardError=append:/run/shared/{DAEMON_LOG}\n",
    "criproxy-device-plugin.service.d/log.conf": f"[Service]\nStandardError=append:/run/shared/{PLUGIN_LOG}\n",
}


def facts(shared: Path, module: str = "tests.systemd.inside", home: str = HOME) -> dict[str, Any]:
    """Boot a node, let *module* try everything in it, after which it ends, and return what it found.

    Raises:
        AssertionError: if it did not come to an end; the text has what was said.
    """
    prepare(shared, module, home)
    with booted(shared, home) as process, suppress(subprocess.TimeoutExpired):
        process.wait(2 * LIMIT_S)
    logs = [shared / name for name in (BOOT_LOG, INSIDE_LOG, DAEMON_LOG, PLUGIN_LOG)]
    said = "\n".join(f"{log.name}:\n{log.read_text()}" for log in logs if log.exists())
    assert (shared / RESULT).exists(), said
    found: dict[str, Any] = json.loads((shared / RESULT).read_text())
    assert "Traceback" not in (shared / INSIDE_LOG).read_text(), said
    return found


def available() -> str | None:
    """Return why such a node cannot be made here; None if it can."""
    if not _SYSTEMD.exists():
        return f"not installed: {_SYSTEMD}"
    if not shutil.which("unshare"):
        return "not installed: unshare"
    return containerd.available()


def prepare(shared: Path, module: str, home: str) -> None:
    """Write the units and programs of the node into *shared*."""
    units = shared / "units"
    if home == HOME:
        shutil.copytree(ROOT / "systemd", units)
    units.mkdir(exist_ok=True)
    for target in _TARGETS:
        shutil.copy(_SYSTEMD.parent / "system" / f"{target}.target", units)
    for name, text in _UNITS.items():
        (units / name).parent.mkdir(exist_ok=True)
        (units / name).write_text(text.format(home=home, module=module))
    (shared / "bin").mkdir()
    for name, text in _PROGRAMS.items():
        (shared / "bin" / name).write_text(text.format(home=home))
        (shared / "bin" / name).chmod(0o755)


@contextmanager
def booted(shared: Path, home: str = HOME) -> Iterator[subprocess.Popen[bytes]]:
    """Boot a node whose writable folder is *shared*; leaving the context ends it with all its processes."""
    cgroup = f"criproxy-systemd-{os.getpid()}"
    places = (shared, ROOT, Path(sys.base_prefix), Path(sysconfig.get_path("purelib")))
    enter = (ROOT / "tests/systemd/boot.sh", "enter", cgroup, *places, home)
    with (shared / BOOT_LOG).open("wb") as log:
        process = subprocess.Popen(enter, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()  # the kernel ends the rest of the node with it
        process.wait()
        _remove(cgroup)


def _remove(cgroup: str) -> None:
    """Remove the groups of a node, which its processes leave one after the other."""
    deadline = time.monotonic() + LIMIT_S
    for top in [place / cgroup for place in (_CGROUPS, *_CGROUPS.iterdir()) if (place / cgroup).is_dir()]:
        for directory, _, _ in os.walk(top, topdown=False):
            while not _removed(Path(directory)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"processes do not leave {directory}")
                time.sleep(0.01)  # the kernel tells nobody


def _removed(group: Path) -> bool:
    """Try to remove a group; False while a process is still in it."""
    try:
        group.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
