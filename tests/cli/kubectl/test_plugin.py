"""``kubectl criproxy``: what it prints for a node of a cluster, through the real kubectl."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from criproxy.cli import main as criproxy
from criproxy.cli.kubectl.plugin import QUERIES, main
from tests.asking import invoke, places, serving
from tests.cli.kubectl.kube import AGENT, NEEDS_KUBECTL, NODE, TOKEN, Kube, process
from tests.conftest import ROOT
from tests.node.world import World, owner

pytestmark = NEEDS_KUBECTL


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("status", id="status"),
        pytest.param("status -n default --pod web", id="status-of-a-pod"),
        pytest.param("who 0-3", id="who"),
        pytest.param("fit --cpu 1", id="fits"),
        pytest.param("fit --cpu 100", id="does-not-fit"),
        pytest.param("explain default/web/main", id="explain"),
        pytest.param("events --since 1h", id="events"),
    ],
)
async def test_a_node_shows_the_same_here_as_there(kube: Kube, world: World, line: str) -> None:
    """Tables, JSON and exit statuses are those of `criproxy` on the node."""
    kube.pod("web", "main")
    name, *arguments = line.split()
    node_options = [] if name == "fit" else places(kube.directory)[2:]
    socket = places(kube.directory)[:2]

    there = await invoke(name, *arguments, *socket, *node_options)
    here = await kube.ask(name, *arguments)
    data = await kube.ask(name, *arguments, "-o", "json")

    assert here.exit_code == there.exit_code, here.output
    assert without_times(here.stdout) == without_times(there.stdout)
    assert data.exit_code == there.exit_code
    assert all(json.loads(text) for text in data.stdout.splitlines())


def without_times(text: str) -> list[str]:
    """The lines but those that change from one moment to the next."""
    lines = text.splitlines()
    assert lines
    return [line for line in lines if "process" not in line and "Kubelet" not in line and " ago" not in line]


async def test_check_says_whether_all_is_well(kube: Kube, world: World) -> None:
    """The exit status is that of `criproxy status --check`."""
    answer = await kube.ask("status", "--check")

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("All is well: 2 containers")


async def test_options_about_the_cluster_also_come_before_the_command(kube: Kube, world: World) -> None:
    """As for kubectl; of two, the later one counts."""
    before = ["--kubeconfig", kube.kubeconfig, "--context", "nowhere", "--request-timeout", "20s"]
    last = ["status", "--check", "--node", NODE]

    lost = await asyncio.to_thread(CliRunner().invoke, main, [*before, *last])
    found = await asyncio.to_thread(CliRunner().invoke, main, [*before, *last, "--context", "here"])
    space = await asyncio.to_thread(
        CliRunner().invoke, main, ["--criproxy-namespace", "other", *last, "--kubeconfig", kube.kubeconfig]
    )

    assert "kubectl cannot reach the API server" in lost.stderr
    assert (found.exit_code, found.stderr) == (0, "")
    assert "in namespace other" in space.stderr


async def test_usage_is_asked_of_the_daemon(kube: Kube, tmp_path: Path) -> None:
    """Also what the disk of a node would not know."""
    asked = []

    async def usage(arguments: object) -> object:
        asked.append(arguments)
        return {"cards": []}

    async with serving(tmp_path, {"usage": usage}):
        answer = await kube.ask("usage", "--history", "-o", "json")

    assert json.loads(answer.stdout) == {"cards": []}
    assert asked == [{"history": True}]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["default/web/main"], id="container"),
        pytest.param(["default/web"], id="pod"),
        pytest.param(["web"], id="pod-in-the-namespace-of-the-context"),
        pytest.param(["web", "-n", "default"], id="pod-in-a-namespace"),
        pytest.param(["web/main", "-n", "default"], id="container-in-a-namespace"),
    ],
)
async def test_explain_finds_the_node_of_a_pod(kube: Kube, world: World, arguments: list[str]) -> None:
    """Who looks for a pod need not know its node."""
    kube.pod("web", "main", initContainers=[{"name": "init"}])

    answer = await kube.run("explain", *arguments)

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("default/web/main\n")


async def test_explain_takes_the_namespace_of_the_context(kube: Kube, world: World) -> None:
    """As kubectl does."""
    kube.write_kubeconfig(namespace="shop")

    answer = await kube.run("explain", "web")

    assert "knows no pod shop/web" in answer.stderr


async def test_explain_of_a_pod_that_is_gone_asks_its_node(kube: Kube, world: World) -> None:
    """The node remembers it, the API server does not."""
    without, with_node = await kube.run("explain", "default/web"), await kube.ask("explain", "default/web/main")
    by_id = await kube.ask("explain", "zz")

    assert without.exit_code == 1
    assert "--node NODE default/web/CONTAINER" in without.stderr
    assert with_node.exit_code == 0, with_node.output
    assert f"node {NODE}: " in by_id.stderr


async def test_a_finished_pod_is_explained_by_its_node(kube: Kube, world: World) -> None:
    """It is still in the API server, and its node knows what it had."""
    kube.pod("web", "main", phase="Succeeded")

    answer = await kube.run("explain", "default/web")

    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["default/two"], 1, "has 2 containers; name one of: default/two/a, default/two/b, default/two/i"),
        pytest.param(["default/two/c"], 1, "has no container c; name one of: default/two/a"),
        pytest.param(["default/gone"], 1, "the API server knows no pod default/gone"),
        pytest.param(["default/pending"], 1, "has no node yet; kubectl describe pod -n default pending says why"),
        pytest.param(["a/b/c/d"], 2, "'a/b/c/d' is no container"),
        pytest.param(["default//c"], 2, "'default//c' is no container"),
        pytest.param(["default/two/a", "-n", "default"], 2, "cannot be combined"),
        pytest.param(["../../secrets"], 2, "'../../secrets' is no container"),
        pytest.param(["../nodes"], 2, "'../nodes' is no container"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_a_pod_that_cannot_be_explained(kube: Kube, arguments: list[str], status: int, said: str) -> None:
    """The message says which there are, or what to do."""
    kube.pod("two", "a", "b", initContainers=[{"name": "i"}])
    kube.pod("pending", "main", node="", phase="Pending")

    answer = await kube.run("explain", *arguments)

    assert answer.exit_code == status
    assert said in answer.stderr


async def test_nodes_are_those_that_report(kube: Kube) -> None:
    """No agent is asked; what is wrong has a line of its own, and what is old is said."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    policy, cpus = {"name": "static", "hash": "0123456789ab"}, {"capacity": 8, "exclusive": 2, "free": 4}
    whole = {"ready": "True", "policy": policy, "cpus": cpus, "observedAt": now}
    kube.placement("b", phase="Applied", **whole)
    kube.placement(
        "a", **whole | {"phase": "Refused", "problems": ["a bad policy", *"bcde"], "message": "it is refused"}
    )
    kube.placement("c", **whole | {"phase": "Applied", "observedAt": "2020-01-01T00:00:00Z"})
    kube.placement("d")

    table, data = await kube.run("nodes"), await kube.run("nodes", "-o", "json")

    lines = table.stdout.splitlines()
    assert lines[0].split() == ["NODE", "PHASE", "READY", "POLICY", "HASH", "EXCLUSIVE", "FREE", "SEEN"]
    assert [line.split()[:7] for line in lines[1:3]] == [
        ["a", "Refused", "True", "static", "0123456789ab", "2", "4"],
        ["b", "Applied", "True", "static", "0123456789ab", "2", "4"],
    ]
    assert lines[4].split() == ["d", "-", "-", "-", "-", "?", "?", "never"]
    assert lines[6:] == [
        "WRONG: a: a bad policy",
        "WRONG: a: b",
        "WRONG: a: c",
        "WRONG: a: and 2 more",
        "Note: a: it is refused",
        "Note: c: its agent is silent: this may no longer hold",
        "Note: d: its agent is silent: this may no longer hold",
    ]
    assert [each["metadata"]["name"] for each in json.loads(data.stdout)] == ["a", "b", "c", "d"]
    assert kube.api.requests["create", "pods"] == 0


async def test_what_a_problem_says_is_not_said_twice(kube: Kube) -> None:
    """Why the daemon does not answer, and why a NodePolicy is refused, which the agent cuts at another place."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    gone, refusal = "no daemon answers on /run/criproxy", "x" * 300
    refused = f"NodePolicy gpu cannot be used on this node: {refusal}"[:299] + "…"
    kube.placement("a", phase="Unknown", ready="Unknown", observedAt=now, problems=[gone], message=gone)
    kube.placement("b", phase="Refused", ready="False", observedAt=now, problems=[refused], message=refusal)

    table = await kube.run("nodes")

    assert [line for line in table.stdout.splitlines() if line.startswith(("WRONG", "Note"))] == [
        f"WRONG: a: {gone}",
        f"WRONG: b: {refused}",
    ]


async def test_a_large_cluster_is_read_page_by_page(kube: Kube) -> None:
    """Nothing is left out."""
    for number in range(1200):
        kube.placement(f"node-{number:04}", phase="Applied", ready="True")

    answer = await kube.run("nodes", "-o", "json")

    assert len(json.loads(answer.stdout)) == 1200
    assert kube.api.requests["list", "nodeplacements"] == 3


def test_help_is_about_a_cluster() -> None:
    """Each command has its options here, and none of those that lead to a daemon on this machine."""
    for name in QUERIES:
        shown = CliRunner().invoke(main, [name, "--help"]).output
        there = CliRunner().invoke(criproxy, [name, "--help"]).output
        assert "--node NODE" in shown
        assert "--control-socket" in there
        assert not {"--control-socket", "--state-dir", "--host-root", "--format"} & {*shown.split()}


async def test_options_of_kubectl_are_passed_on(kube: Kube) -> None:
    """The context decides which cluster is asked."""
    answer = await kube.ask("status", "--context", "nowhere")

    assert answer.exit_code == 1
    assert "Error: kubectl cannot reach the API server: dial tcp 127.0.0.1:1: connect:" in answer.stderr
    assert "proxy_server.go" not in answer.stderr  # kubectl's log


async def test_the_token_goes_to_the_agent_only(kube: Kube, world: World) -> None:
    """No other request has it, and it is in no body, which the agent passes on to the daemon."""
    await kube.ask("status")

    having = [each for each in kube.api.asked if TOKEN in str(each.headers)]
    assert [(each.subresource, each.name.split(":")[1]) for each in having] == [("proxy", AGENT)]
    assert json.loads(having[0].body).keys() == {"command", "arguments"}


async def test_a_repeated_question_looks_nothing_up_again(kube: Kube, world: World) -> None:
    """`--check` asks until nothing is under way: pod and token are known then."""
    await kube.ask("status", "--check")

    assert kube.api.requests["get", "secrets"] == 1


async def test_events_are_followed_until_ctrl_c(kube: Kube, world: World) -> None:
    """One kubectl serves all questions; what happens later is shown, and Ctrl-C is no failure."""
    async with process(kube, "events", "--follow", "--node", NODE) as command:
        assert command.stdout is not None
        first = await command.stdout.readline()
        await world.run(owner("late", 1))
        while b"default/late/main" not in (line := await command.stdout.readline()):
            assert line
        command.send_signal(signal.SIGINT)
        _, err = await command.communicate()

    assert b"default/web/main" in first
    assert (command.returncode, err) == (0, b"")
    assert kube.api.requests["get", "secrets"] == 1


async def test_kubectl_runs_the_plugin(kube: Kube, world: World, tmp_path: Path) -> None:
    """As `kubectl criproxy`: kubectl finds the program that the package installs in PATH."""
    program = tmp_path / "bin" / "kubectl-criproxy"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom criproxy.cli.kubectl.plugin import run\nrun()\n")
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    options = ("--node", NODE, "--kubeconfig", kube.kubeconfig)

    command = await asyncio.create_subprocess_exec(
        *("kubectl", "criproxy", "who", "1-2", *options), stdout=asyncio.subprocess.PIPE, env=environ
    )
    out, _ = await command.communicate()

    assert command.returncode == 0
    assert out.decode().startswith("CPUs 1-2, NUMA node 0: exclusive\n")
