"""What is tried inside the node of `tests.systemd.booted`, as one of its services; the facts go into a JSON file.

    python -m tests.systemd.inside FILE

It judges nothing: the tests outside do, in `tests.systemd.test_booted`.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp

from criproxy.controls import DEFAULT_SOCKET
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.host.machine import discover
from criproxy.model.controls import ContainerControls, Desired, Irqs, Scheduling
from criproxy.model.cpuset import format_cpuset
from criproxy.model.text.plain import to_plain
from criproxy.node.cgroups import Cgroups
from criproxy.nri import api_pb2 as nri
from criproxy.process.control_protocol import request_of
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.controls.cgroups import Cgroup
from tests.kernel_files import DEFAULT_AFFINITY
from tests.nri.peer import Runtime
from tests.nri.test_messages import POD

SOCKET = "unix:///run/criproxy/criproxy.sock"
IMAGES = "unix:///run/criproxy/image.sock"
HTTP = "/run/criproxy/http.sock"
SERVICE = "criproxy.service"
PLUGIN, AGENT = "criproxy-device-plugin.service", "criproxy-agent.service"
CONTROLS = "criproxy-controls.service"
CONTROLLED = (
    "proc/irq proc/sys sys/devices/system/cpu sys/fs/cgroup/blkio sys/block etc var/lib/criproxy-controls".split()
)
STATUS = "criproxy status --format json"
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: here, user: agent}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: agent, user: {token: secret}}]
"""
"""Nobody listens there."""
PLUGIN_FOLDERS = (
    "/var/lib/kubelet /var/lib/kubelet/device-plugins /var/lib/kubelet/plugins_registry "
    "/etc/kubernetes/node-feature-discovery/features.d"
).split()
CARDS = """policy: none
devices:
  classes: [{name: card, resources: [example.com/card], nodes: {perDevice: ["/dev/nvidia{index}"]}}]
  plugin: {advertise: [card]}
"""
LIMIT_S = 60.0
PACE_S = 0.005
"""Between two of the calls that never end, and between two looks at what tells nobody that it changed."""
MIB = 1 << 20
NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


def systemctl(*arguments: str) -> str:
    """What systemctl prints; how it ends is seen in what it did."""
    return subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def shown(prop: str, unit: str = SERVICE) -> str:
    """A property of a unit."""
    return systemctl("show", "--value", f"--property={prop}", unit)


def told(page: str, sentence: str) -> str:
    """The commands that *page* tells to type after *sentence*, but for those of pip and a virtual environment."""
    _, found, after = (ROOT / page).read_text().partition(sentence)
    assert found, f"{page} does not say {sentence!r} any more"
    lines = [line.strip() for line in after.partition("\n    ")[2].partition("\n\n")[0].splitlines()]
    return "\n".join(line for line in lines if not re.search(r" -m venv |/pip install |^ln -sf|^apt ", line))


def forget(runtime: Path) -> None:
    """Make it a node that has never seen criproxy, with *runtime* where containerd's socket usually is."""
    shutil.rmtree("/var/lib/criproxy")
    shutil.rmtree("/run/shared/units/kubelet.service.d")
    Path("/etc/default/criproxy").unlink()
    place = Path("/run/containerd")
    place.mkdir(exist_ok=True)
    place.chmod(0o711)  # as containerd itself makes it
    (place / "containerd.sock").symlink_to(runtime)


def typed(commands: str) -> dict[str, Any]:
    """Commands as an engineer types them in a checkout: how they end, and what is on the screen."""
    run = ["sh", "-euc", commands]
    where = {"PATH": f"/opt/criproxy/bin:{os.environ['PATH']}", "COLUMNS": "150"}
    ended = subprocess.run(run, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **where})
    return {"status": ended.returncode, "said": ended.stdout + ended.stderr}


def daemon_log() -> str:
    """What criproxy has written so far."""
    return Path("/run/shared/criproxy.log").read_text()


def names(directory: str) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in Path(directory).iterdir())


def network_namespace() -> str:
    """The name that the kernel has for ours."""
    return str(Path("/proc/self/ns/net").readlink())


def hidden_nodes(pid: str) -> list[str]:
    """The entries of /dev that a process does not see."""
    return sorted(set(names("/dev")) - set(names(f"/proc/{pid}/root/dev")))


def rights(pid: str) -> dict[str, str]:
    """Capabilities of a process, and whether its system calls are filtered (2)."""
    lines = (line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return {key: value for key, value in lines if key in ("CapEff", "CapBnd", "Seccomp")}


def offers_cards() -> dict[str, Any]:
    """The facts of the device plugin, on a node that has never had a kubelet."""
    Path("/opt/criproxy/cards.yaml").write_text(CARDS)
    options = "--config /opt/criproxy/cards.yaml"
    Path("/etc/default/criproxy-device-plugin").write_text(f'CRIPROXY_DEVICE_PLUGIN_OPTIONS="{options}"\n')
    systemctl("start", PLUGIN)
    found: dict[str, Any] = {"state": shown("ActiveState", PLUGIN), "process": rights(shown("MainPID", PLUGIN))}
    found["folders"] = {path: f"{Path(path).stat().st_mode & 0o777:04o}" for path in PLUGIN_FOLDERS}
    end_s = time.monotonic() + LIMIT_S
    while not [name for name in names(PLUGIN_FOLDERS[1]) if not name.startswith(".")] and time.monotonic() < end_s:
        time.sleep(PACE_S)
    found["sockets"], found["status"] = names(PLUGIN_FOLDERS[1]), shown("StatusText", PLUGIN)
    systemctl("reload", PLUGIN)
    systemctl("stop", PLUGIN)
    found["left"], found["result"] = names(PLUGIN_FOLDERS[1]), shown("Result", PLUGIN)
    return found


def runs_the_agent() -> dict[str, Any]:
    """The facts of the agent, whose API server does not answer: what `status` says of it, and its rights."""
    systemctl("start", AGENT)  # has no effect without a kubeconfig
    found: dict[str, Any] = {"without a kubeconfig": shown("ActiveState", AGENT)}
    Path("/etc/criproxy").mkdir(exist_ok=True)
    kubeconfig = Path("/etc/criproxy/agent.kubeconfig")
    kubeconfig.write_text(KUBECONFIG)
    kubeconfig.chmod(0o600)
    Path("/etc/default/criproxy-agent").write_text('CRIPROXY_AGENT_OPTIONS="--node-name w1 --first-contact 0s"\n')
    systemctl("start", AGENT)
    pid, end_s = shown("MainPID", AGENT), time.monotonic() + LIMIT_S
    found |= {"state": shown("ActiveState", AGENT), "process": rights(pid)}
    found["is root"] = Path(f"/proc/{pid}").stat().st_uid == 0
    while time.monotonic() < end_s and len((status := json.loads(typed(STATUS)["said"]))["agent"]["problems"]) < 1:
        time.sleep(PACE_S)
    found |= {"status": status["agent"]["problems"], "check": typed("criproxy status --check")["status"]}
    found["group"] = shown("ControlGroup", AGENT)
    while time.monotonic() < end_s and "connects" in (text := shown("StatusText", AGENT)):  # by a heartbeat
        time.sleep(PACE_S)
    found["text"] = text
    systemctl("stop", AGENT)
    return found | {"result": shown("Result", AGENT)}


def asked_controls(place: str, command: str = "status", **arguments: object) -> dict[str, Any]:
    """What the controls answer on their socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(place)
        sock.sendall(request_of(command, arguments))
        return dict(json.loads(sock.makefile().readline())["result"])


def runs_the_controls() -> dict[str, Any]:
    """The facts of what applies classes outside of CRI: its rights, and a file of the machine that it changes."""
    typed("mount -o remount,bind,rw /sys")  # as on a machine; the node's is read-only
    systemctl("start", CONTROLS)
    pid, place = shown("MainPID", CONTROLS), DEFAULT_SOCKET
    found: dict[str, Any] = {"state": shown("ActiveState", CONTROLS), "process": rights(pid)}
    found["modes"] = [f"{path.stat().st_mode & 0o777:04o}" for path in (Path(place).parent, Path(place))]
    found["before"] = DEFAULT_AFFINITY.read_text()
    with Cgroup() as cgroup:
        thread = cgroup.run("setpriv", f"--reuid={NOBODY}", "--clear-groups", "sleep", "1000").pid
        scheduling = Scheduling(policy="batch", nice=-5, io_class="be", io_priority=1)
        containers = {"a": ContainerControls(cgroup=f"/{cgroup.path}", scheduling=scheduling)}
        irqs = Irqs(cpus=str(min(discover().cpus)))
        for name, desired in (("applied", Desired(containers=containers, irqs=irqs)), ("put back", Desired())):
            answer = asked_controls(place, "apply", generation=len(found), desired=to_plain(desired))
            while answer.get("pending"):
                answer = asked_controls(place)
            found[name] = {"file": DEFAULT_AFFINITY.read_text(), "troubles": answer.get("troubles", [])}
            found[name]["thread"] = [os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)]
    root = Path(f"/proc/{pid}/root")
    found["read-only"] = {place: bool(os.statvfs(root / place).f_flag & os.ST_RDONLY) for place in CONTROLLED}
    systemctl("stop", CONTROLS)
    typed("mount -o remount,bind,ro /sys")
    return found | {"result": shown("Result", CONTROLS), "left": typed("criproxy controls --put-back")}


def reaches_processes() -> dict[str, Any]:
    """What the rights of the device plugin allow towards processes of root and of others."""
    root, other = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"], user=NOBODY)
    unit = Path(f"/run/shared/units/{PLUGIN}").read_text()
    probe = f"ExecStart=/opt/criproxy/bin/python -m tests.systemd.probe {root.pid} {other.pid}"
    text = re.sub("(?m)^ExecStart=.*$", probe, unit).replace("Type=notify", "Type=oneshot")
    text = re.sub("(?m)^(Restart|WatchdogSec|ExecReload)=.*$", "", text)
    found: dict[str, Any] = {}
    for name, dropped_in in (("as shipped", ""), ("with CAP_KILL", kill_drop_in())):
        said = Path(f"/run/shared/probe-{len(found)}.json")
        Path("/run/shared/units/probe.service").write_text(
            f"{text}\n{dropped_in}[Service]\nStandardOutput=file:{said}\n"
        )
        systemctl("daemon-reload")
        systemctl("start", "probe.service")
        found[name] = json.loads(said.read_text() or "null") if said.exists() else shown("Result", "probe.service")
    for process in (root, other):
        process.kill()
        process.wait()
    return found


def kill_drop_in() -> str:
    """The drop-in that docs/vgpu.md has."""
    _, _, rest = (ROOT / "docs/vgpu.md").read_text().partition("kill-process.conf`")
    _, found, after = rest.partition("\n\n    ")
    assert found, "docs/vgpu.md has no drop-in any more"
    return "".join(f"{line.strip()}\n" for line in after.partition("\n\n")[0].splitlines())


async def cpus(kernel: Cgroups, ids: Mapping[str, str]) -> dict[str, str]:
    """Pod → the CPUs in the cgroup of its running container."""
    seen = {pod: (await kernel.read(key)).applied for pod, key in ids.items()}
    return {pod: format_cpuset(applied.cpus) if applied else "does not run" for pod, applied in seen.items()}


async def answers(client: RuntimeClient) -> None:
    """Wait for an answer: a gRPC channel that was refused pauses before it dials again."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with suppress(RuntimeCallError):
                await client.version()
                return
            await asyncio.sleep(PACE_S)


class Load:
    """Asks for the version all the time over one channel, as the kubelet's status loop does."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.failures: list[str] = []
        self.longest_s = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        client = RuntimeClient(SOCKET, timeout_s=LIMIT_S)
        try:
            await self._ask(client)
        finally:
            await client.close()

    async def _ask(self, client: RuntimeClient) -> None:
        while True:
            begin_s = time.monotonic()
            try:
                await client.version()
            except RuntimeCallError as error:
                self.failures.append(str(error))
            self.longest_s = max(self.longest_s, time.monotonic() - begin_s)
            await asyncio.sleep(PACE_S)


class Node:
    """The facts, and the parts that they are about."""

    def __init__(self, containerd: PrivateContainerd) -> None:
        self.facts: dict[str, Any] = {}
        self._containerd = containerd
        self._through, self._past = RuntimeClient(SOCKET, timeout_s=LIMIT_S), RuntimeClient(containerd.endpoint)
        self._kubelet = MiniKubelet(self._through, containerd.cgroups)
        self._kernel = Cgroups(self._past, Path("/"))
        self._ids: dict[str, str] = {}
        self._options(f"--http unix://{HTTP}")
        Path("/opt/criproxy/policy.yaml").write_text(f'policy: static\nreservedCpus: "{min(discover().cpus)}"\n')

    def _options(self, more: str) -> None:
        options = f"--config /opt/criproxy/policy.yaml --runtime-endpoint {self._containerd.endpoint} {more}"
        Path("/etc/default/criproxy").write_text(f'CRIPROXY_OPTIONS="{options}"\n')

    async def run(self) -> None:
        """Everything, in the order of a node's life."""
        await self.boots_before_the_runtime()
        await asyncio.to_thread(self._containerd.start)
        await self.places()
        await self.restarts("restart", lambda: systemctl("restart", SERVICE))
        await self.restarts("killed", lambda: os.kill(int(shown("MainPID")), signal.SIGKILL))
        await self.restarts("hung", lambda: os.kill(int(shown("MainPID")), signal.SIGABRT))
        await self.reloads()
        self.facts["agent"] = await asyncio.to_thread(runs_the_agent)
        self.facts["controls"] = await asyncio.to_thread(runs_the_controls)
        self.facts["device plugin"] = await asyncio.to_thread(offers_cards)
        self.facts["processes"] = await asyncio.to_thread(reaches_processes)
        await self.stops()
        await self.serves_images()
        await self.is_a_plugin()
        await self.is_installed_by_hand()
        await self.is_taken_out()

    async def boots_before_the_runtime(self) -> None:
        """The kubelet comes up; its first call starts criproxy, while there is no runtime."""
        self.facts["network namespace"] = network_namespace()
        systemctl("start", "kubelet.service")
        self.facts["socket with the kubelet"] = shown("ActiveState", "criproxy.socket")
        self.facts["service before the first call"] = shown("ActiveState")
        try:
            await self._through.version()
        except RuntimeCallError as error:
            self.facts["first call"] = error.code.name
        async with asyncio.timeout(LIMIT_S):
            while shown("ActiveState") == "activating":  # noqa: ASYNC110
                await asyncio.sleep(PACE_S)
            self.facts["service after the first call"] = shown("ActiveState")
            self.facts["not ready"] = await self._ready()
        self.facts["group"] = shown("ControlGroup")
        self.facts["process"] = rights(shown("MainPID"))
        self.facts["device nodes that it does not see"] = hidden_nodes(shown("MainPID"))

    async def places(self) -> None:
        """A pod that shares and one that owns a CPU."""
        async with asyncio.timeout(LIMIT_S):
            while (ready := await self._ready())[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(PACE_S)
        self.facts["ready"] = ready
        await answers(self._through)
        owner = ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB)
        for pod in (PodSpec("web", (ContainerSpec("main", IMAGE),)), PodSpec("trader", (owner,))):
            self._ids[pod.name] = (await self._kubelet.run_pod(pod))[1]["main"]
        self.facts["placed"] = await self._cpus()
        self.facts["state kept in"] = names("/var/lib/criproxy")

    async def restarts(self, name: str, end: Any) -> None:  # noqa: ANN401 - what *end* returns does not matter
        """The daemon ends and comes back under calls that never cease."""
        before, begin = shown("MainPID"), len(daemon_log())
        async with asyncio.timeout(LIMIT_S), Load() as load:
            await asyncio.to_thread(end)
            while shown("MainPID") in (before, "0") or shown("ActiveState") != "active":  # noqa: ASYNC110
                await asyncio.sleep(PACE_S)
            await answers(self._through)
        said = daemon_log()[begin:]
        self.facts[name] = {"failures": load.failures, "cpus": await self._cpus()}
        self.facts[name]["traceback"] = "Fatal Python error: Aborted" in said

    async def reloads(self) -> None:
        """SIGHUP through systemd."""
        before = shown("MainPID")
        systemctl("reload", SERVICE)
        await self._through.version()
        # Asked once, for it may begin just after.
        while (state := shown("ActiveState")) == "reloading":  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(PACE_S)
        self.facts["reloaded"] = {"same": shown("MainPID") == before, "state": state}

    async def stops(self) -> None:
        """Criproxy is taken away; the kubelet and the containers stay."""
        await asyncio.to_thread(systemctl, "stop", SERVICE, "criproxy.socket")
        self.facts["stopped"] = {
            "left": names("/run/criproxy"),
            "kubelet": shown("ActiveState", "kubelet.service"),
            "cpus": await self._cpus(),
        }

    async def serves_images(self) -> None:
        """With the second socket, whose unit is only for a kubelet that wants it."""
        self._options(f"--image-listen {IMAGES} --image-endpoint {self._containerd.endpoint}")
        await asyncio.to_thread(systemctl, "start", "criproxy-image.socket", SERVICE)
        client = RuntimeClient(IMAGES, timeout_s=LIMIT_S)
        images = await client.call("ListImages", api.ListImagesRequest(), api.ListImagesResponse)
        await client.close()
        self.facts["images"] = sorted(tag for image in images.images for tag in image.repo_tags)
        self.facts["sockets of the service"] = shown("TriggeredBy")

    async def is_a_plugin(self) -> None:
        """With the same units and --nri, of a runtime that only asks where one container goes."""
        self._options("--nri unix:///run/nri/nri.sock")
        os.mkdir("/run/nri", mode=0o700)  # noqa: PTH102
        runtime = Runtime(Path("/run/nri/nri.sock"))
        async with asyncio.timeout(LIMIT_S), runtime.listening():
            await asyncio.to_thread(systemctl, "restart", SERVICE)
            peer = await runtime.peers.get()
            await peer.call("Configure", nri.ConfigureRequest(request_timeout=2000))
            await peer.call("Synchronize", nri.SynchronizeRequest())
            sharer = nri.Container(id="c1", pod_sandbox_id=POD.id, name="main")
            answer = await peer.call("CreateContainer", nri.CreateContainerRequest(pod=POD, container=sharer))
            reader, writer = await asyncio.open_unix_connection(SOCKET.removeprefix("unix://"))
            self.facts["plugin"] = {"process": rights(shown("MainPID")), "told": (await reader.read()).decode()}
            writer.close()
            cpus = nri.CreateContainerResponse.FromString(answer.payload).adjust.linux.resources.cpu.cpus
            self.facts["plugin"] |= {"placed": cpus, "socket": shown("ActiveState", "criproxy.socket")}

    async def is_installed_by_hand(self) -> None:
        """What docs/install.md tells to type, on a node that has never seen criproxy, with containerd at its place."""
        systemctl("stop", SERVICE, *("criproxy.socket", "criproxy-image.socket"))
        forget(self._containerd.socket)
        steps = ("In a checkout, as root:", "## 2. Write the policy file", "## 4. Start criproxy")
        self.facts["install"] = typed("\n".join(told("docs/install.md", step) for step in steps))
        self.facts["enabled"] = [shown("UnitFileState", unit) for unit in ("criproxy.socket", SERVICE)]
        await answers(self._through)
        await self._kubelet.run_pod(PodSpec("late", (ContainerSpec("main", IMAGE),)))
        self.facts["status"] = typed("criproxy status --check && criproxy status")
        self.facts["explain"] = typed("criproxy explain default/late/main")

    async def is_taken_out(self) -> None:
        """What docs/install.md tells to type for a criproxy that is well, and again for one that does not run."""
        dropped_in = told("docs/install.md", "keep existing arguments")
        for case in ("If criproxy works", "If criproxy is broken"):
            typed(dropped_in)
            before = shown("ActiveState", "criproxy.socket")
            out = await asyncio.to_thread(typed, told("docs/install.md", f"**{case}**"))
            out |= {"cpus": await self._cpus(), "kubelet": shown("ActiveState", "kubelet.service")}
            out |= {"socket": [before, shown("ActiveState", "criproxy.socket")], "service": shown("ActiveState")}
            self.facts[case] = out

    async def _cpus(self) -> dict[str, str]:
        return await cpus(self._kernel, self._ids)

    async def _ready(self) -> tuple[int, str]:
        """What /readyz says, which is served a moment after the kubelet is."""
        while True:
            try:
                async with (
                    aiohttp.ClientSession(connector=aiohttp.UnixConnector(HTTP)) as session,
                    session.get("http://criproxy/readyz") as answer,
                ):
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(PACE_S)


class Tried(Protocol):
    """What is tried inside a node."""

    facts: dict[str, Any]
    """What was found, by name."""

    async def run(self) -> None:
        """Try everything."""


def try_all(on: Callable[[PrivateContainerd], Tried]) -> None:
    """Try everything *on* a containerd of its own, and write what was found to the file that the command names."""
    tempfile.tempdir = "/run/node"
    Path(tempfile.tempdir).mkdir()
    containerd = PrivateContainerd()
    tried = on(containerd)
    try:
        asyncio.run(tried.run())
    finally:
        containerd.stop()
        partial = Path(sys.argv[1] + ".part")
        partial.write_text(json.dumps(tried.facts, indent=1))
        partial.rename(sys.argv[1])


if __name__ == "__main__":
    try_all(Node)
