"""How many cards or vGPUs are free, and on which NUMA nodes."""

from typing import Any

import pytest

from criproxy.cli.queries.fit import render_cards
from criproxy.cli.render.free_cards import cards_of_container, free_cards, gpu_resource
from criproxy.errors import CriproxyError
from tests.cli.queries.test_devices import EIGHT, given, tell

GPU, SHARED, VGPU = "nvidia.com/gpu", "nvidia.com/gpu.shared", "criproxy.io/small"


def holder(resource: str, *ids: str) -> dict[str, Any]:
    """A container with ids of one card."""
    return {"ids_of_card": list(ids), "allocated": [{"resource": resource, "ids": list(ids), "count": len(ids)}]}


def card(node: int | None, *holders: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A card of `criproxy devices`."""
    return {"numa_node": node, "healthy": None, "replicas": {}, "containers": list(holders), **more}


def devices(*cards: dict[str, Any], advertised: Any = (), vgpus: Any = (), **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """An answer of `criproxy devices` with one class."""
    kind = {
        "name": "nvidia",
        "resources": [f"{GPU}*", "nvidia.com/card-*", "nvidia.com/mig-*"],
        "cards": list(cards),
        "advertised": advertised,
    }
    return {"guarded": True, "classes": [kind], "vgpus": vgpus, **more}


def offer(name: str, healthy: int, given: int) -> dict[str, Any]:
    """A resource of the device plugin."""
    return {"name": name, "healthy": healthy, "given": given}


WHOLE = devices(card(0, holder(GPU, "a")), card(0), card(1), card(1), card(None))
SHARES = {"replicas": {SHARED: 4}, "healthy": True}
REPLICAS = devices(
    card(0, holder(SHARED, "a::0"), holder(SHARED, "a::0", "a::1"), **SHARES),
    card(1, **SHARES),
    card(1, **{**SHARES, "healthy": False}),
    card(1, healthy=True, replicas={GPU: 0}),
    advertised=[offer(SHARED, 8, 2), offer(GPU, 1, 0)],
)
PROFILES = devices(
    card(0, holder(VGPU, "a-0"), healthy=True, replicas={VGPU: 2}),
    vgpus=[{"resource": VGPU, "class": "nvidia", "free": 1, "offered": True}],
)


@pytest.mark.parametrize(
    ("values", "resource", "wanted", "fits", "free", "by_node", "room"),
    [
        pytest.param(WHOLE, GPU, 2, True, 4, {0: 1, 1: 2, None: 1}, [1], id="whole-cards"),
        pytest.param(WHOLE, GPU, 5, False, 4, {0: 1, 1: 2, None: 1}, [], id="too-many"),
        pytest.param(REPLICAS, SHARED, 3, True, 6, {0: 2, 1: 4}, [1], id="replicas"),
        pytest.param(REPLICAS, GPU, 1, True, 1, {1: 1}, [1], id="whole-card-beside-shared-ones"),
        pytest.param(PROFILES, VGPU, 2, False, 1, {0: 1}, [], id="vgpus"),
    ],
)
def test_free(
    values: dict[str, Any],
    resource: str,
    wanted: int,
    fits: bool,
    free: int,
    by_node: dict[int | None, int],
    room: list[int],
) -> None:
    """Cards that containers have, or that are unhealthy or of another resource, are not free."""
    found = free_cards(values, resource, wanted)

    assert (found["fits"], found["free"], found["numa_nodes_with_room"]) == (fits, free, room)
    assert {each["numa_node"]: each["free"] for each in found["free_by_numa_node"]} == by_node


OTHER_VGPU = "criproxy.io/large"
TWO_PROFILES = devices(
    card(0, healthy=True, replicas={VGPU: 2, OTHER_VGPU: 1, GPU: 3}),
    vgpus=[
        {"resource": VGPU, "class": "nvidia", "free": 2, "offered": True},
        {"resource": OTHER_VGPU, "class": "nvidia", "free": 1, "offered": True},
    ],
    advertised=[offer(GPU, 3, 0)],
)


@pytest.mark.parametrize(
    ("wanted", "fits", "said"),
    [
        pytest.param({VGPU: 1}, [True], f"1 {VGPU} fits: 2 free", id="one"),
        pytest.param({VGPU: 2}, [False], f"2 {VGPU} do not fit: {{two}}", id="two"),
        pytest.param({VGPU: 1, OTHER_VGPU: 1}, [False, False], f"1 {VGPU} does not fit: {{two}}", id="profiles"),
        pytest.param({VGPU: 1, GPU: 2}, [True, True], f"1 {VGPU} fits: 2 free", id="beside-cards"),
        pytest.param({GPU: 2, VGPU: 2}, [True, False], f"2 {GPU} fit: 3 free", id="cards-beside-two"),
    ],
)
def test_a_container_has_at_most_one_vgpu(wanted: dict[str, int], fits: list[bool], said: str) -> None:
    """More than one is refused whatever is free, also if they are of two profiles; other cards do not count."""
    found = cards_of_container(TWO_PROFILES, wanted)

    assert [each["fits"] for each in found] == fits
    two = "a container can have at most one vGPU, and this one asks for 2"
    assert render_cards(found[0]).plain.startswith(said.format(two=two))


def test_what_is_unknown_is_an_error() -> None:
    """A resource that the node does not have, and cards that criproxy does not follow."""
    with pytest.raises(CriproxyError, match=r"no resource 'amd.com/gpu'; it has nvidia\.com/gpu\*, nvidia\.com/card-"):
        free_cards(WHOLE, "amd.com/gpu", 1)
    with pytest.raises(CriproxyError, match="no resource"):
        free_cards(WHOLE, "nvidia.com/mig-1g.5gb", 1)
    with pytest.raises(CriproxyError, match="no devices section"):
        free_cards({**WHOLE, "guarded": False}, GPU, 1)


NO_REPORT = "the device plugin has not reported"


@pytest.mark.parametrize(
    ("plugin", "vgpus", "unknown"),
    [
        pytest.param(None, [], f"{NO_REPORT}; is", id="not-yet"),
        pytest.param({"state": "not running", "reported": "2026-11-24T03:12:44Z"}, PROFILES["vgpus"],
                     f"{NO_REPORT} since 2026-11-24T03:12:44Z; is", id="not-any-more"),
    ],
)  # fmt: skip
def test_free_vgpus_are_unknown_without_a_report(plugin: Any, vgpus: Any, unknown: str) -> None:  # noqa: ANN401 - JSON
    """Idle cards do not count as vGPUs: pods would get none."""
    values = devices(card(0), card(1), vgpus=vgpus, device_plugin=plugin)
    values["classes"][0]["resources"].append(VGPU)

    found = free_cards(values, VGPU, 2)

    assert (found["fits"], found["free"], found["free_by_numa_node"]) == (False, None, [])
    assert found["unknown"].startswith(unknown)
    assert render_cards(found).plain == f"It is unknown whether 2 {VGPU} fit: {found['unknown']}"


def test_a_profile_that_is_not_offered_has_no_free_vgpus() -> None:
    """The policy file has it, but the device plugin, which runs, does not divide any card by it."""
    values = devices(card(0), card(1), device_plugin={"state": "running", "reported": "2026-11-24T03:12:44Z"})
    values["classes"][0]["resources"].append(VGPU)

    assert (free_cards(values, VGPU, 1)["fits"], free_cards(values, VGPU, 1)["free"]) == (False, 0)


def test_the_resource_of_the_gpus() -> None:
    """It is found if there is exactly one."""
    other = {"name": "amd", "resources": ["amd.com/gpu"], "cards": [card(0)], "advertised": []}

    assert gpu_resource(WHOLE) == GPU
    with pytest.raises(CriproxyError, match=r"several resources \(nvidia\.com/gpu, amd\.com/gpu\)"):
        gpu_resource({**WHOLE, "classes": [*WHOLE["classes"], other]})
    with pytest.raises(CriproxyError, match="no GPU"):
        gpu_resource(devices())


TEXTS = {
    "fits": (
        GPU,
        2,
        "2 nvidia.com/gpu fit: 4 free (NUMA node 0: 1, NUMA node 1: 2, unknown NUMA node: 1); enough on NUMA node 1",
    ),
    "one": (
        GPU,
        1,
        (
            "1 nvidia.com/gpu fits: 4 free (NUMA node 0: 1, NUMA node 1: 2, unknown NUMA node: 1); "
            "enough on NUMA nodes 0,1"
        ),
    ),
    "does-not-fit": (
        GPU,
        9,
        "9 nvidia.com/gpu do not fit: 4 free (NUMA node 0: 1, NUMA node 1: 2, unknown NUMA node: 1)",
    ),
}


@pytest.mark.parametrize(("resource", "wanted", "said"), TEXTS.values(), ids=TEXTS)
def test_as_text(resource: str, wanted: int, said: str) -> None:
    """One line for each resource."""
    assert render_cards(free_cards(WHOLE, resource, wanted)).plain == said


def test_an_answer_of_the_daemon() -> None:
    """Of eight cards on two NUMA nodes, containers have three; one container has two of them."""
    first, second, last = (EIGHT[number].id for number in (0, 1, 7))
    values = tell(web=given(first, second), train=given(last))

    found = free_cards(values, gpu_resource(values), 3)

    assert (found["fits"], found["free"], found["numa_nodes_with_room"]) == (True, 5, [1])
    assert found["free_by_numa_node"] == [{"numa_node": 0, "free": 2}, {"numa_node": 1, "free": 3}]
