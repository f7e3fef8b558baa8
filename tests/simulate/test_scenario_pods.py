"""Pods as scenario files describe them, and what the proxy would see of their sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.model.cpuset import format_cpuset
from criproxy.model.planned import Amounts, PodPlan, seen_sizes
from criproxy.model.resources import Interval
from criproxy.model.workload import Container, QosClass
from criproxy.simulate.scenario.steps import Create
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from tests.simulate.scenes import mistakes, vector

MIB = 1 << 20
CAPACITY = 8 << 30


def pod(text: str) -> PodPlan:
    """The pod of a `create`."""
    action = vector(f"- create: {{{text}}}").steps[0].action
    assert isinstance(action, Create)
    return action.pod


def test_names_and_sizes_of_containers() -> None:
    """Containers are numbered, init containers first; Guaranteed ones have 100 MB unless the file says more."""
    made = pod("pod: p, qos: guaranteed, cpu: 1500m, count: 2, init: 1")

    assert [(c.name, c.init) for c in made.containers] == [("pc0i", True), ("pc0", False), ("pc1", False)]
    assert {c.amounts for c in made.containers} == {Amounts(1500, 1500, 100_000_000, 100_000_000)}
    assert (made.namespace, made.qos) == ("default", QosClass.GUARANTEED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu_req: 250m, cpu_lim: none", Amounts(250, None, 100_000_000, 100_000_000)),
        ("cpu_req: '1', cpu_lim: 2, mem_req: 1Mi, mem_lim: 2Mi", Amounts(1000, 2000, MIB, 2 * MIB)),
        ("cpu_lim: 2", Amounts(2000, 2000, 100_000_000, 100_000_000)),
        ("cpu: 500m", Amounts(500, 500, 100_000_000, 100_000_000)),
        ("mem: none", Amounts(0, None, 0, None)),
    ],
)
def test_sizes_of_burstable_containers(text: str, expected: Amounts) -> None:
    """A request that is missing is the limit; a limit that is missing is none."""
    assert pod(f"pod: p, qos: burstable, {text}").containers[0].amounts == expected


def test_listed_containers() -> None:
    """They have names and sizes of their own, and the pod's where they say nothing."""
    made = pod("pod: p, qos: guaranteed, mem: 1Mi, cpu: 1, containers: [{name: a}, {name: b, cpu: 2}]")

    assert [(c.name, c.amounts.cpu_limit_milli) for c in made.containers] == [("a", 1000), ("b", 2000)]
    assert {c.amounts.memory_limit_bytes for c in made.containers} == {MIB}


def test_annotations_get_their_domain() -> None:
    """Scopes stay behind it; full names stay as they are, and values become texts, JSON where they have parts."""
    made = pod(
        "pod: p, ann: {cpu.preserve: true, memory-type/pod: dram, x/container.pc0: 1, y.criproxy.io/pod: z, "
        "affinity: {pc0: [pc1]}}"
    )

    assert made.annotations == {
        "cpu.preserve.criproxy.io": "true",
        "memory-type.criproxy.io/pod": "dram",
        "x.criproxy.io/container.pc0": "1",
        "y.criproxy.io/pod": "z",
        "affinity.criproxy.io": '{"pc0": ["pc1"]}',
    }


def test_hints_are_no_annotations() -> None:
    """They are what a device would say, for all containers or one."""
    made = pod('pod: p, count: 2, ann: {hint_numas: "2", hint_numas/container.pc1: 0-1}')

    assert [[format_cpuset(hint) for hint in c.hints] for c in made.containers] == [["2"], ["0-1"]]
    assert not made.annotations


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pod: p, qos: guaranteed", "needs cpu"),
        ("pod: p, qos: guaranteed, cpu_req: 1, cpu_lim: 2", "every request equal to its limit"),
        ("pod: p, cpu: 1", "a besteffort pod asks for nothing"),
        ("pod: p, qos: burstable, cpu: 1x", "must be an amount"),
        ("pod: p, count: 0", "must be a whole number from 1 on"),
        ("pod: p, count: 2, containers: [{name: a}]", "leave count out"),
        ("pod: p, ann: {hint_numas/container.x: 1}", "there is no container 'x' in p"),
        ("qos: burstable", "'pod' is missing"),
        ("pod: p, cpus: 1", "unknown key 'cpus'; did you mean 'cpu'?"),
    ],
)
def test_pods_that_cannot_be(text: str, said: str) -> None:
    """Each is a sentence with its line."""
    [wrong] = mistakes(f"- create: {{{text}}}")

    assert wrong.startswith("11: vectors[0].steps[0].create")
    assert said in wrong


@given(
    request=st.integers(0, 300_000),
    limit=st.none() | st.integers(1, 300_000),
    memory=st.integers(1, CAPACITY),
    memory_limit=st.none() | st.integers(1, CAPACITY),
)
def test_sizes_are_those_of_the_proxy(request: int, limit: int | None, memory: int, memory_limit: int | None) -> None:
    """Whatever a container asks for, a policy sees what it would see behind a kubelet."""
    spec = ContainerSpec("c", "image", (), request, limit or 0, memory, memory_limit or 0)
    amounts = Amounts(spec.cpu_milli, limit, spec.memory_bytes, memory_limit)
    plan = PodSpec("p", (spec,))
    qos = QosClass(plan.qos)
    message = api.CreateContainerRequest(
        config=container_config(plan, spec, CAPACITY), sandbox_config=sandbox_config(plan)
    )

    assert translate.container(message, "r", CAPACITY).sizes == seen_sizes(amounts, qos, CAPACITY)


def test_a_guaranteed_container_of_the_largest_size() -> None:
    """Shares end at 256 CPUs; the limit tells more."""
    sizes = seen_sizes(Amounts(300_000, 300_000, MIB, MIB), QosClass.GUARANTEED, CAPACITY)

    assert (sizes.cpu_milli, sizes.memory_request_bytes) == (300_000, Interval(MIB, MIB))
    assert Container(key="k", pod="s", name="n").resized(sizes).sizes == sizes


@pytest.mark.parametrize(
    ("text", "total_milli", "sizes_milli"),
    [
        pytest.param("cpu: 1500m, count: 2", 3000, [1500, 1500], id="the-sum"),
        pytest.param("cpu: 1, count: 2, init: 1", 2000, [1000, 1000, 1000], id="inits-end-before"),
        pytest.param("pod_cpu: 1, containers: [{name: a}, {name: b, cpu: 500m}]", 1000, [1000, 500], id="pod-level"),
    ],
)
def test_the_total_of_a_pod(text: str, total_milli: int, sizes_milli: list[int]) -> None:
    """It is what the kubelet says of the sandbox; with pod-level resources, containers without a size come with it."""
    made = pod(f"pod: p, qos: guaranteed, {text}")

    assert made.cpu_total_milli == total_milli
    assert [each.amounts.cpu_request_milli for each in made.containers] == sizes_milli
