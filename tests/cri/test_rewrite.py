"""Only our fields change in a message that we send on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite
from criproxy.cri.stamp import ANNOTATION, Stamp, read_stamp
from criproxy.model.attributes import granted
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import CpuQuota, Grant
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container

CONTAINER = Container(key="c", pod="s", name="c", cpu_quota=CfsQuota(200_000, 50_000))
STAMP = Stamp("r-1", "Burstable", cpu_milli=250)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
resources = st.builds(
    api.LinuxContainerResources,
    cpu_period=st.integers(0, 1 << 40),
    cpu_quota=st.integers(-1, 1 << 40),
    cpu_shares=st.integers(0, 262_144),
    memory_limit_in_bytes=st.integers(0, 1 << 50),
    oom_score_adj=st.integers(-1000, 1000),
    cpuset_cpus=st.sampled_from(["", "0-3"]),
    cpuset_mems=st.sampled_from(["", "0"]),
    unified=st.dictionaries(texts, texts, max_size=2),
)
LIFTED = Grant(frozenset({1}), frozenset(), quota=CpuQuota.LIFTED)
configs = st.builds(
    api.ContainerConfig,
    metadata=st.builds(api.ContainerMetadata, name=texts, attempt=st.integers(0, 9)),
    annotations=st.dictionaries(texts, texts, max_size=3),
    labels=st.dictionaries(texts, texts, max_size=3),
    linux=st.none() | st.builds(api.LinuxContainerConfig, resources=st.none() | resources),
)


def grant(cpus: str, mems: str = "") -> Grant:
    """A grant of these sets."""
    return Grant(parse_cpuset(cpus), parse_cpuset(mems))


def field(number: int, payload: bytes) -> bytes:
    """One length-delimited field, as protobuf puts it on the wire."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    """A base-128 varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def without_ours(message: api.CreateContainerRequest) -> bytes:
    """The message without the fields that criproxy may write, in one canonical form."""
    rest = api.CreateContainerRequest()
    rest.CopyFrom(message)
    rest.config.annotations.pop(ANNOTATION, None)
    rest.config.linux.resources.SetInParent()
    rest.config.linux.resources.ClearField("cpuset_cpus")
    rest.config.linux.resources.ClearField("cpuset_mems")
    return rest.SerializeToString(deterministic=True)


@given(configs, st.binary(max_size=20), st.binary(max_size=20))
def test_place_changes_nothing_else(config: api.ContainerConfig, inner: bytes, outer: bytes) -> None:
    """Every other field stays, those of a newer CRI too, at the top and nested."""
    message = field(2, config.SerializeToString() + field(900, inner)) + field(901, outer)
    before = api.CreateContainerRequest.FromString(message)

    placed = api.CreateContainerRequest.FromString(
        rewrite.place(api.CreateContainerRequest.FromString(message), grant("1-2", "0"), CONTAINER, STAMP)
    )

    assert placed.config.linux.resources.cpuset_cpus == "1-2"
    assert (placed.config.linux.resources.cpuset_mems, read_stamp(placed.config.annotations)) == ("0", STAMP)
    assert without_ours(before) == without_ours(placed)
    assert field(900, inner) in placed.config.SerializeToString()
    assert field(901, outer) in placed.SerializeToString()


def test_an_empty_grant_leaves_the_field_of_the_kubelet() -> None:
    """Memory nodes that we do not decide on stay what the kubelet's memory manager chose."""
    request = api.CreateContainerRequest()
    request.config.linux.resources.cpuset_mems = "1"

    placed = api.CreateContainerRequest.FromString(rewrite.place(request, grant("3"), CONTAINER, STAMP))

    assert placed.config.linux.resources.cpuset_cpus == "3"
    assert placed.config.linux.resources.cpuset_mems == "1"


@given(resources, st.binary(max_size=20))
def test_repin_keeps_the_new_size(asked: api.LinuxContainerResources, unknown: bytes) -> None:
    """A resize of the kubelet goes on with its numbers and our cpuset."""
    message = field(1, b"c-1") + field(2, asked.SerializeToString() + field(900, unknown))
    before = api.UpdateContainerResourcesRequest.FromString(message)

    sent = api.UpdateContainerResourcesRequest.FromString(message)
    rewrite.update(sent.linux, granted(grant("5", "1")), grant("5", "1"), CONTAINER)

    assert (sent.linux.cpuset_cpus, sent.linux.cpuset_mems) == ("5", "1")
    before.linux.cpuset_cpus, before.linux.cpuset_mems = "5", "1"
    assert before.SerializeToString(deterministic=True) == sent.SerializeToString(deterministic=True)


@given(configs)
def test_lifting_changes_the_quota_only(config: api.ContainerConfig) -> None:
    """The period stays: it is that of the quota which comes back."""
    request = api.CreateContainerRequest(config=config)
    plain = api.CreateContainerRequest.FromString(rewrite.place(request, grant("1"), CONTAINER, STAMP))

    lifted = api.CreateContainerRequest.FromString(rewrite.place(request, LIFTED, CONTAINER, STAMP))

    assert lifted.config.linux.resources.cpu_quota == -1
    lifted.config.linux.resources.cpu_quota = plain.config.linux.resources.cpu_quota
    assert lifted == plain


@given(resources)
def test_a_resize_carries_the_quota_that_shall_be_in_force(asked: api.LinuxContainerResources) -> None:
    """Whatever the kubelet sent, or nothing."""
    lifted = replace(grant("5", "1"), quota=CpuQuota.LIFTED)

    rewrite.update(asked, granted(lifted), lifted, CONTAINER)

    assert (asked.cpu_quota, asked.cpu_period) == (-1, 50_000)


@pytest.mark.parametrize(
    ("quota", "had", "expected"),
    [
        pytest.param(CpuQuota.LEFT, None, {}, id="left-alone"),
        pytest.param(CpuQuota.RESTORED, None, {"cpu_period": 50_000, "cpu_quota": 200_000}, id="not-known"),
        pytest.param(CpuQuota.RESTORED, True, {"cpu_period": 50_000, "cpu_quota": 200_000}, id="given-back"),
        pytest.param(CpuQuota.RESTORED, False, {}, id="has-it"),
        pytest.param(CpuQuota.LIFTED, False, {"cpu_period": 50_000, "cpu_quota": -1}, id="lifted"),
    ],
)
def test_our_own_update_names_what_changes_only(quota: CpuQuota, had: bool | None, expected: dict[str, int]) -> None:
    """Containerd keeps what is empty, and would append hugepage limits at every update."""
    resources, place = api.LinuxContainerResources(), replace(grant("0,2", "0-1"), quota=quota)
    before = None if had is None else replace(granted(place), lifted=had)

    rewrite.update(resources, granted(place), place, CONTAINER, before)

    cpuset = {"cpuset_cpus": "0,2", "cpuset_mems": "0-1"}
    assert {field.name: value for field, value in resources.ListFields()} == {**expected, **cpuset}
