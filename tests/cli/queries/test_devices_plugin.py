"""What ``criproxy devices`` shows of our device plugin: resources, replicas, health, and unhealthy cards in use."""

from dataclasses import replace
from typing import Any

from criproxy.api.views.devices import Inventory, to_values
from criproxy.devices.classes.builtin import AMD, NVIDIA
from criproxy.devices.holdings import Holdings
from criproxy.devices.plugin.published import Advertised, Published, PublishedCard
from criproxy.model.incident import Action, Incident, Use
from criproxy.model.node import Node
from criproxy.simulate.hosts import machine
from tests.cli.queries.test_devices import EIGHT, HEAD, STOCKS, container, given, lines

FIRST, SECOND = EIGHT[0].id, EIGHT[1].id
SHARED = "nvidia.com/gpu.shared"
REPORT = Published(
    version="1.0",
    resources=(
        Advertised(name=SHARED, device_class="nvidia", ids=10, healthy=5),
        Advertised(name="amd.com/gpu", device_class="amd", registered=False, problem="refused: too many"),
    ),
    cards=(
        PublishedCard(device_class="nvidia", id=FIRST, replicas={SHARED: 5}),
        PublishedCard(
            device_class="nvidia", id=SECOND, healthy=False, reason="XID 79", since_s=1.5, replicas={SHARED: 5}
        ),
    ),
)
LOST = Incident(device_class="nvidia", card=SECOND, since_s=1.5, reason="XID 79", action=Action.STOP)


def holding(*cards: str, **share: object) -> tuple[Node, Holdings]:
    """A node with a container that has these cards, by such a share of the resource."""
    web, holdings = replace(container("web"), reservation="r-web"), Holdings()
    allocated = {SHARED: {"source": "annotation", **share}}
    holdings.note("s-web", "main", {**given(*cards, source="annotation"), "nvidia_allocated": allocated})
    return Node(machine(), containers={web.key: web}), holdings


def tell(report: Published | None, incident: Incident | None = None, *, runs: bool = True) -> dict[str, Any]:
    """What a daemon would say of a container with a replica of each card."""
    node, holdings = holding(FIRST, SECOND, ids=f"{FIRST}::2,{SECOND}::0")
    node = node.replace(incidents={incident.key: incident} if incident else {})
    known = Inventory(
        classes=[NVIDIA, AMD], stocks=STOCKS, holdings=holdings, report=report, reported_s=60.0, runs=runs
    )
    return {**HEAD, **to_values(known, node)}


def test_resources_and_health() -> None:
    """Each resource has a line, each card its health with reason and time, and each container its ids."""
    shown = lines(tell(REPORT), 300)

    assert "device plugin: running (reported at 1970-01-01T00:01:00.000Z)" in shown
    assert f"  {SHARED}: 10 IDs, 5 healthy, 2 allocated" in shown
    assert "  amd.com/gpu: 0 IDs, 0 healthy, 0 allocated; the kubelet has not accepted it: refused: too many" in shown
    first, second = (next(line for line in shown if f"0000:{n}7:00.0" in line) for n in (1, 2))
    assert " healthy " in first
    assert first.endswith(f" shop/web/main ({FIRST}::2, annotation)")
    assert second.endswith(f"unhealthy since 1970-01-01T00:00:01Z: XID 79  shop/web/main ({SECOND}::0, annotation)")
    assert any(" ? " in line and "0000:37:00.0" in line for line in shown)


def test_more_replicas_than_are_kept() -> None:
    """All are counted, and the first are shown."""
    kept = [f"{FIRST}::{number}" for number in range(256)]
    node, holdings = holding(FIRST, ids=",".join(kept), count=700)
    values = {**HEAD, **to_values(Inventory(classes=[NVIDIA], stocks=STOCKS, holdings=holdings, report=REPORT), node)}

    shown = lines(values, 800)
    assert f"  {SHARED}: 10 IDs, 5 healthy, 700 allocated" in shown
    first = next(line for line in shown if "shop/web/main" in line)
    assert first.endswith(f" shop/web/main ({', '.join(kept[:8])}, 692 more, annotation)")
    assert holdings.ids_given(node, ["nvidia"], [SHARED]) == {("nvidia", SHARED): 700}


def test_parts_of_cards_that_only_the_device_plugin_knows() -> None:
    """A MIG device is one of its GPU, also where the daemon has no NVML."""
    node, holdings = holding("MIG-2", ids="MIG-2::1")
    report = replace(
        REPORT, cards=tuple(PublishedCard(device_class="nvidia", id=f"MIG-{n}", parent=SECOND) for n in (1, 2))
    )

    (nvidia,) = to_values(Inventory(classes=[NVIDIA], stocks=STOCKS, holdings=holdings, report=report), node)["classes"]

    assert nvidia["elsewhere"] == []
    assert nvidia["cards"][1]["parts"] == ["MIG-1", "MIG-2"]
    assert nvidia["cards"][1]["containers"][0]["ids_of_card"] == ["MIG-2::1"]
    assert not any(card["containers"] for card in nvidia["cards"][2:])
    (unknown,) = to_values(Inventory(classes=[NVIDIA], stocks=STOCKS, holdings=holdings), node)["classes"]
    assert unknown["elsewhere"][0]["ids"] == ["MIG-2"]


def test_device_plugin_that_does_not_run() -> None:
    """What it said last is shown with a warning; one that never reported is not spoken of."""
    text = "device plugin: not running (last report at 1970-01-01T00:01:00.000Z); its report may be outdated"
    assert text in lines(tell(REPORT, runs=False), 200)

    shown = lines(tell(None), 200)
    assert not [line for line in shown if "device plugin" in line or "healthy" in line or "HEALTH" in line]


def test_unhealthy_cards_in_use() -> None:
    """A card that is unhealthy stands before all others, with the containers that use it and what is done."""
    stopping = LOST.with_uses({"r-web": Use.STOPPING})
    values = tell(None, stopping)

    text = f"nvidia: card {SECOND} has been unhealthy since 1970-01-01T00:00:01.500Z: XID 79 (onUnhealthy: stop)"
    assert f"{text}, used by shop/web/main (being stopped)" in lines(values, 300)
    assert f"{text}, used by no container" in lines(tell(None, LOST), 300)
    full = {**values, "notices": [{"kind": "store", "wrong": True, "text": "the disk is full"}]}
    assert f"{text}, used by shop/web/main (is stopped when criproxy can store that)" in lines(full, 300)
    assert values["incidents"][0]["containers"][0]["use"] == "stopping"
    assert not tell(None, replace(stopping, ended=True))["incidents"]


def test_answers_of_an_earlier_version() -> None:
    """A daemon that knows nothing of the device plugin is shown as before."""
    values = tell(REPORT, LOST)
    del values["device_plugin"], values["incidents"]
    for kind in values["classes"]:
        del kind["advertised"]
        for card in kind["cards"]:
            for key in ("healthy", "reason", "since", "replicas"):
                del card[key]
            for held in card["containers"]:
                del held["allocated"], held["ids_of_card"]

    assert "nvidia: 8 cards, 6 idle; shared nodes: /dev/nvidiactl" in lines(values, 200)
