"""What is tried with `criproxy install` and `uninstall` inside a node of `tests.systemd.booted`, as one of its units.

    python -m tests.packaging.inside_command FILE

The node has a kubelet with the files of kubeadm, which calls its runtime, and criproxy first as the Debian package, and
then from the image, if that is there. The judge is `tests.packaging.test_command`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from criproxy.install import paths
from lab.containerd.containerd import PrivateContainerd
from tests.install.nodes import FILES
from tests.packaging.inside import FIRST, Facts, dpkg, keep_opt, typed, write
from tests.systemd.booted import HOME_BESIDE_PACKAGE
from tests.systemd.inside import shown, systemctl, told, try_all

HTTP = "127.0.0.1:9820"
TOKEN = "a-secret-of-22-letters"  # noqa: S105 (of this node)
PLACES = ("/etc", "/var/lib/kubelet", "/var/lib", "/opt", "/run/criproxy")
"""Where an installation may leave files."""
IMAGE_ROOT = "/run/shared/bundle/rootfs"
_PATH = "/opt/criproxy/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECRET = "/run/secret"  # noqa: S105 (its path)
_KUBELET = f"""[Service]
WorkingDirectory={Path.cwd()}
ExecStart={sys.argv[0].partition("/source")[0]}/bin/python -m tests.packaging.calling
"""


def files() -> dict[str, Any]:
    """The mode, the owner, and the time and the content or target, of everything at these places."""
    found: dict[str, Any] = {}
    for top in PLACES:
        for folder, folders, names in os.walk(top):
            if top == "/var/lib":
                folders.clear()  # those of criproxy and of the kubelet alone count
            if folder == HOME_BESIDE_PACKAGE:
                folders.clear()  # the checkout, in which other tests write
            for name in (*names, *folders):
                path = Path(folder) / name
                status = path.lstat()
                about: list[Any] = [oct(status.st_mode), status.st_uid, status.st_gid]
                if path.is_symlink():
                    about.append(str(path.readlink()))
                elif path.is_file():
                    about += [status.st_mtime_ns, status.st_size]
                found[str(path)] = about
    return found


def kubelet() -> dict[str, str]:
    """What the kubelet's process was started with."""
    pid = shown("MainPID", "kubelet.service")
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0") if pid != "0" else []
    return {"pid": pid, "endpoint": next((word for word in reversed(words) if "endpoint" in word), "none")}


def fetched(path: str, token: str = "") -> str:
    """What criproxy's port answers, with its status."""
    asked = ("curl", "--silent", "--write-out", " %{http_code}", f"http://{HTTP}{path}")
    return str(typed(*asked, *(("--header", f"Authorization: Bearer {token}") if token else ()))["said"])


class Way:
    """A way to install: what people type, and the facts of one life of the node with it."""

    def __init__(self, program: Sequence[str], token_file: str, *options: str) -> None:
        self.facts: Facts = {}
        self._program, self._options = program, options
        self._page = ("--http", HTTP, "--http-token-file", token_file)

    def live(self) -> None:
        """Install and uninstall, and an installation that fails before."""
        self._snapshot("before")
        self._tried("dry run", "install", "--dry-run")
        self._snapshot("after the dry run")
        with broken_kubelet():
            self._tried("failed", "install", "--timeout", "3s")
        self._snapshot("after a failure")
        self._tried("install", "install", *self._page)
        self.facts["installed"] = {
            "kubelet": kubelet(),
            "units": {unit: [shown("ActiveState", unit), shown("UnitFileState", unit)] for unit in paths.ACTIVE},
            "check": typed("/opt/criproxy/bin/criproxy", "status", "--check"),
            "metrics": fetched("/metrics")[-3:],
            "page": fetched("/api/status")[-3:],
            "page with its token": fetched("/api/status", TOKEN)[-3:],
        }
        self._tried("again", "install")
        self.facts["removal of the package"] = dpkg("--remove", "criproxy")
        self._tried("uninstall", "uninstall")
        self._snapshot("after")
        self.facts["kubelet"] = kubelet()

    def _tried(self, name: str, command: str, *arguments: str) -> None:
        self.facts[name] = typed(*self._program, command, *self._options, *arguments)

    def _snapshot(self, name: str) -> None:
        self.facts[f"files {name}"] = files()


@contextmanager
def broken_kubelet() -> Iterator[None]:
    """Let the kubelet's program not start, as with a flag that it does not know."""
    drop_in = Path("/etc/systemd/system/kubelet.service.d/99-broken.conf")
    write(drop_in, "[Service]\nExecStart=\nExecStart=/bin/false $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n")
    systemctl("daemon-reload")
    yield
    drop_in.unlink()
    drop_in.parent.rmdir()
    systemctl("daemon-reload")
    systemctl("restart", "kubelet.service")


def quick_start() -> Facts:
    """What README tells to type, as it stands there, after the installation of the package; and its undoing."""
    before, told_to_type = files(), told("README.md", "kubelet of its own, as root:")
    facts = {"typed": typed("sh", "-ec", told_to_type), "kubelet": kubelet()}
    facts["drop-in"] = typed("systemctl", "show", "--value", "--property", "After,Wants", "kubelet.service")["said"]
    facts["check"] = typed("criproxy", "status", "--check")
    facts["uninstall"] = typed("criproxy", "uninstall")
    return {**facts, "files before": before, "files after": files()}


class Node:
    """The facts of each way, and the parts that they are about."""

    def __init__(self, containerd: PrivateContainerd) -> None:
        self.facts: Facts = {}
        self._containerd = containerd

    async def run(self) -> None:
        """Everything, in the order of a node's life."""
        await asyncio.to_thread(self._containerd.start)
        await asyncio.to_thread(self._live)

    def _live(self) -> None:
        self._make_kubelet()
        keep_opt()
        self.facts["deb"] = dpkg("--install", FIRST)
        write(Path(paths.POLICY), "policy: static\nreservedCpus: '0'\n")
        write(Path(_SECRET), f"{TOKEN}\n")
        self.facts["quick start"] = quick_start()
        self._by("package", Way(("criproxy",), _SECRET))
        self.facts["purge"] = dpkg("--purge", "criproxy")
        if Path(IMAGE_ROOT).exists():
            self._by("image", self._of_image())

    def _by(self, name: str, way: Way) -> None:
        way.live()
        self.facts[name] = way.facts

    def _of_image(self) -> Way:
        """Make the image's files the root directory of a process that sees the node at /host, as in the chart's pod."""
        for folder, options in (("host", ("--rbind", "/")), ("proc", ("--bind", "/proc")), ("dev", ("--bind", "/dev"))):
            subprocess.run(("mount", *options, f"{IMAGE_ROOT}/{folder}"), check=True)
        write(Path(f"{IMAGE_ROOT}/etc/page-token"), f"{TOKEN}\n")
        apart = ("unshare", "--net", "env", "-i", f"PATH={_PATH}")
        program = (*apart, "/usr/sbin/chroot", IMAGE_ROOT, "/opt/criproxy/bin/criproxy")
        return Way(program, "/etc/page-token", "--host-root=/host")

    def _make_kubelet(self) -> None:
        for name, text in FILES["kubeadm"].items():
            write(Path(name), text.replace("unix:///var/run/containerd/containerd.sock", self._containerd.endpoint))
        unit = Path("/etc/systemd/system/kubelet.service")
        write(unit, _KUBELET)
        drop_in = Path("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf")
        command = _KUBELET.rpartition("ExecStart=")[2].strip()
        write(drop_in, drop_in.read_text().replace("/usr/bin/kubelet", command))
        systemctl("daemon-reload")
        systemctl("start", "kubelet.service")


if __name__ == "__main__":
    try_all(Node)
