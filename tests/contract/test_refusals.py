"""What a refusal says: who asks for what, what is there instead, and what was probably meant."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import RichNode
from tests.contract.cri import Cri, Refused, Values, pod_of
from tests.contract.programs import command

WHOLE: Mapping[str, Any] = {"limit_milli": 1000, "memory_mib": 64}
PRIVILEGED = {"security_context": {"privileged": True}}


def assert_says(text: str, pattern: str) -> None:
    """Look for the words of *pattern* in *text*."""
    assert re.search(pattern, text), f"{pattern!r} is not in {text!r}"


@pytest.mark.parametrize(
    ("pod", "code", "pattern"),
    [
        pytest.param(
            pod_of("five", limit_milli=5000, memory_mib=64),
            "RESOURCE_EXHAUSTED",
            r"^container default/five/main asks for 5 exclusive CPUs, but only 4 are available; free: CPUs 4-7 on NUMA "
            r"node 1; CPU 3 is kept for default/ended, whose containers have ended and may come back$",
            id="too-few-cpus",
        ),
        pytest.param(
            pod_of("word", **WHOLE, annotations={"prefer-isolated-cpus.criproxy.io/pod": "perhaps"}),
            "INVALID_ARGUMENT",
            r"annotation prefer-isolated-cpus\.criproxy\.io/pod.*'perhaps'.*true.*false",
            id="annotation-with-another-word",
        ),
        pytest.param(
            pod_of("long", **WHOLE, annotations={"prefer-isolated-cpus.criproxy.io": "true" * 5000}),
            "INVALID_ARGUMENT",
            r"annotation prefer-isolated-cpus\.criproxy\.io.*(long|characters)",
            id="annotation-that-is-too-long",
        ),
        pytest.param(
            pod_of("root", **WHOLE, linux=PRIVILEGED),
            "PERMISSION_DENIED",
            r"it is privileged and would see every device of the host, and this node's policy file does not allow that "
            r"\(devices\.privileged: deny\): leave securityContext\.privileged out",
            id="privileged",
        ),
    ],
)
def test_a_create_is_refused_with_a_reason(node: RichNode, pod: Values, code: str, pattern: str) -> None:
    """The kubelet shows the sentence in the pod's events; its status tells whether to try again."""
    with Cri(node.socket) as kubelet, pytest.raises(Refused) as refused:
        kubelet.run(pod)

    assert_says(refused.value.details, pattern)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        pytest.param(
            "policy: static\nreservedCpu: '0'\n",
            r"FILE:2:1: unknown option 'reservedCpu'; did you mean 'reservedCpus'\?",
            id="option",
        ),
        pytest.param(
            "policy: statik\n", r"FILE:1:9: policy: unknown policy 'statik'; .*did you mean 'static'\?", id="policy"
        ),
        pytest.param(
            "policy: static\nannotations: {allow: {'*': [prefer-isolated-cpu]}}\n",
            r"FILE:2:29: .*no policy reads an annotation 'prefer-isolated-cpu'; did you mean 'prefer-isolated-cpus'\?",
            id="annotation",
        ),
        pytest.param("policy: static\nreservedCpus: 0-\n", r"FILE:2:15: reservedCpus: ", id="value"),
    ],
)
def test_a_mistake_in_a_policy_file_has_its_place(tmp_path: Path, text: str, pattern: str) -> None:
    """``criproxy check`` names file, line and column, and the nearest name that there is."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)

    answer = command("check", "--no-machine", file)

    assert answer.status == 1
    assert_says(answer.text, pattern.replace("FILE", re.escape(str(file))))


@pytest.mark.parametrize(
    ("line", "status", "pattern"),
    [
        pytest.param("sttus", 2, r"No such command 'sttus'\. Did you mean 'status'\?", id="command"),
        pytest.param("status --json", 2, r"Did you mean '--format json'\?", id="option"),
        pytest.param(
            "explain default/owner/mian",
            1,
            r"criproxy knows no container 'default/owner/mian'; did you mean default/owner/main",
            id="container",
        ),
        pytest.param("who 0-", 2, r"which CPUs\? '0-' is neither an id nor a range such as 0-3", id="cpus"),
        pytest.param(
            "usage --control-socket /no/socket",
            1,
            r"no criproxy daemon listens on /no/socket; start it, or name its socket with --control-socket",
            id="no-daemon",
        ),
        pytest.param(
            "status --control-socket /no/socket --state-dir /no/state",
            1,
            r"there is no state database /no/state/criproxy\.db: criproxy has not run with this state directory",
            id="no-state",
        ),
    ],
)
def test_a_command_says_what_was_meant(node: RichNode, line: str, status: int, pattern: str) -> None:
    """Mistyped names get the nearest one, and what is not there gets a way out."""
    name, *arguments = line.split()

    answer = command(name) if name == "sttus" else node.ask(name, *arguments)

    assert answer.status == status
    assert_says(answer.text, pattern)
