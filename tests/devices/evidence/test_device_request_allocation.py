"""What a container is given with its cards, whatever their class."""

import pytest

from criproxy.devices.classes.builtin import AMD, ASCEND
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.device_request import Response, joined, of_class
from criproxy.devices.evidence.evidence import own_annotations
from tests.devices.fixture import ALI, STOCKS

ASCENDS = {
    "1": Offered(id="Ascend910-1::0", index="1", paths=("/dev/davinci1",)),
    "1b": Offered(id="Ascend910-1::1", index="1", paths=("/dev/davinci1",)),
    "3": Offered(id="Ascend910-3", index="3", paths=("/dev/davinci3",)),
}


def test_the_proxy_reads_the_annotation() -> None:
    """The proxy finds in the answer to Allocate which ids of which resource a container has."""
    response = joined(Response(annotations={"a": "b"}), "aliyun.com/npu", ["npu-0::1", "npu-1::0"])

    assert response.annotations == {"a": "b", "devices.criproxy.io/aliyun.com_npu": "npu-0::1,npu-1::0"}
    assert own_annotations(response.annotations).resources == {"aliyun.com/npu": ("npu-0::1", "npu-1::0")}


@pytest.mark.parametrize(
    ("kind", "chosen", "envs", "nodes"),
    [
        pytest.param(
            ASCEND,
            [ASCENDS["3"], ASCENDS["1"]],
            {"ASCEND_VISIBLE_DEVICES": "3,1"},
            "davinci_manager devmm_svm hisi_hdc davinci3 davinci1",
            id="a-variable-and-shared-nodes",
        ),
        pytest.param(
            ASCEND,
            [ASCENDS["1"], ASCENDS["1b"]],
            {"ASCEND_VISIBLE_DEVICES": "1"},
            "davinci_manager devmm_svm hisi_hdc davinci1",
            id="two-replicas-are-one-card",
        ),
        pytest.param(ALI, [Offered(id="npu-0", index="0", paths=("/dev/npu0",))], {}, "npu0", id="no-variable"),
        pytest.param(AMD, [Offered(id="x", index="1", paths=("/dev/dri/card1",))], {}, "kfd dri/card1", id="nodes"),
        pytest.param(ASCEND, [], {}, "", id="nothing"),
    ],
)
def test_a_class_of_ours(kind: DeviceClass, chosen: list[Offered], envs: dict[str, str], nodes: str) -> None:
    """A container gets the nodes of its cards and those that all cards need, and the class's variable if it has one."""
    response = of_class(kind, STOCKS[kind.name], chosen)

    assert response.envs == envs
    assert [each.container_path for each in response.devices] == [f"/dev/{name}" for name in nodes.split()]
    assert all(each.host_path == each.container_path and each.permissions == "rw" for each in response.devices)
