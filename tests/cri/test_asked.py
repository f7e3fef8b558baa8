"""How a message was read is told with the numbers that were sent."""

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.asked import asked, asked_anew
from criproxy.model.workload import Container

GIB = 1 << 30


def request(cgroup_parent: str = "", **resources: int | str) -> tuple[api.LinuxContainerResources, Container]:
    """The resources of a create, and the container that they make on a node with 16 GiB."""
    message = api.CreateContainerRequest(pod_sandbox_id="s")
    linux = api.LinuxContainerResources(**resources)  # type: ignore[arg-type]
    message.config.linux.resources.CopyFrom(linux)
    message.sandbox_config.linux.cgroup_parent = cgroup_parent
    return linux, translate.container(message, "r-1", 16 * GIB)


@pytest.mark.parametrize(
    ("cgroup_parent", "resources", "sentences"),
    [
        pytest.param(
            "/kubepods/pod1",
            {"cpu_shares": 2048, "cpu_quota": 200_000, "cpu_period": 100_000, "memory_limit_in_bytes": GIB},
            "CPU request 2, from cpu_shares 2048|CPU limit 2, from cpu_quota 200000 µs of 100000 µs|memory limit 1 GiB"
            "|class Guaranteed, from its pod's cgroup /kubepods/pod1",
            id="guaranteed",
        ),
        pytest.param(
            "/kubepods/burstable/pod1",
            {"cpu_shares": 102, "cpu_period": 100_000, "oom_score_adj": 875},
            "CPU request 100m, from cpu_shares 102|no CPU limit|no memory limit; memory request 2 GiB to 2.02 GiB, from"
            " oom_score_adj 875 on a node with 16 GiB|class Burstable, from its pod's cgroup /kubepods/burstable/pod1",
            id="burstable",
        ),
        pytest.param(
            "/kubepods/besteffort/pod1",
            {"cpu_shares": 2, "oom_score_adj": 1000, "cpu_quota": -1},
            "CPU request 0m to 2m, from cpu_shares 2 (the kubelet sends this for all of them)|no CPU limit "
            "(cpu_quota -1)|no memory limit|class BestEffort, from its pod's cgroup /kubepods/besteffort/pod1",
            id="best-effort",
        ),
        pytest.param(
            "",
            {"oom_score_adj": 500, "cpuset_cpus": "0-3"},
            "no CPU request (no cpu_shares)|no CPU limit|no memory limit; memory request 8 GiB to 8.02 GiB, from "
            "oom_score_adj 500 on a node with 16 GiB|class Burstable, from oom_score_adj 500|the kubelet sent CPUs "
            "0-3, which criproxy does not use",
            id="class-from-the-score-and-a-cpuset",
        ),
    ],
)
def test_a_create(cgroup_parent: str, resources: dict[str, int | str], sentences: str) -> None:
    """Each wish with the field that it was read from; the fields themselves, without the empty ones."""
    linux, container = request(cgroup_parent, **resources)
    told = asked(linux, container, cgroup_parent, 16 * GIB)

    assert told.sentences == tuple(sentences.split("|"))
    parent = {"cgroup_parent": cgroup_parent} if cgroup_parent else {}
    assert told.facts == {**resources, **parent, "node_memory_bytes": 16 * GIB}
    assert asked(*request()).sentences[-1] == "class BestEffort: the message names none"


def test_a_resize_tells_only_what_changes() -> None:
    """Fields that are 0 in an update say nothing."""
    linux, container = request("/kubepods/pod1", memory_limit_in_bytes=2 * GIB)

    assert asked_anew(linux, container).sentences == ("memory limit 2 GiB",)
    assert asked_anew(linux, container).facts == {"memory_limit_in_bytes": 2 * GIB}
