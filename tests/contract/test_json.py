"""What commands print with ``--format json`` has the keys and types of the table in `answers`, daemon or not."""

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.answers import AGENT, SHAPES
from tests.contract.conftest import RichNode
from tests.contract.cri import Cri, pod_of
from tests.contract.programs import ROOT, Answer, command, commands, help_of
from tests.contract.shapes import differences

OWNER = "default/owner/main"


ORDERS = {
    "bypass on": "bypass",
    "bypass status": "bypass",
    "bypass off": "bypass",
    "release": "release",
    "release --undo": "release",
    "reload --dry-run OTHER": "reload --dry-run",
    "reload --try 10m OTHER": "reload --try",
    "status": "status",
    "reload --keep": "reload",
    "reload": "reload",
}
"""Commands that change something, or undo that, in their order, and their shapes; OTHER is another policy file.

During a try, ``status`` tells how it ends.
"""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A node whose daemon has ended, while its runtime goes on, and what the daemon answered to `ORDERS`."""

    node: RichNode
    answers: Mapping[str, Answer]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """The node: first the orders, and then its pods."""
    node = RichNode(tmp_path_factory.mktemp("e"))
    other = node.root / "other.yaml"
    other.write_text(node.policy.read_text().replace("'0'", "'1'") + "apply: all\nonError: refuse\n")
    with node.runtime_serving():
        with node.serving(), Cri(node.socket) as kubelet:
            kubelet.run(pod_of("first", limit_milli=1000, memory_mib=64))
            lines = {line: line.replace("OTHER", str(other)).split() for line in ORDERS}
            answers = {line: node.ask(*words, "--format", "json") for line, words in lines.items()}
            node.run_pods()
        yield Stopped(node, answers)


def assert_shape(name: str, answer: Answer, status: int = 0) -> None:
    """Compare the output of a command with the shape *name*."""
    assert answer.status == status, answer.text
    found = differences(answer.json, SHAPES[name])
    assert not found, "\n".join(found)


def test_every_command_with_json_has_a_shape() -> None:
    """A new command, or a new ``--format json``, needs a row in `answers.SHAPES`, and one in a table below."""
    found = {name for name in commands() if re.search(r"^ +--format .*json", help_of(name), re.MULTILINE)}

    assert found == {name.partition(" ")[0] for name in SHAPES}


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        pytest.param("check", ("policy.yaml",), 0, id="check"),
        pytest.param("check", ("wrong.yaml", "--no-machine"), 1, id="check-wrong"),
        pytest.param("devices", (), 0, id="devices"),
        pytest.param("events", (), 0, id="events"),
        pytest.param("explain", (OWNER,), 0, id="explain-exclusive"),
        pytest.param("explain", ("default/vgpu/main",), 0, id="explain-card"),
        pytest.param("explain", ("default/too-big/main",), 0, id="explain-refused"),
        pytest.param("fit", ("--cpu", "1"), 0, id="fit"),
        pytest.param("fit", ("--cpu", "6", "--device", "example.com/npu=1"), 1, id="fit-not"),
        pytest.param("history", ("config",), 0, id="history"),
        pytest.param("history NUMBER", ("config", "1"), 0, id="history-one"),
        pytest.param("recommend", (), 0, id="recommend"),
        pytest.param("reload --dry-run", ("--dry-run", "policy.yaml"), 0, id="reload-the-same"),
        pytest.param("status", (), 0, id="status"),
        pytest.param("status --check", ("--check",), 1, id="status-check"),
        pytest.param("topology", (), 0, id="topology"),
        pytest.param("usage", ("--history",), 0, id="usage"),
        pytest.param("who", ("0-8",), 0, id="who"),
    ],
)
def test_the_answer_of_a_daemon(node: RichNode, name: str, arguments: tuple[str, ...], status: int) -> None:
    """Every key is there with its type, and no other key."""
    (node.root / "wrong.yaml").write_text("policy: none\nreserved: 1\n")
    paths = [str(node.root / each) if each.endswith(".yaml") else each for each in arguments]

    assert_shape(name, node.ask(name.partition(" ")[0], *paths, "--format", "json"), status)


def test_the_answer_to_an_agent(node: RichNode) -> None:
    """The same: agents of other versions read it."""
    assert not differences(node.query("agent"), AGENT)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("devices", (), id="devices"),
        pytest.param("events", (), id="events"),
        pytest.param("explain", (OWNER,), id="explain"),
        pytest.param("history", ("config",), id="history"),
        pytest.param("status", (), id="status"),
        pytest.param("status --check", ("--check",), id="status-check"),
        pytest.param("who", ("0-7",), id="who"),
    ],
)
def test_the_answer_without_a_daemon(stopped: Stopped, name: str, arguments: tuple[str, ...]) -> None:
    """What is read from the disk has the same shape as the answer of a daemon."""
    assert_shape(
        name, stopped.node.ask(name.partition(" ")[0], *arguments, "--format", "json"), int(name == "status --check")
    )


@pytest.mark.parametrize("line", ORDERS)
def test_the_answer_to_an_order(stopped: Stopped, line: str) -> None:
    """What a daemon did, and what it would do, is said with every key, and with no other key."""
    assert_shape(ORDERS[line], stopped.answers[line])


def test_the_answer_to_a_release_without_a_daemon(stopped: Stopped) -> None:
    """A release through the runtime is answered as one by the daemon."""
    answer = stopped.node.ask("release", "--runtime-endpoint", f"unix://{stopped.node.runtime}", "--format", "json")

    assert_shape("release", answer)


def test_the_topology_of_a_real_machine(shared_dir: Path, tmp_path: Path) -> None:
    """Kinds of cores, caches, frequencies and huge pages have their shapes."""
    with tarfile.open(shared_dir / "topologies/snapshots/raptorlake-6p8e.tar.xz") as archive:
        archive.extractall(tmp_path)  # noqa: S202 (our own)

    assert_shape("topology", command("topology", "--host-root", tmp_path, "--format", "json"))


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        pytest.param(
            "simulate",
            ("tests/scenarios/peers.yaml", "affinity", "--machine", "1s/2n/8c/1t", "-v", "--explain"),
            1,
            id="cases-that-fail",
        ),
        pytest.param(
            "simulate --load",
            ("--load", "LOAD", "--policy", "policies/static.yaml", "--policy", "policies/topology-aware.yaml"),
            0,
            id="load",
        ),
    ],
)
def test_the_result_of_a_simulation(tmp_path: Path, name: str, arguments: tuple[str, ...], status: int) -> None:
    """Cases and comparisons of policies have their shapes."""
    load = tmp_path / "load.yaml"
    text = (ROOT / "docs/examples/loads/gpus.yaml").read_text()
    load.write_text(text.replace("duration: 2h", "duration: 2m").replace("2s/4n/64c/2t", "1s/2n/8c/1t"))

    answer = command("simulate", *(str(load) if each == "LOAD" else each for each in arguments), "--format", "json")

    assert_shape(name, answer, status)
