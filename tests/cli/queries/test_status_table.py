"""The first lines of `criproxy status`."""

import time
from typing import Any

import pytest

from criproxy.cli.queries.status import front_of
from criproxy.cli.render.console import TROUBLE
from criproxy.model.text.notices import timestamp

NO_CALLS: dict[str, Any] = {"calls": 0, "last_call": None, "last_call_s": None}


def answer(age_s: float | None, up_s: float = 3600.0, free: tuple[int, ...] = (6, 2)) -> dict[str, Any]:
    """An answer whose last call was *age_s* ago, of a daemon that has been up for *up_s*."""
    now_s = time.time()
    polls = NO_CALLS if age_s is None else {"calls": 1, "last_call": "", "last_call_s": age_s}
    return {
        "started": timestamp(now_s - up_s),
        "kubelet": {**polls, "classes": {"containers": NO_CALLS, "polls": polls}},
        "runtime": {"name": "containerd", "version": "v1.7.1", "socket": "/run/c.sock"},
        "configuration": {"file": "/etc/p.yaml", "hash": "0123456789ab", "loaded": timestamp(now_s - 7300)},
        "cpu_counts": {"exclusive": 12, "capacity": 20, "free": sum(free)},
        "numa_nodes": [{"id": number, "cpus": "0", "free": count} for number, count in enumerate(free)],
    }


def test_all_is_well() -> None:
    """Four lines, and none of them is in red."""
    lines = list(front_of(answer(0.42)))

    assert [line.plain for line in lines] == [
        "Kubelet: connected to criproxy, last call 0.4 s ago (polls 0.4 s ago)",
        "Runtime: containerd v1.7.1 on /run/c.sock",
        "Policy file: /etc/p.yaml, hash 0123456789ab, loaded 2 h 1 min ago",
        "Exclusive CPUs: 12 of 20; free: 6 on NUMA node 0, 2 on NUMA node 1",
    ]
    assert not any(line.style for line in lines)


CALLS = {
    "slow": (29.9, 3600.0, "connected to criproxy, last call 29 s ago (polls 29 s ago)", ""),
    "silent": (
        *(303.0, 3600.0),
        "no call for 5 min 3 s: it is not running, or is not connected to criproxy (polls 5 min 3 s ago)",
        *(TROUBLE,),
    ),
    "just-started": (None, 10.0, "no call since criproxy started 10 s ago", ""),
    "never": (
        *(None, 125.0),
        "no call since criproxy started 2 min 5 s ago: it is not connected to criproxy",
        *(TROUBLE,),
    ),
}


@pytest.mark.parametrize(("age_s", "up_s", "said", "style"), CALLS.values(), ids=CALLS)
def test_whether_the_kubelet_goes_through(age_s: float | None, up_s: float, said: str, style: str) -> None:
    """A kubelet calls every few seconds: after half a minute without a call it goes elsewhere."""
    line = next(front_of(answer(age_s, up_s)))

    assert (line.plain, line.style) == (f"Kubelet: {said}", style)


@pytest.mark.parametrize(
    ("free", "said"),
    [
        pytest.param((8,), "free: 8", id="one-node"),
        pytest.param((0, 0), "free: 0 on NUMA node 0, 0 on NUMA node 1", id="none"),
        pytest.param((1,) * 17, "free: 17", id="too-many-nodes-for-a-line"),
    ],
)
def test_free_cpus(free: tuple[int, ...], said: str) -> None:
    """By NUMA node, where a line has room for them."""
    assert list(front_of(answer(1.0, free=free)))[-1].plain == f"Exclusive CPUs: 12 of 20; {said}"


def test_what_is_not_known_is_left_out() -> None:
    """A daemon of an earlier version, one without a file, and one without a runtime say less."""
    values = answer(1.0)
    values |= {"kubelet": None, "runtime": {"name": "", "version": "", "socket": ""}, "cpu_counts": None}
    values["configuration"] = {"file": "", "hash": "", "loaded": None}

    assert list(front_of(values)) == []
    assert list(front_of({"started": None})) == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_policy_of_the_cluster(kept: bool) -> None:
    """It is named as in the cluster; that the policy file does not count then is nothing special."""
    values = answer(1.0)
    values["configuration"] |= {"file": "NodePolicy/gpu-nodes", "kept": kept, "try": None}
    values["configuration"] |= {} if kept else {"try": {"left_s": 61.0}}
    line = list(front_of(values))[2].plain

    assert line.startswith("Policy: NodePolicy gpu-nodes, hash 0123456789ab, loaded 2 h 1 min ago")
    assert ("BEING TRIED: the former configuration comes back in 1 min 1 s" in line) is not kept
    assert "KEPT" not in line


@pytest.mark.parametrize(("problems", "end"), [([], ""), (["no API server"], "; see the notices")])
def test_the_agent(problems: list[str], end: str) -> None:
    """Whether one is there; what it cannot do is among the notices."""
    agent = {"version": "0.2.0", "since": timestamp(time.time() - 61), "problems": problems}
    lines = [line.plain for line in front_of({**answer(1.0), "agent": agent})]

    assert lines[3] == f"Agent: version 0.2.0, has talked to this daemon for 1 min 1 s{end}"
    assert not any("Agent" in line.plain for line in front_of({**answer(1.0), "agent": None}))
