"""The agent follows a real daemon: changes, a daemon that is killed, restarted, frozen, or that never was there."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from criproxy.agent import node_view as module
from criproxy.agent.node_view import NodeView
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.agent.parts import running, until
from tests.daemons import LIMIT_S, Serve
from tests.daemons import until as polled
from tests.node.world import RecordingLog

POLICY = 'policy: topology-aware\nreservedResources: {cpu: "cpuset:0"}\n'
TWO_RESERVED = 'policy: topology-aware\nreservedResources: {cpu: "cpuset:0-1"}\n'
SOURCE = "NodePolicy/all"
DB = PodSpec("db-0", (ContainerSpec("db", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=1 << 30),))


class Node:
    """A machine with an embedded runtime, whose daemon is started again and again, and an agent's view of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "run" / "agent" / "pod" / "control.sock")
        self.log = RecordingLog()
        self.troubles = Troubles(self.log)
        self.view = NodeView(self.socket, "worker-1", self.troubles)

    def serve(self) -> Serve:
        """Return a daemon on this node."""
        return Serve(self.directory, policy=POLICY, cpus="0-3")

    async def until(self, condition: Any) -> dict[str, Any]:  # noqa: ANN401 (a function of the last answer)
        """Wait until the view's last answer satisfies *condition*; return it."""
        await until(self.view, lambda: self.view.last is not None and condition(self.view.last))
        return dict(self.view.last or {})

    async def until_problem(self, text: str) -> None:
        """Wait until the view has a problem with *text*; empty: none."""
        await until(self.view, lambda: (text in self.view.problem) if text else not self.view.problem)

    def followed(self) -> AbstractAsyncContextManager[None]:
        """Follow the daemon in the block."""
        return running(self.view.run())


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Return one without a daemon."""
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.2)
    async with EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path)):
        yield Node(tmp_path)


async def test_a_pod_that_comes_and_goes_changes_the_view(node: Node) -> None:
    """What it gets is not available any more, and is again when it is gone."""
    async with node.serve() as serve, node.followed(), serve.kubelet() as kubelet:
        before = await node.until(lambda view: view["known"])
        assert before["numa_nodes"][0]["cpus"] == {
            "list": "0-3",
            "count": 4,
            "reserved": "0",
            "exclusive": "",
            "exclusive_free": "1-3",
            "shared_request_milli": 0,
            "allocatable_milli": 3000,
            "available_milli": 3000,
        }
        pod, _ = await kubelet.run_pod(DB)
        during = await node.until(lambda view: view["containers"]["exclusive"] == 1)
        assert during["numa_nodes"][0]["cpus"]["available_milli"] == 2000
        assert during["numa_nodes"][0]["memory"]["requested_bytes"] == 1 << 30
        assert [(each["namespace"], each["name"]) for each in during["pods"]] == [("default", "db-0")]
        assert during["kubelet"]["through"]
        assert during["revision"] > before["revision"]
        await kubelet.remove_pod(pod)
        await node.until(lambda view: view["numa_nodes"][0]["cpus"]["available_milli"] == 3000 and not view["pods"])


async def test_a_daemon_that_is_killed_and_comes_back_is_followed(node: Node) -> None:
    """Its last answer stays meanwhile; the next one is of another instance."""
    async with node.followed():
        async with node.serve():
            first = await node.until(lambda view: view["known"])
        await node.until_problem("no daemon answers")
        assert node.view.last == first
        assert node.view.silent_s > 0
        async with node.serve():
            second = await node.until(lambda view: view["instance"] != first["instance"])
            assert not node.view.problem
            assert second["revision"] > first["revision"]


async def test_a_daemon_that_hangs_is_a_problem_until_it_goes_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the agent waits for it longer than its patience."""
    monkeypatch.setattr(module, "WAIT_S", 0.2)
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    async with node.serve() as serve, node.followed():
        await node.until(lambda view: view["known"])
        assert serve.process is not None
        serve.process.send_signal(signal.SIGSTOP)
        try:
            await node.until_problem("did not answer within 0.5 s")
            with pytest.raises(NoDaemon, match=r"did not answer within 0\.3 s"):
                await node.view.ask("status", timeout_s=0.3)
        finally:
            serve.process.send_signal(signal.SIGCONT)
        monkeypatch.setattr(module, "PATIENCE_S", 10.0)
        await node.until_problem("")


async def test_without_a_daemon_there_is_no_view_and_a_reason(node: Node) -> None:
    """What is unknown is not taken for an empty node."""
    async with node.followed():
        await node.until_problem(f"no daemon answers on {node.socket}: No such file or directory")
        assert node.view.last is None
        assert node.log.lines


async def test_what_the_agent_cannot_do_is_said_on_the_node(node: Node) -> None:
    """`status` has it as a note, and a NodePolicy that the node refuses as a problem; the agent's view has neither."""
    async with node.serve() as serve, node.followed():
        first = await node.until(lambda view: view["known"])
        node.troubles.set("nodeplacement", "cannot write NodePlacement worker-1: 403 forbidden")
        status = await told(serve, lambda status: status["agent"] and status["agent"]["problems"])
        assert status["agent"]["problems"] == ["cannot write NodePlacement worker-1: 403 forbidden"]
        assert {"kind": "agent", "wrong": False} in [
            {key: each[key] for key in ("kind", "wrong")} for each in status["notices"]
        ]
        assert "node-policy" not in str(status["found"])
        node.troubles.set("rollout", "NodePolicy all cannot be applied: bad", wrong=True)
        status = await told(serve, lambda status: status["problems"])
        assert "NodePolicy all cannot be applied: bad" in status["problems"]
        node.troubles.set("rollout", "")
        node.troubles.set("nodeplacement", "")
        await told(serve, lambda status: not status["agent"]["problems"] and not status["problems"])
        assert node.view.last is not None
        assert node.view.last["revision"] == first["revision"]


async def told(serve: Serve, condition: Any) -> dict[str, Any]:  # noqa: ANN401 (a function of `status`)
    """Wait until `status --check` satisfies *condition*."""
    client = ControlClient(str(serve.control), LIMIT_S)

    async def asked() -> dict[str, Any] | None:
        status = await client.ask("status", {"check": True})
        return status if condition(status) else None

    try:
        return dict(await polled(asked))
    finally:
        client.close()


async def test_a_node_policy_is_tried_kept_and_left(node: Node) -> None:
    """The status names it, the policy file counts again only when somebody asks for it, and a restart keeps it."""
    async with node.serve() as serve, node.followed():
        await node.until(lambda view: view["known"])
        await node.view.ask("reload-try", {"text": TWO_RESERVED, "source": SOURCE, "time_s": 600})
        tried = await node.until(lambda view: view["configuration"]["try"])
        assert tried["configuration"]["file"] == SOURCE
        assert tried["numa_nodes"][0]["cpus"]["reserved"] == "0-1"
        with pytest.raises(DaemonRefuses, match="not 'ffffffffffff'"):
            await node.view.ask("reload-keep", {"hash": "f" * 12})
        await node.view.ask("reload-keep", {"hash": tried["configuration"]["hash"]})
        kept = await node.until(lambda view: view["configuration"]["kept"])
        assert kept["found"] == []
    again_later = node.serve()
    again_later.policy.write_text(f"{POLICY}# another text\n")
    async with again_later as serve, node.followed():
        again = await node.until(lambda view: view["known"])
        assert (again["configuration"]["file"], again["configuration"]["kept"]) == (SOURCE, True)
        assert "Policy: NodePolicy all, hash " in (await serve.command("status"))[1]
        await node.view.ask("reload")
        await node.until(lambda view: view["configuration"]["file"] == str(serve.policy))


async def test_a_try_that_is_ended_leaves_what_was_before(node: Node) -> None:
    """What was kept before comes back, and not the policy file."""
    async with node.serve(), node.followed():
        await node.until(lambda view: view["known"])
        await node.view.ask("reload-try", {"text": TWO_RESERVED, "source": SOURCE, "time_s": 600})
        kept = await node.view.ask("reload-keep")
        await node.view.ask("reload-try", {"text": POLICY, "source": "NodePolicy/other", "time_s": 600})
        back = await node.view.ask("reload-back")
        assert (back["file"], back["hash"], back["kept"]) == (SOURCE, kept["hash"], True)
        with pytest.raises(DaemonRefuses, match="no configuration is being tried"):
            await node.view.ask("reload-back")


async def test_a_node_policy_that_says_what_is_in_effect_is_kept_at_once(node: Node) -> None:
    """Nothing moves, nothing is tried; the status names the NodePolicy from then on."""
    async with node.serve(), node.followed():
        await node.until(lambda view: view["known"])
        answer = await node.view.ask("reload-try", {"text": f"# same\n{POLICY}", "source": SOURCE, "time_s": 600})
        assert (answer["file"], answer["kept"], answer["moved"]) == (SOURCE, True, 0)
        await node.until(lambda view: view["configuration"]["file"] == SOURCE)


async def test_a_preview_refuses_what_a_try_would(node: Node) -> None:
    """A NodePolicy cannot change what the device plugin offers; else each agent would take a turn to find that out."""
    async with node.serve():
        asked = {"text": f"{POLICY}devices: {{plugin: {{}}}}\n", "source": SOURCE}
        preview = await node.view.ask("reload-dry-run", asked)
        file = await node.view.ask("reload-dry-run", {**asked, "source": "/etc/criproxy/policy.yaml"})

    assert (preview["accepted"], file["accepted"]) == (False, True)
    assert preview["mistakes"][0].startswith(f"{SOURCE} cannot be tried because it changes devices.plugin")


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        pytest.param("bypass", {"state": "on"}, "command", id="bypass"),
        pytest.param("release", {}, "command", id="release"),
        pytest.param("record", {}, "command", id="record"),
        pytest.param("device-inventory", {}, "command", id="device-plugin"),
        pytest.param("reload-try", {"text": POLICY, "source": "/etc/passwd", "time_s": 60}, "NodePolicy", id="file"),
        pytest.param("reload-keep", {}, "only try, keep and end what a NodePolicy says", id="no-try"),
        pytest.param("reload-try", {"text": "policy: [", "source": SOURCE, "time_s": 60}, "NodePolicy/all", id="bad"),
        pytest.param("agent", {"after": "x"}, "after: must be a revision", id="revision"),
        pytest.param("agent", {"wait_s": 1e9}, "wait_s: must be between 0 and 30", id="wait"),
        pytest.param("agent", {"report": []}, "report: must be an object", id="report"),
        pytest.param("agent", {"report": {"problems": "x"}}, "lists of texts", id="problems"),
    ],
)
async def test_the_agent_may_do_no_more_than_it_needs(
    node: Node, command: str, arguments: dict[str, Any], sentence: str
) -> None:
    """Neither switch criproxy off, nor speak for the device plugin, nor bring files into force."""
    async with node.serve():
        with pytest.raises(CriproxyError, match=sentence):
            await node.view.ask(command, arguments)


async def test_a_bad_policy_file_is_seen_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a good one again: no poll has to end before."""
    monkeypatch.setattr(module, "WAIT_S", 30.0)
    async with asyncio.timeout(20), node.serve() as serve, node.followed():
        await node.until(lambda view: view["known"])
        serve.policy.write_text("policy: [")
        bad = await node.until(lambda view: view["last_good"])
        assert [each["kind"] for each in bad["found"]] == ["config"]
        serve.policy.write_text(TWO_RESERVED)
        good = await node.until(lambda view: not view["last_good"])
        assert good["numa_nodes"][0]["cpus"]["reserved"] == "0-1"
        assert good["found"] == []


def test_a_reason_that_several_parts_have_is_said_once() -> None:
    """Such as a right that is missing."""
    troubles = Troubles(RecordingLog())
    for part in ("nodeplacements", "noderesourcetopologies"):
        troubles.set(part, "the Node cannot be read")
    assert troubles.sentences() == ["the Node cannot be read"]


def test_what_keeps_every_request_from_being_sent_is_said_and_logged_once() -> None:
    """Such as a kubeconfig file that is missing, which each part meets with another request."""
    log = RecordingLog()
    troubles = Troubles(log)
    for request in ("list nodes", "list nodepolicies", "get events"):
        troubles.set(request, f"it cannot be done: {request}: not sent: /etc/a: cannot be read")

    assert troubles.sentences() == ["nothing can be sent to the API server: /etc/a: cannot be read"]
    assert len(log.lines) == 1
