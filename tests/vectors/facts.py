"""What facts without a vector say of criproxy, as far as a pure function can show it.

A fact that stands here is asserted; one that does not is about NVIDIA's process (streams that wait, restarts), and
has nothing in criproxy that could differ.
"""

from collections.abc import Callable, Mapping
from typing import Any

from criproxy.deviceplugin.health.health import HOLD_DOWN_S, happened, new, step
from criproxy.deviceplugin.nvidia import xids
from criproxy.deviceplugin.nvidia.xids import WHOLE_GPU, Event, Place

Whole = Mapping[str, Any]


def _recovery(whole: Whole) -> str | None:
    """NVIDIA's plugin never says Healthy again; criproxy does, on purpose, and not before the hold-down is over."""
    ill = step(new(0.0), 0.0, happened("xid 79", "XID 79"))
    if step(ill, HOLD_DOWN_S - 0.001).healthy:
        return "Healthy before the hold-down is over"
    return None if step(ill, HOLD_DOWN_S).healthy else "never Healthy again"


def _wait(whole: Whole) -> str | None:
    return None if whole.get("wait_ms", xids.WAIT_MS) == xids.WAIT_MS else f"the wait is {xids.WAIT_MS} ms"


def _base_manager(whole: Whole) -> str | None:
    watched = [platform for platform in ("nvml", "wsl", "tegra") if xids.is_watched(platform)]
    return None if watched == ["nvml"] else f"cards are watched on {watched}"


def _mig_enable_flag(whole: Whole) -> str | None:
    place = Place("GPU-0", 1, 0)
    about = [Event(gpu="GPU-0", gi=gi, ci=ci) for gi, ci in ((WHOLE_GPU, 7), (7, WHOLE_GPU), (1, 0))]
    others = [Event(gpu="GPU-0", gi=gi, ci=ci) for gi, ci in ((1, 1), (2, 0))]
    right = all(event.concerns(place) for event in about) and not any(event.concerns(place) for event in others)
    return None if right else "events of instances are matched otherwise"


HEALTH_FACTS: Mapping[str, Callable[[Whole], str | None]] = {
    "fact-no-recovery": _recovery,
    "fact-wait-5s": _wait,
    "fact-base-manager": _base_manager,
    "fact-mig-enable-flag": _mig_enable_flag,
}
"""By the id of the case."""
