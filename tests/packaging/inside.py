"""What is tried with the Debian package inside a node of `tests.systemd.booted`, as one of its services.

    python -m tests.packaging.inside FILE

Its judge is `tests.packaging.test_installed`, which puts the packages into the node.
"""

import asyncio
import gc
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import pid_in
from criproxy.host.machine import discover
from criproxy.node.cgroups import Cgroups
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.systemd.inside import (
    IMAGES,
    LIMIT_S,
    MIB,
    PACE_S,
    SERVICE,
    SOCKET,
    Load,
    answers,
    cpus,
    shown,
    systemctl,
    try_all,
)

FIRST, NEXT = "/run/shared/first.deb", "/run/shared/next.deb"
UNITS = (
    "criproxy.socket",
    SERVICE,
    "criproxy-image.socket",
    "criproxy-device-plugin.service",
    "criproxy-agent.service",
    "criproxy-controls.service",
)
POLICY, OPTIONS = Path("/etc/criproxy/policy.yaml"), Path("/etc/default/criproxy")
KUBELET = Path("/etc/default/kubelet")
JOURNAL = Path("/var/lib/criproxy-install.json")
CONFIGURED = {
    str(KUBELET): f'KUBELET_EXTRA_ARGS="--container-runtime-endpoint={SOCKET}"\n',
    "/var/lib/kubelet/config.yaml": f"containerRuntimeEndpoint: {SOCKET}\n",
    "/etc/rancher/k3s/config.yaml": f"kubelet-arg:\n  - container-runtime-endpoint={SOCKET}\n",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/99.conf": f"imageServiceEndpoint: {IMAGES}\n",
    "/etc/systemd/system/kubelet.service.d/crio.conf": "[Service]\nEnvironment=A=/run/criproxy/run/crio/crio.sock\n",
}
"""Where kubelets have the endpoint → a line with ours."""
PLACES = "/opt/criproxy /etc/criproxy /etc/default /run/criproxy /usr /etc/systemd".split()
PLACES += ["/var/lib/criproxy", "/var/lib/criproxy-controls"]
"""Where files of criproxy may be."""
Facts = dict[str, Any]


def typed(*command: str, **env: str) -> Facts:
    """How a command ends, and what it prints; it does not see the checkout that this program runs from."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=inherited | env)
    return {"status": ended.returncode, "said": ended.stdout + ended.stderr}


def dpkg(*arguments: str, **env: str) -> Facts:
    """Run dpkg, whose log would be on a read-only disk, and whose triggers are about the machine's packages."""
    return typed("dpkg", "--log=/run/dpkg.log", "--no-triggers", "--force-confold", *arguments, **env)


def keep_opt() -> None:
    """Let another package have /opt, too: else dpkg removes it with criproxy, but the node's root is read-only."""
    with Path("/var/lib/dpkg/info/base-files.list").open("a") as of_another:
        of_another.write("/opt\n")


def left() -> list[str]:
    """The files of criproxy on the node."""
    found = typed("find", *(place for place in PLACES if Path(place).exists()), "-xdev", "-path", "*criproxy*")
    return sorted(line for line in found["said"].splitlines() if not line.startswith("find:"))


def units() -> dict[str, list[str]]:
    """Whether each unit runs, and whether it is enabled."""
    return {unit: [shown("ActiveState", unit), shown("UnitFileState", unit)] for unit in UNITS}


def policy() -> str:
    """The first line of the policy file."""
    return POLICY.read_text().partition("\n")[0]


def write(file: Path, text: str) -> None:
    """Write a file in a folder that may be missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def configured() -> dict[str, Facts]:
    """Try to remove the package while the kubelet is configured to use criproxy, in each of its files."""
    found: dict[str, Facts] = {}
    for file, text in CONFIGURED.items():
        write(Path(file), text)
        found[file] = dpkg("--remove", "criproxy")
        Path(file).unlink()
    return found


def connected() -> bool:
    """Whether a connection to criproxy's socket is left."""
    path = SOCKET.removeprefix("unix://")
    return any(line.endswith(path) and " 03 " in line for line in Path("/proc/net/unix").read_text().splitlines())


class Node:
    """The facts, and the parts that they are about."""

    def __init__(self, containerd: PrivateContainerd) -> None:
        self.facts: Facts = {}
        self._containerd = containerd
        self._past = RuntimeClient(containerd.endpoint)
        self._kernel = Cgroups(self._past, Path("/"))
        self._ids: dict[str, str] = {}

    async def run(self) -> None:
        """Everything, in the order of a node's life."""
        systemctl("start", "kubelet.service")
        kubelet = shown("MainPID", "kubelet.service")
        await asyncio.to_thread(self._containerd.start)
        self.installed()
        await self.starts()
        await self.changes("upgrade", NEXT)
        await self.changes("downgrade", FIRST)
        await self.refuses()
        await self.is_removed()
        await self.is_forced()
        self.facts["same kubelet"] = kubelet == shown("MainPID", "kubelet.service") != "0"

    def installed(self) -> None:
        """The package is installed; nothing else is done."""
        keep_opt()
        self.facts["before"] = left()
        self.facts["install"] = dpkg("--install", FIRST)
        self.facts["units of an installed package"] = units()
        self.facts["version"] = typed("criproxy", "--version")
        self.facts["check"] = typed("criproxy", "check", "/etc/criproxy/policy.yaml")
        self.facts["verify"] = dpkg("--verify", "criproxy")
        self.facts["libraries"] = typed(
            "/opt/criproxy/bin/python", "-c", "import grpc, uvloop, pydantic, google.protobuf"
        )

    async def starts(self) -> None:
        """The engineer configures and enables criproxy, and pods come."""
        self._configure()
        systemctl("enable", "--now", "criproxy-controls.service")
        await self._pod("web")
        await self._pod("trader", owner=True)
        self.facts["placed"] = await self._cpus()
        self.facts["nice"] = await self._nice(5)

    def _configure(self) -> None:
        classes = "classes: {nice: {for: {namespaces: ['*']}, scheduling: {nice: 5}}}"
        POLICY.write_text(f'policy: static\nreservedCpus: "{min(discover().cpus)}"\n{classes}\n')
        OPTIONS.write_text(f'CRIPROXY_OPTIONS="--runtime-endpoint {self._containerd.endpoint}"\n')
        systemctl("enable", "--now", "criproxy.socket", SERVICE)

    async def changes(self, name: str, package: str) -> None:
        """Another version is installed under calls that never cease, and a pod is created meanwhile."""
        before = shown("MainPID")
        async with asyncio.timeout(LIMIT_S), Load() as load, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pod(name))
            found = await asyncio.to_thread(dpkg, "--install", package)
            await self._pod(f"after-{name}")
        found |= {"failures": load.failures, "longest call": load.longest_s, "cpus": await self._cpus()}
        found |= {"version": typed("criproxy", "--version")["said"], "restarted": before != shown("MainPID")}
        self.facts[name] = found | {"policy": policy()}

    async def refuses(self) -> None:
        """The package is to be removed while the kubelet is connected, and while it is only configured."""
        async with Load():
            await self._pod("last")
            self.facts["removal while connected"] = await asyncio.to_thread(dpkg, "--remove", "criproxy")
        await self._disconnected()
        self.facts["removal while configured"] = await asyncio.to_thread(configured)
        await asyncio.to_thread(write, JOURNAL, "{}")
        self.facts["removal of an installation"] = await asyncio.to_thread(dpkg, "--remove", "criproxy")
        await asyncio.to_thread(JOURNAL.unlink)
        self.facts["after refusals"] = {"units": units(), "cpus": await self._cpus()}
        await asyncio.to_thread(write, KUBELET, f"# KUBELET_EXTRA_ARGS=--container-runtime-endpoint={SOCKET}\n")

    async def is_removed(self) -> None:
        """The kubelet uses the runtime's socket, and criproxy is stopped: the package is removed, then purged."""
        systemctl("stop", "criproxy.socket", SERVICE)
        write(OPTIONS, 'CRIPROXY_OPTIONS="--runtime-endpoint unix:///run/nothing.sock"\n')
        self.facts["removal without a runtime"] = await asyncio.to_thread(dpkg, "--remove", "criproxy")
        write(OPTIONS, f'CRIPROXY_OPTIONS="--http 127.0.0.1:0 --runtime-endpoint={self._containerd.endpoint}"\n')
        removed = await asyncio.to_thread(dpkg, "--remove", "criproxy")
        self.facts["removal"] = removed | {
            "cpus": await self._cpus(),
            "left": left(),
            "units": units(),
            "nice": await self._nice(),
        }
        purged = await asyncio.to_thread(dpkg, "--purge", "criproxy")
        self.facts["purge"] = purged | {"left": left()}

    async def is_forced(self) -> None:
        """It is installed again, and purged while it is in use."""
        dpkg("--install", FIRST)
        self._configure()
        async with Load():
            await self._pod("again")
            forced = await asyncio.to_thread(dpkg, "--purge", "criproxy", CRIPROXY_FORCE_REMOVE="1")
        self.facts["forced"] = forced | {"cpus": await self._cpus(), "left": left()}

    async def _pod(self, name: str, *, owner: bool = False) -> None:
        """Create a pod through criproxy, and leave no connection behind."""
        client = RuntimeClient(SOCKET, timeout_s=LIMIT_S)
        shares = ContainerSpec("main", IMAGE)
        owns = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB)
        pod = PodSpec(name, (owns if owner else shares,))
        try:
            await answers(client)
            self._ids[name] = (await MiniKubelet(client, self._containerd.cgroups).run_pod(pod))[1]["main"]
        finally:
            await client.close()

    async def _disconnected(self) -> None:
        """Wait until the kernel has forgotten our connections to the socket."""
        gc.collect()  # which gRPC waits for with its connections, even if their channels were closed
        end_s = time.monotonic() + LIMIT_S
        while connected():
            assert time.monotonic() < end_s, "a connection is left"
            await asyncio.sleep(PACE_S)

    async def _nice(self, awaited: int | None = None) -> dict[str, int]:
        """The nice value of each pod's program, after a wait until all have the one that is *awaited*."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            found = {name: os.getpriority(os.PRIO_PROCESS, await self._pid(key)) for name, key in self._ids.items()}
            if awaited is None or {*found.values()} == {awaited} or time.monotonic() > end_s:
                return found
            await asyncio.sleep(PACE_S)

    async def _pid(self, container_id: str) -> int:
        return pid_in((await self._past.container_status(container_id, verbose=True)).info) or 0

    async def _cpus(self) -> dict[str, str]:
        return await cpus(self._kernel, self._ids)


if __name__ == "__main__":
    try_all(Node)
