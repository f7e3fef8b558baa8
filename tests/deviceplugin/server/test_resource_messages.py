"""From our values to the kubelet's messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server.resource import Resource, allocate_response, device_list, with_health
from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.device_request import DeviceNode, Mount, Response
from tests.deviceplugin.node import Named

DEVICES = st.lists(
    st.builds(Offered, id=st.text(max_size=200), numa_node=st.none() | st.integers(0, 64), healthy=st.booleans()),
    max_size=30,
)


@given(DEVICES, st.integers(0, 3000))
def test_a_list_has_room(devices: list[Offered], largest_bytes: int) -> None:
    """It is never larger than it may be, and leaves out the last devices only where it would be."""
    made = device_list(devices, largest_bytes)
    message = api.ListAndWatchResponse.FromString(made.data)

    assert len(made.data) <= largest_bytes
    assert [each.ID for each in message.devices] == [each.id for each in devices[: len(devices) - made.left_out]]
    assert made.left_out == 0 or len(device_list(devices).data) > largest_bytes - 5 * len(devices)


def test_health_and_numa_nodes() -> None:
    """A device next to no node says nothing of nodes."""
    made = device_list([Offered(id="a", numa_node=1), Offered(id="b", healthy=False)])
    first, second = api.ListAndWatchResponse.FromString(made.data).devices

    assert (first.health, [node.ID for node in first.topology.nodes]) == ("Healthy", [1])
    assert (second.health, second.HasField("topology")) == ("Unhealthy", False)


def test_the_answer_for_a_container() -> None:
    """With everything that a container can get."""
    response = Response(
        envs={"A": "1"},
        mounts=(Mount("/in", "/on", read_only=True),),
        devices=(DeviceNode("/dev/c", "/dev/h", "rw"),),
        annotations={"k": "v"},
        cdi_devices=("vendor/class=x",),
    )

    assert allocate_response(response) == api.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[api.Mount(container_path="/in", host_path="/on", read_only=True)],
        devices=[api.DeviceSpec(container_path="/dev/c", host_path="/dev/h", permissions="rw")],
        annotations={"k": "v"},
        cdi_devices=[api.CDIDevice(name="vendor/class=x")],
    )
    assert allocate_response(Response()) == api.ContainerAllocateResponse()


@pytest.mark.parametrize(
    ("bad", "healthy"),
    [
        pytest.param([], [True, True, True], id="none"),
        pytest.param(["a::1"], [True, False, True], id="a replica"),
        pytest.param(["a"], [False, False, True], id="a card, with all replicas"),
    ],
)
def test_offered_ids(bad: list[str], healthy: list[bool]) -> None:
    """A card is as healthy as its replicas are."""
    offered = {
        "a::0": Offered(id="a::0", index="0", numa_node=1),
        "a::1": Offered(id="a::1", index="0", numa_node=1),
        "b": Offered(id="b", index="1"),
    }

    found = with_health(offered, bad)

    assert [each.healthy for each in found.values()] == healthy


def test_held_ids_come_first() -> None:
    """They are unhealthy, and the last that a list without room leaves out; what is offered again is not held."""
    resource = Resource(name="r", devices={"a": Offered(id="a")}, allocate=Named())

    found = resource.with_held([Offered(id="gone"), Offered(id="a")]).devices

    assert list(found.values()) == [Offered(id="gone", healthy=False), Offered(id="a")]
