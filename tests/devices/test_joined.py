"""What our own device plugin has allocated, from its annotation to the cards: the first evidence of all."""

from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from criproxy.devices.card_locality import locate_cards
from criproxy.devices.classes.builtin import ASCEND, BUILTIN, INTEL_GPU, NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import card_of, replica_id, unique
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.evidence.evidence import Allocation, Given, Known, Share, weigh
from criproxy.simulate.hosts import machine
from tests.devices.fixture import ALI, NOTHING, STOCKS, asked, given

OURS, CLASSES = "devices.criproxy.io/", (*BUILTIN.values(), ALI)
INTEL = {**STOCKS, "intel-gpu": Stock((Card(0, ("/dev/dri/card0",), pci="0000:4d:00.0", numa_node=1),))}


def annotated(**resources: str) -> dict[str, str]:
    """Annotations of Allocate: resources with ``__`` for ``/`` and ``_`` for ``.``, and ids with commas."""
    named = given(**resources).resources
    response = Response()
    for resource, ids in named.items():
        response = joined(response, resource, ids)
    return dict(response.annotations)


def cards(annotations: dict[str, str], *known: Known) -> dict[str, tuple[str, ...]]:
    """The cards by class, as far as there are any."""
    evidence = weigh(CLASSES, asked(annotations=annotations), known, INTEL)
    return {name: each.ids for name, each in evidence.items() if each.given is Given.CARDS}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param(annotated(nvidia_com__gpu="GPU-a::3"), {"nvidia": ("GPU-a",)}, id="a-replica"),
        pytest.param(
            annotated(nvidia_com__gpu="GPU-b::1,GPU-a::0,GPU-b::0"), {"nvidia": ("GPU-b", "GPU-a")}, id="once"
        ),
        pytest.param(annotated(nvidia_com__gpu_shared="GPU-a::0"), {"nvidia": ("GPU-a",)}, id="renamed-by-default"),
        pytest.param(annotated(aliyun_com__npu_shared="0::7"), {"ali-npu": ("0",)}, id="of-a-class-with-an-exact-name"),
        pytest.param({"devices.criproxy.io/nvidia.com_mig-1g.5gb": "MIG-x::1"}, {"nvidia": ("MIG-x",)}, id="mig"),
        pytest.param({"devices.criproxy.io/example.com_fast": "GPU-b::0"}, {"nvidia": ("GPU-b",)}, id="another-domain"),
        pytest.param({"devices.criproxy.io/example.com_fast_gpu": "MIG-x"}, {"nvidia": ("MIG-x",)}, id="and-mig"),
        pytest.param({f"{OURS}example.com_fast": "0000:4d:00.0"}, {"intel-gpu": ("0000:4d:00.0",)}, id="pci"),
        pytest.param({"devices.criproxy.io/example.com_fast": "1"}, {}, id="a-number-is-any-cards"),
        pytest.param({"devices.criproxy.io/example.com_fast": "GPU-b,FOO-x"}, {}, id="one-of-which-is-nowhere"),
        pytest.param(annotated(gpu_intel_com__i915="card0::1"), {"intel-gpu": ("card0",)}, id="another-separator"),
        pytest.param(annotated(gpu_intel_com__i915="a-card::1"), {"intel-gpu": ("a-card",)}, id="which-the-card-has"),
        pytest.param(
            annotated(nvidia_com__gpu="GPU-a", nvidia_com__gpu_shared="GPU-b::2", aliyun_com__npu="1"),
            {"nvidia": ("GPU-a", "GPU-b"), "ali-npu": ("1",)},
            id="several-resources",
        ),
        pytest.param({"devices.criproxy.io/nvidia.com_gpu": " , "}, {}, id="empty"),
        pytest.param({"devices.criproxy.io/profile": "GPU-a", "devices.criproxy.io/_": "GPU-b"}, {}, id="no-resource"),
        pytest.param({"devices.criproxy.io.example/nvidia.com_gpu": "GPU-a"}, {}, id="another-prefix"),
    ],
)
def test_annotation_means_cards(annotations: dict[str, str], expected: dict[str, tuple[str, ...]]) -> None:
    """An annotation of Allocate means cards of the class of its resource, each of them once."""
    assert cards(annotations, NOTHING) == expected


def test_annotation_outweighs_podresources() -> None:
    """What podresources says of a resource that the annotation names does not count."""
    assert cards(annotated(nvidia_com__gpu="GPU-b::1"), given(nvidia_com__gpu="GPU-a")) == {"nvidia": ("GPU-b",)}


def test_resources_of_another_plugin_stay() -> None:
    """A card that another plugin has allocated beside ours is the container's, too, of whichever class it is."""
    known = given(nvidia_com__gpu="GPU-a", huawei_com__Ascend910="Ascend910-1", nvidia_com__gpu_shared="GPU-b::1")

    found = cards(annotated(nvidia_com__gpu_shared="GPU-b::1"), known)
    assert found == {"nvidia": ("GPU-b", "GPU-a"), "ascend": ("Ascend910-1",)}


def test_shares_name_resource_ids_and_source() -> None:
    """The evidence says how the kubelet names what was allocated, and which source says that."""
    known = given(nvidia_com__gpu="GPU-a")
    annotations = annotated(nvidia_com__gpu_shared="GPU-b::1,GPU-b::2")
    evidence = weigh((NVIDIA,), asked(annotations=annotations), [known], STOCKS)

    assert evidence["nvidia"] == Allocation(Given.CARDS, ("GPU-b", "GPU-a"), "annotation")
    assert evidence["nvidia"].shares == (
        Share("nvidia.com/gpu.shared", ("GPU-b::1", "GPU-b::2"), "annotation"),
        Share("nvidia.com/gpu", ("GPU-a",), "podresources"),
    )


@pytest.mark.parametrize(
    ("kind", "id", "card"),
    [
        pytest.param(INTEL_GPU, "card0-1", "card0", id="a-share-of-its-own-plugin"),
        pytest.param(INTEL_GPU, "card0::12", "card0", id="a-replica-of-ours"),
        pytest.param(INTEL_GPU, "a::b-1", "a::b", id="no-number"),
        pytest.param(NVIDIA, "GPU-a-b::x", "GPU-a-b", id="the-same-separator"),
        pytest.param(replace(ASCEND, replica_separator=""), "Ascend910-1::0", "Ascend910-1", id="none"),
        pytest.param(replace(ASCEND, replica_separator=""), "Ascend910-1", "Ascend910-1", id="none-and-whole"),
    ],
)
def test_replicas_of_every_plugin(kind: DeviceClass, id: str, card: str) -> None:
    """An id of podresources is a share of its own plugin's, or a replica of ours, whatever separator the class has."""
    assert kind.physical((id,)) == (card,)


def test_numa_nodes_that_the_plugin_reports() -> None:
    """A part of a card is next to what our plugin told the kubelet of its replica, whatever separator the class has."""
    kind = replace(INTEL_GPU, replica_separator="-")
    known = Known("checkpoint", {"gpu.intel.com/i915": ("part-1::0",)}, near={"part-1::0": frozenset({1})})
    create = asked(annotations=annotated(gpu_intel_com__i915="part-1::0"))
    evidence = weigh((kind,), create, [known], {})
    (where,) = locate_cards((kind,), create, evidence, [known], {}, machine(nodes=2, cores=2, threads=1))

    assert (where.id, where.nodes) == ("part-1", frozenset({1}))


replicas = st.builds(replica_id, st.sampled_from("abc"), st.integers(0, 50))
ids = st.lists(st.text("ab-:0", min_size=1, max_size=6) | replicas, min_size=1, max_size=8, unique=True)


@examples(ids)
def test_annotations_are_read_as_they_are_written(allocated: list[str]) -> None:
    """Whatever ids our plugin allocates, the join has their cards in this order, each once."""
    annotations = dict(joined(Response(), "vendor.com/card", allocated).annotations)
    kind = DeviceClass(name="own", resources=("vendor.com/card",), replica_separator="-")
    found = weigh((kind,), asked(annotations=annotations), [NOTHING], {})["own"]

    assert found.ids == unique(filter(None, map(card_of, allocated)))
