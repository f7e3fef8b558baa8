"""What is tried with `criproxy install` and `uninstall` inside a node of `tests.systemd.booted`, as one of its units.

    python -m tests.packaging.inside_command FILE

The node has the Debian package, and a kubelet with the files of kubeadm, which calls its runtime. The judge is
`tests.packaging.test_command`.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from criproxy.emulator.containerd import PrivateContainerd
from criproxy.install import paths
from tests.install.nodes import FILES
from tests.packaging.inside import FIRST, Facts, dpkg, keep_opt, typed, write
from tests.systemd.inside import shown, systemctl, try_all

HTTP = "127.0.0.1:9820"
TOKEN = "a-secret-of-22-letters"  # noqa: S105 (of this node)
PLACES = ("/etc", "/var/lib/kubelet", "/var/lib", "/opt", "/run/criproxy")
"""Where an installation may leave files."""
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


class Node:
    """The facts, and the parts that they are about."""

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
        self._snapshot("before")
        self._tried("dry run", "install", "--dry-run")
        self._snapshot("after the dry run")
        self.facts["failed"] = self._without_calls()
        self._snapshot("after a failure")
        self._tried("install", "install", "--http", HTTP, "--http-token-file", _SECRET)
        self.facts["installed"] = {
            "kubelet": kubelet(),
            "units": {unit: [shown("ActiveState", unit), shown("UnitFileState", unit)] for unit in paths.ACTIVE},
            "check": typed("criproxy", "status", "--check"),
            "metrics": fetched("/metrics")[-3:],
            "page": fetched("/api/status")[-3:],
            "page with its token": fetched("/api/status", TOKEN)[-3:],
        }
        self._tried("again", "install")
        self.facts["removal of the package"] = dpkg("--remove", "criproxy")
        self._tried("uninstall", "uninstall")
        self._snapshot("after")
        self.facts["kubelet"] = kubelet()
        self.facts["purge"] = dpkg("--purge", "criproxy")

    def _make_kubelet(self) -> None:
        for name, text in FILES["kubeadm"].items():
            write(Path(name), text.replace("unix:///var/run/containerd/containerd.sock", self._containerd.endpoint))
        unit = Path("/etc/systemd/system/kubelet.service")
        write(unit, _KUBELET)
        drop_in = Path("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf")
        command = _KUBELET.rpartition("ExecStart=")[2].strip()
        write(drop_in, drop_in.read_text().replace("/usr/bin/kubelet", command))
        write(Path(_SECRET), f"{TOKEN}\n")
        systemctl("daemon-reload")
        systemctl("start", "kubelet.service")

    def _without_calls(self) -> Facts:
        """Install while the kubelet's program does not start, as with a flag that it does not know."""
        drop_in = Path("/etc/systemd/system/kubelet.service.d/99-broken.conf")
        write(drop_in, "[Service]\nExecStart=\nExecStart=/bin/false $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n")
        systemctl("daemon-reload")
        found = typed("criproxy", "install", "--timeout", "3s")
        drop_in.unlink()
        drop_in.parent.rmdir()
        systemctl("daemon-reload")
        systemctl("restart", "kubelet.service")
        return found

    def _tried(self, name: str, *arguments: str) -> None:
        self.facts[name] = typed("criproxy", *arguments)

    def _snapshot(self, name: str) -> None:
        self.facts[f"files {name}"] = files()


if __name__ == "__main__":
    try_all(Node)
