"""The whole way: `criproxy serve` and `criproxy agent` as processes, an API server, kubectl, and the plugin."""

import asyncio
import json
from pathlib import Path

import aiohttp

from criproxy.process.http.address import Address
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.addresses import free_address
from tests.cli.kubectl.kube import NEEDS_KUBECTL, NODE, TOKEN, Kube
from tests.daemons import LIMIT_S, Process, Serve, kubelet_at
from tests.node.world import owner

pytestmark = NEEDS_KUBECTL
POLICY = "policy: static\nreservedCpus: '0'\n"


def agent(kube: Kube, control_socket: Path) -> Process:
    """`criproxy agent` of the node, which serves queries."""
    token = kube.directory / "token"
    token.write_text(TOKEN)
    places = ("--control-socket", str(control_socket), "--kubeconfig", kube.kubeconfig, "--node-name", NODE)
    address = f"{kube.agent_address.host}:{kube.agent_address.port}"
    http = ("--http", address, "--http-token-file", str(token), "--first-contact", "1ms")
    return Process(kube.directory, "agent", "-m", "criproxy", "agent", *places, *http)


def runtime(directory: Path) -> EmbeddedRuntime:
    """The container runtime of the node."""
    return EmbeddedRuntime(directory / "runtime.sock", RuntimeOptions(host_root=directory))


async def probe(kube: Kube, path: str) -> tuple[int, str]:
    """What the agent's HTTP answers."""
    url = f"http://{kube.agent_address.host}:{kube.agent_address.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def ready(kube: Kube, status: int) -> str:
    """Wait until the agent's readiness has this status; return what it says."""
    while True:
        found, text = await probe(kube, "/readyz")
        if found == status:
            return text
        await asyncio.sleep(0.05)


async def test_kubectl_shows_a_real_node(tmp_path: Path) -> None:
    """Through both processes; a daemon that is gone, or an API server that is, is said and is no reason to hang."""
    async with asyncio.timeout(LIMIT_S), runtime(tmp_path), ApiServer() as api:
        kube = Kube(tmp_path, api, Address.parse(free_address()))
        kube.write_kubeconfig()
        kube.set_up()
        kube.pod("web", "main")
        serve = Serve(tmp_path, policy=POLICY, cpus="0-3")
        async with agent(kube, tmp_path / "run/agent/pod/control.sock"):
            async with serve, kubelet_at(serve.socket) as kubelet:
                await kubelet.run_pod(owner("web", 2))
                await ready(kube, 200)
                shown = {line: await kube.run(*line.split()) for line in ("status --node worker-1", "explain web")}
                there = await serve.json("who", "0-3")
                here = await kube.run("who", "0-3", "--node", NODE, "-o", "json")
            away = await ready(kube, 503)
            refused = await kube.ask("status")
            await api.stop()
            unreachable = await kube.ask("status")
            still = await probe(kube, "/healthz"), await probe(kube, "/metrics")

    assert [answer.exit_code for answer in shown.values()] == [0, 0], [answer.output for answer in shown.values()]
    assert "default/web/main" in shown["status --node worker-1"].stdout
    assert "Runs on CPUs 1,2, exclusive" in shown["explain web"].stdout.replace("1-2", "1,2")
    assert json.loads(here.stdout)["rows"] == there[1]["rows"]
    assert "no criproxy daemon" in away or "no daemon" in away
    assert "no criproxy daemon answers on" in refused.stderr
    assert "kubectl cannot reach the API server" in unreachable.stderr
    assert [status for status, _ in still] == [200, 200]
    assert "criproxy_agent_daemon_connected 0.0" in still[1][1]
