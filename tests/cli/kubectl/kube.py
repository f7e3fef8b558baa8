"""A cluster for the plugin: the small API server, an agent's HTTP with a daemon behind it, and the real kubectl."""

import asyncio
import base64
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from criproxy.agent import PORT_NAME, TOKEN_SECRET
from criproxy.agent.http import AgentHttp
from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, NODES, PODS
from criproxy.agent.troubles import Troubles
from criproxy.cli.kubectl.plugin import main
from criproxy.process.failures import Failures
from criproxy.process.http.address import Address
from criproxy.process.http.server import Sources
from lab.apiserver.server import SECRETS, ApiServer
from tests.addresses import free_address
from tests.agent.parts import running
from tests.daemons import until
from tests.node.world import RecordingLog

LIMIT_S = 60.0
TOKEN = "0123456789abcdef"  # noqa: S105 (of these tests)
NODE, NAMESPACE, AGENT = "worker-1", "criproxy", "criproxy-node-x7k2p"
NEEDS_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl (kubernetes-client)")


@dataclass
class Kube:
    """A cluster with one node that has an agent; kubectl's files are in *directory*, and so is the control socket."""

    directory: Path
    api: ApiServer
    agent_address: Address

    @property
    def kubeconfig(self) -> str:
        """The path of kubectl's file."""
        return str(self.directory / "kubeconfig")

    def write_kubeconfig(self, namespace: str = "default") -> None:
        """Write it: one context that leads here, one that leads nowhere."""
        clusters = {"here": self.api.url, "nowhere": "http://127.0.0.1:1"}
        contexts = {name: {"cluster": name, "user": "jane", "namespace": namespace} for name in clusters}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
            "users": [{"name": "jane", "user": {"token": "of-jane"}}],
            "contexts": [{"name": name, "context": context} for name, context in contexts.items()],
            "current-context": "here",
        }
        (self.directory / "kubeconfig").write_text(json.dumps(config))

    def set_up(self) -> None:
        """Create the node, the agent's pod and the Secret."""
        self.api.objects.create(NODES, {"metadata": {"name": NODE}})
        self.api.objects.create(PODS, self.agent_pod())
        self.write_secret(TOKEN)

    def agent_pod(self, phase: str = "Running", port_name: str = PORT_NAME) -> dict[str, Any]:
        """The pod of the agent."""
        labels = {"app.kubernetes.io/component": "agent"}
        ports = [{"name": port_name, "containerPort": self.agent_address.port}]
        return {
            "metadata": {"name": AGENT, "namespace": NAMESPACE, "labels": labels},
            "spec": {"nodeName": NODE, "containers": [{"name": "install"}, {"name": "agent", "ports": ports}]},
            "status": {"phase": phase, "podIP": "127.0.0.1"},
        }

    def write_secret(self, token: str) -> None:
        """Create the Secret with the token."""
        data = {"token": base64.b64encode(token.encode()).decode()}
        self.api.objects.create(SECRETS, {"metadata": {"name": TOKEN_SECRET, "namespace": NAMESPACE}, "data": data})

    def change_agent(self, **parts: Any) -> None:  # noqa: ANN401 (JSON)
        """Give the agent's pod another spec or status."""
        where = "status" if "status" in parts else ""
        self.api.objects.update(PODS, AGENT, NAMESPACE, lambda old: {**old, **parts}, subresource=where)

    def pod(self, name: str, *containers: str, node: str = NODE, phase: str = "Running", **spec: Any) -> None:  # noqa: ANN401
        """Create a pod in the namespace ``default``."""
        listed = [{"name": each} for each in containers]
        whole = {"containers": listed, **({"nodeName": node} if node else {}), **spec}
        metadata = {"name": name, "namespace": "default"}
        self.api.objects.create(PODS, {"metadata": metadata, "spec": whole, "status": {"phase": phase}})

    def placement(self, name: str, **status: Any) -> None:  # noqa: ANN401 (JSON)
        """Create a NodePlacement with that status."""
        self.api.objects.create(NODE_PLACEMENTS, {"metadata": {"name": name}})
        self.api.objects.update(
            NODE_PLACEMENTS, name, "", lambda old: {**old, "status": status}, manager="test", subresource="status"
        )

    async def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
        """Run `kubectl criproxy` in a thread: the servers live on this one's loop."""
        whole = [*arguments, "--kubeconfig", self.kubeconfig]
        return await asyncio.to_thread(CliRunner(env=env).invoke, main, whole)

    async def ask(self, *arguments: str) -> Result:
        """The same for a command with ``--node``."""
        return await self.run(*arguments, "--node", NODE)


async def well() -> str | None:
    """Nothing is wrong."""
    return None


async def _connected(address: Address) -> Any:  # noqa: ANN401 (the streams)
    try:
        return await asyncio.open_connection(address.host, address.port)
    except OSError:
        return None


@asynccontextmanager
async def agent_at(address: Address, directory: Path) -> AsyncIterator[None]:
    """An agent's HTTP at *address*, whose daemon has its control socket in *directory*."""
    file = directory / "token"
    file.write_text(TOKEN)
    sources = Sources(lambda _: (b"", "text/plain"), well, well)
    control_socket, troubles = str(directory / "control.sock"), Troubles(RecordingLog())
    server = AgentHttp(address, file, control_socket, sources, troubles, Failures())
    async with running(server.run()):
        _, writer = await until(partial(_connected, address))
        writer.close()
        yield


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Kube]:
    """A cluster in which all is set up."""
    address = Address.parse(free_address())
    async with asyncio.timeout(LIMIT_S), ApiServer() as api, agent_at(address, directory):
        kube = Kube(directory, api, address)
        kube.write_kubeconfig()
        kube.set_up()
        yield kube


@asynccontextmanager
async def process(kube: Kube, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`kubectl criproxy` as a process of its own, in a process group of its own."""
    command = [sys.executable, "-P", "-m", "criproxy.cli.kubectl.plugin", *arguments, "--kubeconfig", kube.kubeconfig]
    environ = {**os.environ, "TMPDIR": str(kube.directory)}
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ, process_group=0)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


def children_of(pid: int) -> Sequence[int]:
    """The processes that *pid* has started, and that still run."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
