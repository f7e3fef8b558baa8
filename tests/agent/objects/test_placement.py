"""The status of a NodePlacement: its phase, its numbers, and its size whatever the node says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.agent.objects.placement import RolloutState, brief, status_of, status_without_daemon
from criproxy.simulate.hosts import shaped
from tests.agent.objects.structural import complaints
from tests.agent.objects.test_crds import schema_of
from tests.agent.views import DB, WEB, gpus, planned, view_of

HERE = RolloutState()
"""No NodePolicy selects the node."""
TRIED = {"until": "2026-11-30T00:10:00.000Z", "left_s": 600, "back": "/etc/criproxy/policy.yaml"}


def rolled(phase: Any, message: str = "") -> RolloutState:  # noqa: ANN401 (a word)
    """Return a state of the NodePolicy gpu."""
    return RolloutState("gpu", 3, "0123456789ab", phase, message)


def valid(status: dict[str, Any]) -> dict[str, Any]:
    """Return *status*, which the API server takes."""
    assert complaints(schema_of("NodePlacement"), {"status": status}) == []
    return status


def test_a_node_without_a_node_policy() -> None:
    """It is ready, and says which policy is in effect, what is free, and when the kubelet called."""
    status = valid(status_of(view_of(), HERE))

    assert (status["phase"], status["ready"], status["problems"]) == ("Applied", "True", [])
    assert status["policy"] == {
        "name": "topology-aware",
        "source": "/etc/criproxy/policy.yaml",
        "hash": "0123456789ab",
    }
    assert status["rollout"] == {"generation": 0}
    assert status["cpus"]["capacity"] == 32
    assert status["cpus"]["exclusive"] == 2
    assert status["lastCall"] == "2026-11-29T23:59:58.000Z"
    assert status["versions"]["runtime"] == "containerd 2.1.0"


@pytest.mark.parametrize(
    ("others", "rollout", "phase", "message"),
    [
        ({}, rolled("Applied"), "Applied", ""),
        ({}, rolled("Trying", "until 12:00"), "Trying", "until 12:00"),
        ({}, rolled("Waiting", "worker-2 tries it"), "Waiting", "worker-2 tries it"),
        ({}, rolled("Refused", "line 1: no"), "Refused", "line 1: no"),
        ({}, rolled("RolledBack", "a container has no place"), "RolledBack", "a container has no place"),
        ({"last_good": True}, HERE, "LastGood", "the policy file cannot be used: see the problems"),
        ({"last_good": True}, rolled("Waiting"), "Waiting", ""),
        ({"released": "on request"}, rolled("Trying"), "Released", "on request"),
        ({"bypass": {"mode": "ordered", "reason": "on request"}}, rolled("Applied"), "Bypassed", "on request"),
        ({"bypass": {"mode": "off", "reason": ""}}, rolled("Applied"), "Applied", ""),
        ({"configuration": {"file": "/a", "hash": "1", "try": TRIED}}, HERE, "Trying", f"until {TRIED['until']}"),
        ({}, RolloutState(message="NodePolicy gpu: no"), "Applied", "NodePolicy gpu: no"),
    ],
)
def test_the_phase(others: dict[str, Any], rollout: RolloutState, phase: str, message: str) -> None:
    """What stops placement counts more than what the rollout does, and that more than the file on the node."""
    status = valid(status_of(view_of(**others), rollout))

    assert (status["phase"], status.get("message", "")) == (phase, message)
    assert status["ready"] == ("False" if phase in {"Released", "Bypassed"} else "True")


def test_a_refused_node_policy_is_a_problem_beside_those_of_the_daemon() -> None:
    """It stays visible however many problems of one kind there are; the numbers stay."""
    problems = [f"container {number} is over its quota" for number in range(40)]
    found = [{"kind": "over-quota", "text": text} for text in problems]
    view = view_of(problems=problems) | {"found": found}

    status = valid(status_of(view, rolled("Refused", "no"), wrong=["NodePolicy gpu cannot be used: no"]))

    assert (status["phase"], status["ready"]) == ("Refused", "False")
    assert status["problems"][:2] == [problems[0], "NodePolicy gpu cannot be used: no"]


def test_the_rollout_is_read_back_as_it_was() -> None:
    """After a restart of the agent, this is how it knows how far its node was."""
    said = status_of(view_of(), rolled("RolledBack", "no"))["rollout"]

    assert said == {"policy": "gpu", "generation": 3, "hash": "0123456789ab", "phase": "RolledBack", "message": "no"}


def test_a_daemon_that_does_not_answer() -> None:
    """Whether all is well is unknown; the numbers are the last ones."""
    status = valid(status_of(view_of(), rolled("Applied"), "the daemon does not answer"))

    assert (status["phase"], status["ready"]) == ("Unknown", "Unknown")
    assert (status["message"], status["problems"]) == ("the daemon does not answer", ["the daemon does not answer"])
    assert (status["cpus"]["exclusive"], status["rollout"]["phase"]) == (2, "Applied")


def test_a_daemon_that_has_not_answered_since_the_agent_started() -> None:
    """What the agent wrote in its former life stays, but for whether all is well."""
    before = status_of(view_of(), rolled("Applied")) | {"observedAt": "2026-11-30T00:00:00Z"}

    status = valid(status_without_daemon(before, "no daemon"))

    assert (status["phase"], status["ready"], status["problems"]) == ("Unknown", "Unknown", ["no daemon"])
    assert (status["cpus"], status["rollout"]) == (before["cpus"], before["rollout"])
    assert "observedAt" not in status
    assert valid(status_without_daemon({}, "no daemon"))["phase"] == "Unknown"


def test_while_it_is_unknown_what_runs_nothing_is_said_to_be_free() -> None:
    """After a start the daemon does not know all containers."""
    status = valid(status_of(view_of(known=False), HERE))

    assert "free" not in status["cpus"]
    assert all("free" not in each["cpus"] and "availableMilli" not in each["cpus"] for each in status["numaNodes"])
    assert all("availableBytes" not in each["memory"] for each in status["numaNodes"])


def test_cards_and_vgpus() -> None:
    """By resource and NUMA node: all, those that containers have, and those that they can get."""
    view = view_of(devices=gpus(free=False))
    assert valid(status_of(view, HERE))["devices"] == [
        {"resource": "nvidia.com/gpu", "numaNode": 0, "total": 1, "allocated": 0, "free": 1},
        {"resource": "nvidia.com/vgpu-g4", "numaNode": 2, "profile": "g4", "total": 4, "allocated": 1, "free": 3},
    ]


@given(containers=st.lists(st.sampled_from([WEB, DB]), unique=True))
def test_the_sums(containers: list[Any]) -> None:
    """The node has what its NUMA nodes have."""
    status = status_of(view_of(planned(containers=containers)), HERE)
    for name in ("capacity", "exclusive", "free"):
        assert status["cpus"][name] == sum(each["cpus"][name] for each in status["numaNodes"])
    assert all(
        each["cpus"]["exclusive"] + each["cpus"]["free"] <= each["cpus"]["capacity"] for each in status["numaNodes"]
    )


BIG = view_of(
    planned(shaped("2s/8n/128c/2t")),
    problems=["ä" * 5000] * 500,
    devices=None,
) | {
    "devices": [
        {
            "resource": f"nvidia.com/gpu-of-some-kind-{card}",
            "profile": "",
            "numa_node": card % 8,
            "total": 1,
            "allocated": 0,
            "free": 1,
        }
        for card in range(16)
    ],
    "configuration": {"file": "/etc/" + "x" * 5000, "hash": "0123456789ab", "try": None},
}


def test_the_size_is_bounded() -> None:
    """8 NUMA nodes, 16 cards, and more problems than anybody reads: less than 10 kB."""
    status = valid(status_of(BIG, rolled("RolledBack", "why? " * 2000)))

    assert len(json.dumps({"status": status}, ensure_ascii=False).encode()) < 10_000
    assert status["problems"][-1].startswith("and 49")
    assert status["problems"][0].endswith("…")
    assert max(map(len, status["problems"])) <= 300


def test_rows_are_bounded() -> None:
    """However many NUMA nodes and rows of devices there are."""
    view = view_of()
    row = {"resource": "a/b", "profile": "", "numa_node": None, "total": 1, "allocated": 0, "free": 1}
    view |= {"numa_nodes": view["numa_nodes"] * 100, "devices": [row] * 1000}

    status = valid(status_of(view, HERE))

    assert (len(status["numaNodes"]), len(status["devices"])) == (64, 64)


@pytest.mark.parametrize(
    ("count", "last"), [(19, "19"), (20, "20"), (21, "and 2 more problems"), (300, "and 281 more problems")]
)
def test_many_problems(count: int, last: str) -> None:
    """At most 20, of which the last says how many there are."""
    problems = [str(number) for number in range(1, count + 1)]

    shown = status_of(view_of(problems=problems), HERE)["problems"]

    assert len(shown) == min(count, 20)
    assert shown[-1] == last


def test_no_text_is_empty() -> None:
    """A field that has nothing to say is not there: thousands of these objects are kept and watched."""
    view = view_of(devices=gpus(), policy_name="", kubelet={"last_call": ""}, version="")

    assert '""' not in json.dumps(status_of(view, rolled("")))


@given(st.text(), st.integers(2, 400))
def test_a_brief_text(text: str, limit: int) -> None:
    """One printable line within the limit."""
    line = brief(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_many_problems_of_one_kind_hide_no_other() -> None:
    """A tenant with many resizes that are refused: the first problem of each kind is listed first."""
    found = [{"kind": "undersized", "text": f"evil/{number} {'x' * 200}"} for number in range(20)]
    found += [{"kind": "undersized", "text": "more"}, {"kind": "misplaced", "text": "shop/db is elsewhere"}]

    shown = status_of(view_of(problems=[each["text"] for each in found]) | {"found": found}, HERE)["problems"]

    assert shown[:2] == [found[0]["text"], "shop/db is elsewhere"]
    assert shown[2] == found[1]["text"]
