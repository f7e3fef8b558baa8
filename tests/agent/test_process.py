"""The agent as a process, between a real daemon and an API server with TLS: it comes back from whatever goes."""

import signal
import ssl
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest

from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, NODE_RESOURCE_TOPOLOGIES, NODES
from criproxy.agent.kubernetes.request import Object
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.agent.parts import kubeconfig, program
from tests.agent.pki import make_pki
from tests.daemons import Serve

NODE = "worker-1"
POLICY = 'policy: topology-aware\nreservedResources: {cpu: "cpuset:0"}\n'
MOST_BYTES = 60 << 20
"""What docs/reach.md promises."""
BACK_S = 60.0
"""From when an API server is back until all is there that should be."""


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the API server."""
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def server(pki: Path) -> AsyncIterator[ApiServer]:
    """An API server with the Node, that takes the token ``first``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    async with ApiServer(tls=context, bookmark_s=1.0) as server:
        server.objects.create(NODES, {"metadata": {"name": NODE}})
        server.faults.tokens = {"first"}
        yield server


@pytest.fixture
async def node(tmp_path: Path, server: ApiServer, pki: Path) -> AsyncIterator[Path]:
    """A machine with a daemon, and the kubeconfig and token of an agent."""
    trust = {"certificate-authority": str(pki / "ca.crt"), "tls-server-name": "api.example"}
    kubeconfig(tmp_path, server.url, user={"tokenFile": "token"}, **trust)
    (tmp_path / "token").write_text("first")
    runtime = EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path))
    async with runtime, Serve(tmp_path, policy=POLICY, cpus="0-3"):
        yield tmp_path


def agent(node: Path) -> AbstractAsyncContextManager[Process]:
    """Run an agent with all its parts."""
    return program(node, f"--http=unix://{node}/http.sock")


def placement(server: ApiServer) -> Object:
    """The status of the NodePlacement; empty if there is none."""
    found = server.objects.all(NODE_PLACEMENTS)
    return dict(found[0].get("status") or {}) if found else {}


def written(server: ApiServer) -> Callable[[], bool]:
    """Whether all objects are there."""
    return lambda: placement(server).get("phase") == "Applied" and server.objects.count(NODE_RESOURCE_TOPOLOGIES) == 1


@pytest.mark.slow
async def test_an_agent_is_small(server: ApiServer, node: Path) -> None:
    """With TLS, all parts and their objects written."""
    async with agent(node) as process:
        await server.until(written(server), BACK_S)
        await server.until(lambda: len(server.watches) >= 4, BACK_S)
        assert psutil.Process(process.pid).memory_info().rss <= MOST_BYTES


@pytest.mark.slow
async def test_an_agent_that_is_killed_goes_on(server: ApiServer, node: Path) -> None:
    """Its objects are what they were, and follow the node again."""
    async with agent(node) as process:
        await server.until(written(server), BACK_S)
        process.kill()
        assert await process.wait() == -signal.SIGKILL
    before = placement(server)
    async with agent(node):
        await server.until(lambda: len(server.watches) >= 4, BACK_S)
        assert {**placement(server), "observedAt": ""} == {**before, "observedAt": ""}
        assert placement(server)["cpus"]["free"] == 3
        (node / "policy.yaml").write_text(POLICY.replace("cpuset:0", "cpuset:0-1"))
        await server.until(lambda: placement(server)["cpus"]["free"] == 2, BACK_S)


@pytest.mark.slow
async def test_a_server_that_was_gone_and_wiped_has_all_again(server: ApiServer, node: Path) -> None:
    """Within a minute, and with a token that was replaced meanwhile."""
    async with agent(node) as process:
        await server.until(written(server), BACK_S)
        await server.stop()
        server.objects.wipe()
        server.objects.create(NODES, {"metadata": {"name": NODE}})
        server.objects.compact()
        server.faults.tokens = {"second"}
        (node / "token").write_text("second")
        await server.start()
        await server.until(written(server), BACK_S)
        owner = server.objects.get(NODE_PLACEMENTS, NODE)["metadata"]["ownerReferences"][0]
        assert owner["uid"] == server.objects.get(NODES, NODE)["metadata"]["uid"]
        assert process.returncode is None
