"""What may go wrong between a workstation and a node: each has a sentence with what to do, and none hangs."""

import asyncio
import base64
import itertools
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent import TOKEN_SECRET, http
from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, PODS
from criproxy.cli.kubectl import cluster as cluster_module
from criproxy.errors import CriproxyError
from criproxy.process.http import token_file
from lab.apiserver.faults import Refuses
from lab.apiserver.server import SECRETS
from tests.asking import serving
from tests.cli.kubectl.kube import AGENT, NAMESPACE, NEEDS_KUBECTL, NODE, Kube, children_of, process
from tests.node.world import World

pytestmark = NEEDS_KUBECTL


async def failing(kube: Kube, *arguments: str, status: int = 1) -> str:
    """What a command that fails says."""
    answer = await kube.ask(*(arguments or ("status",)))
    assert answer.exit_code == status, answer.output
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    return answer.stderr


async def test_no_kubectl(kube: Kube, tmp_path: Path) -> None:
    """A machine without it."""
    for arguments in (["nodes"], ["explain", "web"]):
        answer = await kube.run(*arguments, env={"PATH": str(tmp_path)})

        assert answer.exit_code == 1
        assert answer.stderr == (
            "Error: kubectl is not in PATH: this command reaches the cluster through it, so install kubectl first\n"
        )


async def test_an_unknown_context(kube: Kube) -> None:
    """It is kubectl that says it."""
    answer = await kube.run("nodes", "--context", "nope")

    assert answer.exit_code == 1
    assert answer.stderr.splitlines() == [
        'error: context "nope" does not exist',
        "Error: kubectl proxy ended with status 1; kubectl has said why",
    ]


async def test_no_node_is_named(kube: Kube) -> None:
    """There is no default: a wrong node would be worse."""
    answer = await kube.run("status")

    assert (answer.exit_code, kube.api.requests.total()) == (2, 0)
    assert "name a node with --node; kubectl criproxy nodes lists them" in answer.stderr


async def test_a_node_that_does_not_exist(kube: Kube) -> None:
    """It is said that it is the node."""
    answer = await kube.run("status", "--node", "worker-9")

    assert answer.exit_code == 1
    assert answer.stderr == "Error: there is no node worker-9; kubectl criproxy nodes lists those with criproxy\n"


@pytest.mark.parametrize("sees_nodes", [True, False])
async def test_no_agent_on_the_node(kube: Kube, sees_nodes: bool) -> None:
    """The message says what was looked for and where, also for those who may not see nodes."""
    kube.api.objects.delete(PODS, AGENT, NAMESPACE)
    if not sees_nodes:
        kube.api.faults.refuses["get", "nodes"] = Refuses(403)

    said = await failing(kube)

    assert "no agent of criproxy runs on node worker-1" in said
    assert "app.kubernetes.io/component=agent in namespace criproxy; --criproxy-namespace names another" in said


async def test_agents_are_taken_from_their_namespace_only(kube: Kube) -> None:
    """A tenant cannot get the token with a pod that looks like an agent."""
    kube.api.objects.delete(PODS, AGENT, NAMESPACE)
    pod = kube.agent_pod()
    pod["metadata"]["namespace"] = "tenant"
    kube.api.objects.create(PODS, pod)

    assert "no agent of criproxy runs on node worker-1" in await failing(kube)
    assert kube.api.requests["get", "secrets"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"status": {"phase": "Pending"}}, "its pod criproxy/criproxy-node-x7k2p is Pending", id="pending"),
        pytest.param({"status": {}}, "its pod criproxy/criproxy-node-x7k2p is Unknown", id="unknown"),
        pytest.param(
            {"spec": {"nodeName": NODE, "containers": [{"name": "agent"}]}},
            "has no container port named agent-http: it does not answer queries",
            id="no-port",
        ),
    ],
)
async def test_an_agent_that_cannot_be_asked(kube: Kube, change: dict[str, Any], said: str) -> None:
    """Its pod does not run, or serves nothing."""
    kube.change_agent(**change)

    assert said in await failing(kube)


@pytest.mark.parametrize(
    ("which", "rule"),
    [
        pytest.param(
            ("list", "pods"), '{apiGroups: [""], resources: [pods], verbs: [list]} in a Role in namespace criproxy'
        ),
        pytest.param(
            ("get", "secrets"),
            '{apiGroups: [""], resources: [secrets], resourceNames: [criproxy-agent], verbs: [get]} in a Role',
        ),
        pytest.param(("create", "pods/proxy"), '{apiGroups: [""], resources: [pods/proxy], verbs: [create]} in a Role'),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
async def test_a_right_that_is_missing(kube: Kube, world: World, which: tuple[str, str], rule: str) -> None:
    """The message has the rule that gives it."""
    kube.api.faults.refuses[which] = Refuses(403, f"User jane cannot {which[0]} resource {which[1]}", "Forbidden")

    said = await failing(kube)

    assert f"the API server refuses: User jane cannot {which[0]} resource {which[1]}" in said
    assert rule in said
    assert "docs/reach.md" in said


async def test_the_rights_of_commands_without_an_agent(kube: Kube) -> None:
    """As above."""
    kube.api.faults.refuses["list", "nodeplacements"] = kube.api.faults.refuses["get", "pods"] = Refuses(403, "no")
    nodes, explain = await kube.run("nodes"), await kube.run("explain", "shop/web")

    rule = '{apiGroups: ["criproxy.io"], resources: [nodeplacements], verbs: [list]} in a ClusterRole'
    assert rule in nodes.stderr
    assert '{apiGroups: [""], resources: [pods], verbs: [get]} in a Role in namespace shop' in explain.stderr


async def test_credentials_that_are_not_accepted(kube: Kube) -> None:
    """It is kubectl's login that has to be renewed."""
    kube.api.faults.tokens = set()

    assert "the API server does not accept kubectl's credentials: Unauthorized" in await failing(kube)


async def test_no_crds_and_no_reports(kube: Kube) -> None:
    """`nodes` says which of both it is."""
    nobody = await kube.run("nodes")
    kube.api.served.discard(NODE_PLACEMENTS)
    no_crd = await kube.run("nodes")

    assert "no node reports: no agent of criproxy runs" in nobody.stderr
    assert "criproxy's CRDs are not installed" in no_crd.stderr
    assert (nobody.exit_code, no_crd.exit_code) == (1, 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(None, "there is no Secret criproxy/criproxy-agent", id="no-secret"),
        pytest.param({}, "has no token in ASCII under the key token", id="no-key"),
        pytest.param({"token": "?"}, "has no token in ASCII", id="not-base64"),
        pytest.param({"token": base64.b64encode(b"\xff" * 16).decode()}, "has no token in ASCII", id="binary"),
        pytest.param(
            {"token": base64.b64encode(b"f" * 16).decode()},
            "does not accept the token of Secret criproxy-agent: this needs the token",
            id="another-token",
        ),
    ],
)
async def test_a_token_that_is_none(kube: Kube, world: World, data: dict[str, str] | None, said: str) -> None:
    """The message says where it is looked for, or who does not accept it."""
    kube.api.objects.delete(SECRETS, TOKEN_SECRET, NAMESPACE)
    if data is not None:
        kube.api.objects.create(SECRETS, {"metadata": {"name": TOKEN_SECRET, "namespace": NAMESPACE}, "data": data})

    assert said in await failing(kube)


async def test_an_agent_without_a_token_file(kube: Kube, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent lacks is said as it says it."""
    monkeypatch.setattr(token_file, "FRESH_S", 0.0)
    (kube.directory / "token").unlink()

    said = await failing(kube)

    assert f"the agent on node worker-1 (pod criproxy/{AGENT}) does not accept the token" in said
    assert "there is no such file" in said


async def test_a_node_without_a_daemon(kube: Kube) -> None:
    """The agent answers, and says that it hears nothing; nothing is read from this machine's disk instead."""
    said = await failing(kube)

    assert f"the agent on node worker-1 (pod criproxy/{AGENT}): no criproxy daemon answers on " in said


async def test_a_daemon_that_hangs(kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits for a bounded time."""
    monkeypatch.setattr(http, "PATIENCE_S", 0.05)
    goes_on = asyncio.Event()

    async def hang(_: object) -> None:
        await goes_on.wait()

    async with serving(tmp_path, {"status": hang}):
        said = await failing(kube)
        goes_on.set()

    assert "did not answer within 0.05 s" in said


async def test_an_agent_that_is_not_reached(kube: Kube) -> None:
    """The API server says why."""
    kube.change_agent(status={"phase": "Running", "podIP": "127.0.0.9"})

    said = await failing(kube)

    assert f"the API server does not reach the agent on node worker-1 (pod criproxy/{AGENT}), port" in said
    assert "error trying to reach service" in said


async def test_an_answer_that_is_cut_off(kube: Kube, tmp_path: Path) -> None:
    """The daemon ends in the middle: half of an answer is none."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"result": {"containers": [')
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(cut, tmp_path / "control.sock")
    async with server:
        assert "the answer was cut off" in await failing(kube)


async def test_an_answer_that_is_cut_off_once_is_asked_for_again(kube: Kube, tmp_path: Path) -> None:
    """Go's reverse proxy drops an answer now and then, and says so on stderr: nobody needs to know."""
    calls = itertools.count()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"result": ' if next(calls) == 0 else b'{"result": {}}\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, tmp_path / "control.sock")
    async with server:
        said = await kube.ask("status", "-o", "json")

    assert (said.exit_code, said.stdout, said.stderr) == (0, "{}\n", "")


async def test_an_api_server_that_is_silent(kube: Kube) -> None:
    """The command ends in bounded time, and says for how long it waited."""
    kube.api.faults.silence()

    said = await failing(kube, "status", "--request-timeout", "200ms")

    assert said == "Error: the API server did not answer within 0.2 s\n"
    kube.api.faults.speak()


async def test_an_error_of_the_daemon_is_its_sentence(kube: Kube, world: World) -> None:
    """With the node, since several may be asked; what is wrong use there is wrong use here."""
    said = await failing(kube, "explain", "default/gone/main")
    wrong = await failing(kube, "events", "--since", "1x", status=2)

    assert said.startswith("Error: node worker-1: ")
    assert "default/gone/main" in said
    assert "1x" in wrong


async def test_another_version_is_said(kube: Kube, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; the answer is shown all the same."""
    monkeypatch.setattr(cluster_module, "__version__", "99.0")

    answer = await kube.ask("status")

    assert answer.exit_code == 0
    assert answer.stderr.startswith("Note: criproxy on node worker-1 is of version ")
    assert answer.stderr.endswith(", this command of 99.0\n")


async def test_what_a_node_says_moves_no_cursor(kube: Kube, tmp_path: Path) -> None:
    """Whoever controls a node writes its NodePlacement and its answers: control characters of both are made visible."""
    odd = "\x1b[2J\x07evil"
    kube.placement("a", phase=odd, ready=odd, policy={"name": odd}, problems=[odd], message=odd, observedAt=odd)

    async def refuse(_: object) -> object:
        raise CriproxyError(odd)

    async with serving(tmp_path, {"status": refuse}):
        shown = [await kube.run("nodes"), await kube.ask("status")]

    assert [answer.exit_code for answer in shown] == [0, 1], [answer.output for answer in shown]
    for answer in shown:
        assert "evil" in answer.output
        assert not {"\x1b", "\x07"} & {*answer.output}


async def test_an_answer_of_another_version_that_cannot_be_shown(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no traceback, but the advice to install that version, or to take the JSON."""
    monkeypatch.setattr("criproxy.cli.kubectl.plugin.__version__", "99.0")

    async def odd(_: object) -> object:
        return {"what": "a later version says"}

    async with serving(tmp_path, {"status": odd}):
        said = await failing(kube)
        data = await kube.ask("status", "-o", "json")

    assert "cannot be shown by 99.0" in said
    assert "--output json shows it, or install criproxy" in said
    assert data.stdout == '{"what": "a later version says"}\n'


async def test_an_agent_without_this_path(kube: Kube, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another version answers 404, and says no version."""
    monkeypatch.setattr(cluster_module, "QUERY_PATH", "/v9/query")

    assert "is gone, or of another version than this command" in await failing(kube)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_kubectl_ends_with_the_command(kube: Kube, number: signal.Signals) -> None:
    """Ctrl-C, an end and a kill while the API server is silent: no `kubectl proxy` and no open socket is left."""
    kube.api.faults.silence()
    async with process(kube, "status", "--node", NODE) as command:
        await kube.api.until(lambda: kube.api.requests["list", "pods"] == 1, 60.0)
        (child,) = children_of(command.pid)
        (folder,) = kube.directory.glob("criproxy-*")
        mode = stat.S_IMODE(folder.stat().st_mode)
        ended = os.pidfd_open(child)
        command.send_signal(number)
        out, err = await command.communicate()
        await _readable(ended)

    assert command.returncode == {signal.SIGINT: 1, signal.SIGKILL: -9}.get(number, 128 + number)
    assert mode == 0o700
    assert (out, b"Traceback" in err) == (b"", False)
    assert bool([*kube.directory.glob("criproxy-*")]) == (number == signal.SIGKILL)
    kube.api.faults.speak()


async def test_a_command_ends_with_kubectl(kube: Kube, world: World) -> None:
    """One that goes on for ever does not try again for ever what cannot be any more."""
    async with process(kube, "events", "--follow", "--node", NODE) as command:
        assert command.stdout is not None
        await command.stdout.readline()
        (child,) = children_of(command.pid)
        os.kill(child, signal.SIGKILL)
        _, err = await command.communicate()

    assert command.returncode == 1
    assert err.endswith(b"Error: kubectl proxy has ended, and with it this command\n")


async def _readable(descriptor: int) -> None:
    """Wait for the end of the process of a pidfd."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    await ended.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)
