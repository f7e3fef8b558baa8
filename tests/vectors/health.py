"""Which cards become Unhealthy: ``health.yaml``."""

from collections.abc import Mapping
from typing import Any

from criproxy.deviceplugin.nvidia import xids
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.resources import offers
from criproxy.deviceplugin.nvidia.xids import Event, Place, XidFilter
from criproxy.devices.classes.offers import Offered
from tests.vectors.cards import config_of_case, gpus_of
from tests.vectors.deliberate import ALL_CONCERNED, Difference
from tests.vectors.facts import HEALTH_FACTS
from tests.vectors.nvidia_ways import place_in

Case = Mapping[str, Any]
GPU = "nvidia.com/gpu"
_SUPPORTED = {"ONLY_ECC": xids.SINGLE_BIT_ECC | xids.DOUBLE_BIT_ECC, "ONLY_XID": xids.XID_CRITICAL, "NONE": 0}
"""What NVML says that a GPU can tell; other words are errors."""
_ALL_KINDS = 0xFFFF


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    match case["kind"]:
        case "xid-filter":
            return _filter(case)
        case "event":
            return _events(case, whole)
        case _:
            check = HEALTH_FACTS.get(case["id"])  # of facts that criproxy's code states, too
            return check(whole) if check else None


def by_rule(case: Case, whole: Case) -> Difference | None:
    """Where NVIDIA's plugin marks one id by chance, criproxy marks all that it could have marked."""
    expected = case.get("expect", {})
    if "unhealthy_any_of" not in expected:
        return None
    union = sorted({each for ids in expected["unhealthy_any_of"] for each in ids})
    rest = {key: value for key, value in expected.items() if key != "unhealthy_any_of"}
    return Difference(ALL_CONCERNED, {"unhealthy": union, **rest})


def _filter(case: Case) -> str | None:
    found, expected = xids.xid_filter(case["env"]), case["expect"]
    if found.watching != expected["watching"]:
        return f"watching is {found.watching}"
    wrong = [xid for xid in expected["ignored"] if found.handles(xid)]
    wrong += [xid for xid in expected["handled"] if not found.handles(xid)]
    return f"the XIDs {wrong} are on the wrong side" if wrong else None


def _events(case: Case, whole: Case) -> str | None:
    expected, config = case["expect"], config_of_case(case)
    watch = xids.xid_filter(case.get("env", {}))
    gpus = gpus_of(case, whole)
    platform = case.get("platform", "nvml")
    offered = list(offers(gpus, config, platform=platform).get(case.get("resource", GPU), {}).values())
    if case.get("nvml_init_error") and case.get("fail_on_init_error", True) and watch.watching:
        return None if any("error" in key for key in expected) else "the plugin does not start"
    if case.get("nvml_init_error") or not xids.is_watched(platform):
        watch = XidFilter({0: True})
    places = _places(gpus, case)
    masks, failed = _registered(offered, places, case) if watch.watching else ({}, set())
    cards = {each.card for each in offered}
    unhealthy = (
        {each for each in cards if each not in places or places[each].gpu in failed} if watch.watching else set()
    )
    for event in filter(None, map(_event, case["events"])):
        unhealthy |= set(xids.made_unhealthy(event, cards, places, watch))
    return _differs(sorted(each.id for each in offered if each.card in unhealthy), masks, expected)


def _differs(unhealthy: list[str], masks: Mapping[str, int], expected: Mapping[str, Any]) -> str | None:
    allowed = expected.get("unhealthy_any_of", [expected.get("unhealthy")])
    if unhealthy not in [sorted(ids) for ids in allowed if ids is not None]:
        return f"found {unhealthy!r}, expected {allowed!r}"
    if masks != expected.get("registered_masks", masks):
        return f"registered {masks!r}, expected {expected['registered_masks']!r}"
    return None


def _places(gpus: tuple[Gpu, ...], case: Case) -> dict[str, Place]:
    """As far as NVML, or the UUID itself, says where a card is."""
    failing = case.get("handle_result", {})
    found: dict[str, Place] = {}
    for uuid, place in xids.places_of(gpus).items():
        known = place_in(uuid) if place.is_mig and uuid in failing else place
        if known is not None:
            found[uuid] = known
    return found


def _registered(offered: list[Offered], places: Mapping[str, Place], case: Case) -> tuple[dict[str, int], set[str]]:
    """What each GPU was registered for, and the GPUs with which that failed."""
    masks: dict[str, int] = {}
    failed: set[str] = set()
    for gpu in dict.fromkeys(places[each.card].gpu for each in offered if each.card in places):
        supported = case.get("supported_result", {}).get(gpu)
        if gpu in case.get("handle_result", {}) or (supported is not None and supported not in _SUPPORTED):
            failed.add(gpu)
            continue
        masks[gpu] = xids.EVENT_MASK & _SUPPORTED.get(supported, _ALL_KINDS)
        if case.get("register_result", {}).get(gpu, "NOT_SUPPORTED") != "NOT_SUPPORTED":
            failed.add(gpu)
    return masks, failed


def _event(entry: Mapping[str, Any]) -> Event | None:
    if "wait_error" in entry:
        return None
    kind = entry.get("type", "xid")
    return Event(
        gpu=None if entry.get("uuid_error") else entry["uuid"],
        xid=entry.get("xid", 0),
        gi=entry.get("gi", xids.WHOLE_GPU),
        ci=entry.get("ci", xids.WHOLE_GPU),
        is_xid=kind.startswith("xid"),
    )
