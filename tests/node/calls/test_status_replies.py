"""Replies about containers whose quota was lifted: said as asked, and nothing else of them changes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import METHODS, paths
from criproxy.cri.stamp import ANNOTATION, Stamp
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota
from criproxy.model.workload import Container
from criproxy.node.calls.status_replies import Replies
from criproxy.node.context import Context
from criproxy.node.devices.incidents import Incidents
from criproxy.node.devices.plugin import DevicePlugin
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from criproxy.wire.calls import Call
from tests.cri.test_rewrite import field, resources, texts
from tests.node.record.test_state import state_on
from tests.node.world import RecordingLog

OURS, FOREIGN, UNLIMITED, STAMPED, STRANGE = "ours", "foreign", "unlimited", "stamped", "strange"
ASKED = {OURS: 150_000, STAMPED: 70_000}
"""What is told of a container whose quota is lifted in the runtime; the others' stays as it is."""
NODE = Node(
    machine(),
    containers={
        OURS: Container(key=OURS, pod="s", name="c", reservation="r", cpu_quota=CfsQuota(150_000)),
        FOREIGN: Container(key=FOREIGN, pod="s", name="c", cpu_quota=CfsQuota(150_000)),
        UNLIMITED: Container(key=UNLIMITED, pod="s", name="c", reservation="r"),
    },
)
STAMPS = {STAMPED: Stamp("r", "Guaranteed", cpu_quota_us=70_000, cpu_period_us=100_000)}
STATUSES: Mapping[str, Callable[[Any], Any]] = {
    "ContainerStatus": lambda reply: [reply.status],
    "PodSandboxStatus": lambda reply: reply.containers_statuses,
    "GetContainerEvents": lambda reply: reply.containers_statuses,
}


@pytest.fixture(scope="module")
def replies(tmp_path_factory: pytest.TempPathFactory) -> Replies:
    """The handlers, for `NODE`."""
    store = Store(Path(tmp_path_factory.mktemp("state")))
    state = state_on(store, NODE, NonePolicy(Options()), RecordingLog())
    return Replies(
        context := Mock(Context, state=state), Incidents(context, lambda *_: (), DevicePlugin()), lambda: None
    )


@st.composite
def statuses(draw: st.DrawFn) -> tuple[str, bytes]:
    """The id of a container and its status, with fields of a newer CRI at three depths."""
    key = draw(st.sampled_from([OURS, FOREIGN, UNLIMITED, STAMPED, STRANGE]))
    linux = draw(resources)
    linux.cpu_quota = draw(st.sampled_from([-1, -1, 0, 100_000]))
    status = api.ContainerStatus(
        id=key, reason=draw(texts), annotations=draw(st.dictionaries(texts, texts, max_size=2))
    )
    if key in STAMPS:
        status.annotations[ANNOTATION] = STAMPS[key].to_text()
    newer = [field(900 + depth, draw(st.binary(max_size=20))) for depth in range(3)]
    inner = api.ContainerResources().SerializeToString() + field(1, linux.SerializeToString() + newer[0]) + newer[1]
    has = draw(st.booleans())
    number = api.ContainerStatus.DESCRIPTOR.fields_by_name["resources"].number
    return key, status.SerializeToString() + (field(number, inner) if has else b"") + newer[2]


def reply_of(name: str, found: list[bytes], newer: bytes) -> bytes:
    """The reply of a method with these statuses; ContainerStatus has one."""
    kind = METHODS[name].reply.DESCRIPTOR
    number = kind.fields_by_name["status" if name == "ContainerStatus" else "containers_statuses"].number
    some = found[:1] if name == "ContainerStatus" else found
    return b"".join(field(number, each) for each in some) + field(999, newer)


@given(st.sampled_from(sorted(STATUSES)), st.lists(statuses(), min_size=1, max_size=4), st.binary(max_size=20))
def test_only_a_lifted_quota_is_told_otherwise(
    replies: Replies, name: str, found: list[tuple[str, bytes]], newer: bytes
) -> None:
    """Every other field stays, those of a newer CRI too; where nothing is lifted, not a byte changes."""
    message = reply_of(name, [status for _, status in found], newer)
    edited = edit(replies, name, message)
    before, now = parsed(name, message), parsed(name, message if edited is None else edited)

    touched = 0
    for old, new in zip(STATUSES[name](before), STATUSES[name](now), strict=True):
        lifted = old.resources.linux.cpu_quota == -1 and old.id in ASKED
        if lifted:
            assert new.resources.linux.cpu_quota == ASKED[old.id]
            new.resources.linux.cpu_quota = -1
        touched += lifted
    assert now.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
    assert (edited is None) == (not touched)
    assert field(999, newer) in (edited or message)


def edit(replies: Replies, name: str, message: bytes) -> bytes | None:
    """What the rule of a method makes of a reply; the same in both packages of CRI."""
    rules = [replies.table()[path] for path in paths(name)]
    answers = {rule.edit(Call("", 1, 1, "identity"), message) for rule in rules if rule.edit}
    assert len(answers) == 1
    return answers.pop()


def parsed(name: str, message: bytes) -> Message:
    """The reply of the method *name*."""
    return METHODS[name].reply.FromString(message)


def test_every_reply_with_resources_has_a_rule(replies: Replies) -> None:
    """No method of CRI tells a container's resources past us."""
    telling = {name for name, method in METHODS.items() if _tells(method.reply.DESCRIPTOR, set())}

    assert telling == set(STATUSES)
    assert replies.table().keys() == {path for name in telling for path in paths(name)}


def _tells(kind: Any, seen: set[str]) -> bool:  # noqa: ANN401 (a descriptor)
    if kind.full_name == api.LinuxContainerResources.DESCRIPTOR.full_name:
        return True
    seen.add(kind.full_name)
    inner = [each.message_type for each in kind.fields if each.message_type and each.message_type.full_name not in seen]
    return any(_tells(each, seen) for each in inner)
