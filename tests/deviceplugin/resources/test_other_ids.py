"""Cards that containers have under other ids than those that are offered."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

import pytest

from criproxy.deviceplugin.resources.other_ids import classes_of, under_other_ids, without_cards
from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.classes.offers import Offered
from criproxy.devices.classes.vgpu_profiles import Vgpu
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.node import GPU, Named, Node, changed, offer, started
from tests.deviceplugin.program import NPU, Program, policy

SHARED = f"{GPU}.shared"
WEB, BATCH = Pod("uid-1", "web"), Pod("uid-2", "batch")


def resource(name: str, *ids: str, kind: str = "npu") -> Resource:
    """Return a resource of a class."""
    return Resource(name=name, kind=kind, devices={each: Offered(id=each) for each in ids}, allocate=Named())


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param({NPU: ["npu0::0"]}, {}, id="offered"),
        pytest.param({NPU: ["npu0"]}, {("npu", "npu0"): f"npu0 of {NPU}"}, id="whole-and-now-shared"),
        pytest.param({NPU: ["npu1::1"]}, {("npu", "npu1"): f"npu1::1 of {NPU}"}, id="shared-and-now-whole"),
        pytest.param({NPU: ["npu0::7"]}, {("npu", "npu0"): f"npu0::7 of {NPU}"}, id="more-replicas-before"),
        pytest.param({f"{NPU}.x": ["npu0::0"]}, {("npu", "npu0"): f"npu0::0 of {NPU}.x"}, id="renamed"),
        pytest.param({NPU: ["npu9"]}, {}, id="a-card-that-is-gone"),
        pytest.param(
            {"criproxy.io/half": ["npu1/half/0"]},
            {("npu", "npu1"): "npu1/half/0 of criproxy.io/half"},
            id="a-vgpu-of-a-profile-that-is-gone",
        ),
        pytest.param({"example.com/npu": ["npu0"]}, {}, id="another-domain"),
        pytest.param({"example.com/b": ["npu0"]}, {("b", "npu0"): "npu0 of example.com/b"}, id="another-class"),
    ],
)
def test_which_cards_are_in_use_under_other_ids(held: Mapping[str, list[str]], expected: Mapping[object, str]) -> None:
    """Those of which a container has an id that is not offered, by the class of its resource."""
    offers = {NPU: resource(NPU, "npu0::0", "npu0::1", "npu1")}
    if "example.com/b" in held:
        offers["example.com/b.shared"] = resource("example.com/b.shared", "npu0::0", kind="b")

    assert under_other_ids(offers, lambda name: classes_of(name, offers, {}), [held]) == expected


@pytest.mark.parametrize(
    ("offered", "held", "expected"),
    [
        pytest.param(
            Offered(id="MIG-1/small/0", related=("GPU-a",)),
            {"nvidia.com/gpu": ["GPU-a"]},
            {("nvidia", "MIG-1"): "GPU-a of nvidia.com/gpu"},
            id="the-whole-card-of-a-part",
        ),
        pytest.param(
            Offered(id="GPU-a", related=("MIG-1", "MIG-2")),
            {"criproxy.io/small": ["MIG-2/small/0"]},
            {("nvidia", "GPU-a"): "MIG-2/small/0 of criproxy.io/small"},
            id="a-part-of-a-whole-card",
        ),
        pytest.param(
            Offered(id="MIG-1/small/0", related=("GPU-a",)), {"nvidia.com/mig-1g.5gb": ["MIG-2"]}, {}, id="another-part"
        ),
    ],
)
def test_a_card_and_its_parts(offered: Offered, held: Mapping[str, list[str]], expected: Mapping[object, str]) -> None:
    """A part is not allocated while a container has the whole card, and the card not while one has a part of it."""
    name = "criproxy.io/small" if "/" in offered.id else "nvidia.com/gpu"
    offers = {name: Resource(name=name, kind="nvidia", devices={offered.id: offered}, allocate=Named())}

    assert under_other_ids(offers, lambda _: {"nvidia"}, [held]) == expected


def test_the_class_of_a_resource_that_is_offered_no_more() -> None:
    """It is known as long as the resource is; after that, all that have resources of the same domain may be it."""
    offers = {NPU: resource(NPU, "npu0"), "example.com/b": resource("example.com/b", kind="b")}
    former = {"other.com/npu": resource("other.com/npu")}

    assert classes_of("example.com/b", offers, former) == {"b"}
    assert classes_of("other.com/npu", offers, former) == {"npu"}
    assert classes_of("aliyun.com/former", offers, former) == {"npu"}
    assert classes_of("unknown.com/npu", offers, former) == set()
    assert classes_of("criproxy.io/gone", offers, former) == {"npu", "b"}


def test_the_class_of_a_card_that_is_only_cut() -> None:
    """After a start, a container may have a whole card of a class of which only vGPUs are offered by now."""
    profile = "criproxy.io/half"
    offers = {profile: replace(resource(profile, "npu0/half/0"), domains=("aliyun.com",))}

    assert classes_of(NPU, offers, {}) == {"npu"}
    assert classes_of("example.com/npu", offers, {}) == set()


def test_ids_of_cards_that_are_taken() -> None:
    """They are unhealthy, but for those that containers have themselves, and those of cards of other classes."""
    offered = resource(NPU, "npu0::0", "npu0::1", "npu1")

    marked = without_cards(offered, [("npu", "npu0"), ("b", "npu1")], {"npu0::1"})

    assert [each.id for each in marked.devices.values() if each.healthy] == ["npu0::1", "npu1"]


async def test_a_card_that_is_shared_while_a_container_has_it_whole(node: Node) -> None:
    """Its replicas are unhealthy until the container has ended; those of other cards are offered. It is said once."""
    await started(node, "a", "b")
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(offer("a::0", "a::1", "b::0", "b::1"))
    await node.kubelet.until_capacity(GPU, 5, healthy=2)
    assert node.kubelet.healthy(GPU) == {"b::0", "b::1"}
    await node.log.until(lambda: node.said("a container has it under an ID that is not offered") == 1)
    node.plugins.publish(offer("a::0", "a::1", "b::0", "b::1", bad=["b::0"]))
    await node.kubelet.until_capacity(GPU, 5, healthy=1)
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 4, healthy=3)

    await node.log.until(lambda: node.said("a card can be allocated again") == 1)
    assert node.said("a container has it under an ID that is not offered") == 1
    assert node.plugins.elsewhere == {}


async def test_the_kubelet_does_not_say_what_is_in_use(node: Node) -> None:
    """Cards whose ids went are offered when it has not said it; what it said before counts on."""
    await started(node, "a", "b")
    await node.kubelet.podresources.stop()  # before the pod: the plugin may ask at any moment
    await node.kubelet.admit(WEB, {GPU: 1})
    node.plugins.publish(offer("a::0", "b::0"))
    await node.kubelet.until_capacity(GPU, 4, healthy=2)

    await node.kubelet.podresources.start()
    await node.kubelet.until_capacity(GPU, 3, healthy=1)
    await node.kubelet.podresources.stop()
    node.plugins.publish(offer("a::0", "b::0", "c"))
    await node.kubelet.until(lambda: "c" in node.kubelet.healthy(GPU))

    assert node.kubelet.healthy(GPU) == {"b::0", "c"}


def parts(memory_mib: int, *ids: str) -> Mapping[str, Resource]:
    """VGPUs with this quota."""
    (whole,) = offer(*ids).values()
    vgpu = Vgpu(id="", card="", profile="g", memory_mib=memory_mib, cores_percent=0)
    made = {each.id: replace(each, vgpu=vgpu) for each in whole.devices.values()}
    return changed({GPU: whole}, devices=made)


async def test_a_quota_that_changes_while_a_container_has_a_vgpu(node: Node) -> None:
    """No vGPU of its card is allocated until the container has ended: it has its former quota. This is said once."""
    await node.kubelet.start()
    node.start_plugins()
    node.plugins.publish(parts(12288, "a/g/0", "b/g/0"))
    await node.kubelet.until_capacity(GPU, 2)
    await node.kubelet.admit(WEB, {GPU: 1})

    node.plugins.publish(parts(8192, "a/g/0", "a/g/1", "b/g/0", "b/g/1"))
    await node.kubelet.until(lambda: node.kubelet.healthy(GPU) == {"b/g/0", "b/g/1"})
    node.plugins.publish(parts(8192, "a/g/0", "a/g/1", "b/g/0", "b/g/1", "c/g/0"))
    await node.kubelet.until(lambda: node.kubelet.healthy(GPU) == {"b/g/0", "b/g/1", "c/g/0"})
    assert node.plugins.elsewhere == {("", "a"): f"a/g/0 of {GPU}, with its former quota"}
    node.kubelet.remove(WEB)
    await node.kubelet.until_capacity(GPU, 5)

    await node.log.until(lambda: node.said("a card can be allocated again") == 1)
    assert node.said("with its former quota") == 1


async def test_a_changed_file_gives_no_card_twice(folder: Path) -> None:
    """Whole, shared and renamed while pods have cards, also over a restart; the daemon is told why."""
    shared = "{advertise: [ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 2, rename: aliyun.com/npu.shared}]}"
    async with Program(folder) as program:
        await program.begin("{advertise: [ali-npu]}", "/dev/npu0")
        await program.kubelet.until_capacity(NPU, 1)
        await program.kubelet.admit(one := Pod("one"), {NPU: 1})

        program.policy.write_text(policy(shared))
        await program.kubelet.until_capacity(f"{NPU}.shared", 2, healthy=0)
        await program.until_said("a container has it under an ID that is not offered")
        daemon = await program.with_daemon()
        report = await daemon.until_report(lambda report: any("reason" in each for each in report.get("cards", ())))
        assert report["cards"][0]["reason"] == f"a container has it as npu0 of {NPU}, which is not offered"
        assert daemon.said("device-incident") == []
        program.kubelet.remove(one)
        await program.kubelet.until_capacity(f"{NPU}.shared", 2)

        await program.kubelet.admit(two := Pod("two"), {f"{NPU}.shared": 1})
        program.signal(SIGTERM)
        await program.ended()
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.told.clear()
        await program.ready()
        await program.kubelet.until(lambda: program.kubelet.registered[-1] == NPU)
        await program.kubelet.until_capacity(NPU, 1, healthy=0)
        program.kubelet.remove(two)
        await program.kubelet.until_capacity(NPU, 1)
