"""Names that others rely on are those of the tables in `names`, and commands end with the status that they promise."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from tests.contract import names
from tests.contract.conftest import RichNode
from tests.contract.cri import Cri
from tests.contract.programs import CRIPROXY, PLUGIN, command, commands, fetch, options_of, service, wait_until


def assert_names(found: Collection[str], table: Collection[str]) -> None:
    """Fail with what to do where names are gone or new."""
    gone, new = set(table) - set(found), set(found) - set(table)
    assert not gone, f"gone or renamed, which breaks what uses them: {', '.join(sorted(gone))}"
    assert not new, f"new: add to the table in tests/contract/names.py: {', '.join(sorted(new))}"


def metrics(table: Mapping[str, str], prefix: str) -> Iterator[str]:
    """Yield each metric of a table with its kind."""
    for kind, listed in table.items():
        yield from (f"{prefix}_{name} {kind}" for name in listed.split())


@pytest.mark.parametrize(
    ("program", "table"),
    [
        pytest.param("daemon", names.DAEMON_METRICS, id="daemon"),
        pytest.param("plugin", names.PLUGIN_METRICS, id="device-plugin"),
    ],
)
def test_metrics_have_their_names_and_kinds(node: RichNode, program: str, table: Mapping[str, str]) -> None:
    """Dashboards and alerts find each metric under its name, as a counter, a gauge or a histogram."""
    text = fetch(node.http if program == "daemon" else node.plugin_http, "/metrics")

    found = re.findall(r"^# TYPE (.+)$", text, re.MULTILINE)
    assert_names(found, {*metrics(table, "criproxy"), *metrics(names.PROCESS_METRICS, "process")})


def test_metrics_of_the_agent_have_their_names_and_kinds(tmp_path: Path) -> None:
    """The same for the agent, also before it has reached a daemon or an API server."""
    config = {
        "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": ""}}],
        "current-context": "none",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    http, log = tmp_path / "http.sock", tmp_path / "agent.log"
    options = ("--node-name", "worker-1", "--kubeconfig", tmp_path / "kubeconfig", "--http", f"unix://{http}")

    with service(log, *CRIPROXY, "agent", *options, "--control-socket", tmp_path / "none.sock"):
        wait_until(http.exists, log.read_text)
        text = fetch(http, "/metrics")

    found = re.findall(r"^# TYPE (.+)$", text, re.MULTILINE)
    assert_names(found, {*metrics(names.AGENT_METRICS, "criproxy"), *metrics(names.PROCESS_METRICS, "process")})


def test_policy_files_know_the_keys_of_annotations() -> None:
    """The schema lists the keys that ``annotations.allow`` may name: those that criproxy reads."""
    schema = json.loads(command("schema").out)

    assert_names(_keys(schema) - {"*"}, names.ANNOTATIONS.split())


def _keys(value: object) -> set[str]:
    """Return the examples beside ``prefer-isolated-cpus``, wherever they are."""
    if isinstance(value, dict):
        choices = {each for each in value.get("examples", ()) if isinstance(each, str)}
        found = choices if "prefer-isolated-cpus" in choices else set()
        return found.union(*map(_keys, value.values()))
    return set[str]().union(*map(_keys, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("domain", names.DOMAINS)
def test_annotations_are_read_under_each_domain(node: RichNode, domain: str) -> None:
    """Pods keep their annotations when they come from CRI-RM or nri-plugins."""
    key = f"prefer-isolated-cpus.{domain}/pod"

    answer = node.ask("fit", "--cpu", "1", "--annotation", f"{key}=perhaps")

    assert answer.status == 1
    assert key in answer.text


def test_the_stamp_has_its_keys(node: RichNode) -> None:
    """The annotation that criproxy leaves in the runtime is what it, and the next version, knows a container by."""
    with Cri(node.runtime) as runtime:
        listed = runtime.call("ListContainers", {})["containers"]
    stamps = [json.loads(each["annotations"]["criproxy/placement"]) for each in listed]

    assert len(stamps) == 5
    for stamp in stamps:
        assert_names(stamp, names.STAMP.split())


def test_there_are_these_commands() -> None:
    """Scripts find each command."""
    assert_names(commands(), names.OPTIONS)


@pytest.mark.parametrize("name", names.OPTIONS)
def test_a_command_has_these_options(name: str) -> None:
    """Units and scripts may use each option."""
    assert_names(options_of(name) - {"-h", "--help"}, names.OPTIONS[name].split())


@pytest.mark.parametrize("name", names.KUBECTL_OPTIONS)
def test_a_command_of_the_plugin_has_these_options(name: str) -> None:
    """Scripts on workstations may use each option."""
    assert_names(options_of(name, PLUGIN) - {"-h", "--help"}, names.KUBECTL_OPTIONS[name].split())


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param("status --no-such-option", 2, id="no-such-option"),
        pytest.param("status --format yaml", 2, id="no-such-format"),
        pytest.param("explain", 2, id="no-argument"),
        pytest.param("fit", 2, id="nothing-to-fit"),
        pytest.param("simulate /no/such/file", 2, id="no-such-file"),
        pytest.param("serve --image-listen unix:///i.sock", 2, id="half-of-two-options"),
        pytest.param("fit --cpu 100", 1, id="does-not-fit"),
        pytest.param("status --check", 1, id="something-is-wrong"),
        pytest.param("history config 99", 1, id="no-such-configuration"),
        pytest.param("who 0", 0, id="fine"),
    ],
)
def test_the_exit_status_says_what_was_wrong(node: RichNode, line: str, status: int) -> None:
    """2 is wrong use, 1 the answer no, 0 all is well; and a refusal is a sentence, without a traceback."""
    name, *arguments = line.split()

    answer = node.ask(name, *arguments)

    assert answer.status == status, answer.text
    assert "Traceback" not in answer.text
    assert status != 2 or "Error: " in answer.err
