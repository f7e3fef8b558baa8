"""Which errors make which of NVIDIA's cards Unhealthy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.options import SharedResource
from criproxy.deviceplugin.nvidia.resources import offers
from criproxy.deviceplugin.nvidia.xids import (
    ALWAYS_IGNORED,
    WHOLE_GPU,
    Event,
    Place,
    XidFilter,
    made_unhealthy,
    places_of,
    unwatched,
    xid_filter,
)
from criproxy.devices.classes.offers import Offered
from tests.deviceplugin.nvidia.machines import a100, config, t4

XIDS = st.integers(1, 2**64 - 1)


def variables(disable: str | None = None, enable: str | None = None) -> dict[str, str]:
    """Return an environment with those that are given."""
    both = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable}
    return {name: value for name, value in both.items() if value is not None}


@pytest.mark.parametrize(
    ("env", "watching", "handled", "ignored"),
    [
        pytest.param(variables(), True, {0, 48, 79}, ALWAYS_IGNORED, id="default"),
        pytest.param(variables("", ""), True, {0, 48, 79}, ALWAYS_IGNORED, id="empty"),
        pytest.param(variables("79"), True, {48}, {31, 79}, id="one-more"),
        pytest.param(variables("Xids"), False, set(), {0, 31, 48}, id="none"),
        pytest.param(variables("0"), False, set(), {0, 31, 48}, id="none-by-number"),
        pytest.param(variables("all", "48"), False, {48}, {0, 31, 79}, id="none-but-one-is-none"),
        pytest.param(variables("all", "ALL"), True, {0, 31, 48}, set(), id="all-after-all"),
        pytest.param(variables("79", "0"), True, {0, 31, 79}, set(), id="all-by-number"),
        pytest.param(variables("79,48", "79, 31 "), True, {79, 31}, {48, 13}, id="enabled-goes-first"),
        pytest.param(variables("079"), True, {48}, {79}, id="leading-zero"),
        pytest.param(variables("+79,7_9,\uff17\uff19,0x4f, ,-1,1e3," + "9" * 30), True, {79, 1}, {13}, id="junk"),
        pytest.param(variables("9" * 5000), True, {79}, {13}, id="thousands-of-digits"),
        pytest.param(variables(str(2**64 - 1)), True, {2**64}, {2**64 - 1}, id="largest"),
    ],
)
def test_which_errors_count(env: dict[str, str], watching: bool, handled: set[int], ignored: set[int]) -> None:
    """What is enabled goes before what is disabled, and that before the default; junk is passed over."""
    found = xid_filter(env)

    assert found.watching is watching
    assert {xid for xid in handled | ignored if found.handles(xid)} == handled


@given(st.lists(XIDS, max_size=5), st.lists(XIDS, max_size=5), XIDS)
def test_an_error_counts_unless_it_is_ignored(disabled: list[int], enabled: list[int], xid: int) -> None:
    """Lists of numbers say what they say, in any order."""
    found = xid_filter(variables(",".join(map(str, disabled)), " , ".join(map(str, enabled))))

    for each in (xid, *disabled, *enabled, *ALWAYS_IGNORED):
        assert found.handles(each) == (each in enabled or each not in {*disabled, *ALWAYS_IGNORED})


def offered_with(strategy: str, *entries: SharedResource, resource: str = "nvidia.com/gpu") -> list[Offered]:
    """Return what a machine with two GPUs, one of them parted, or with two whole ones offers."""
    gpus = [t4(0), t4(1)] if strategy == "none" else [a100(0, "3g.20gb", "3g.20gb"), a100(1, "3g.20gb")]
    return list(offers(gpus, config(*entries, strategy=strategy))[resource].values())  # type: ignore[arg-type]


THREE = SharedResource(name="nvidia.com/gpu", replicas=3)
WHOLE_PLACES = places_of([t4(0), t4(1)])
MIG_PLACES = places_of([a100(0, "3g.20gb", "3g.20gb"), a100(1, "3g.20gb")])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(Event(gpu="GPU-1", xid=79), ["GPU-1::0", "GPU-1::1", "GPU-1::2"], id="every-replica"),
        pytest.param(Event(gpu="GPU-1", xid=79, gi=1, ci=0), ["GPU-1::0", "GPU-1::1", "GPU-1::2"], id="instance"),
        pytest.param(Event(gpu="GPU-1", xid=31), [], id="of-a-program"),
        pytest.param(Event(gpu="GPU-7", xid=79), [], id="not-offered"),
        pytest.param(Event(gpu="GPU-1", xid=79, kind="other"), [], id="corrected-memory"),
        pytest.param(Event(gpu=None, xid=31), [], id="any-gpu-but-ignored"),
    ],
)
def test_errors_of_replicas(event: Event, expected: list[str]) -> None:
    """An error of a card is one of all its replicas."""
    assert made_unhealthy(event, offered_with("none", THREE), WHOLE_PLACES, XidFilter()) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(Event(gpu="GPU-0", xid=79, gi=1, ci=0), ["MIG-0-0"], id="one"),
        pytest.param(Event(gpu="GPU-0", xid=79, gi=2, ci=0), ["MIG-0-1"], id="the-other"),
        pytest.param(Event(gpu="GPU-0", xid=79, gi=2, ci=1), [], id="another-compute-instance"),
        pytest.param(Event(gpu="GPU-0", xid=79), ["MIG-0-0", "MIG-0-1"], id="whole-gpu"),
        pytest.param(Event(gpu="GPU-0", xid=79, gi=2), ["MIG-0-0", "MIG-0-1"], id="no-compute-instance"),
        pytest.param(Event(gpu=None, xid=79), ["MIG-0-0", "MIG-0-1", "MIG-1-0"], id="any-gpu"),
    ],
)
def test_errors_of_mig_devices(event: Event, expected: list[str]) -> None:
    """An error is about the instance that it names, or about all of the GPU."""
    assert made_unhealthy(event, offered_with("single"), MIG_PLACES, XidFilter()) == expected


def test_nothing_counts_where_nothing_is_watched() -> None:
    """If all errors are ignored, one of an unknown GPU is of no consequence either."""
    none = xid_filter(variables("all", "79"))

    for event in (Event(gpu="GPU-1", xid=79), Event(gpu=None, xid=79)):
        assert made_unhealthy(event, offered_with("none"), WHOLE_PLACES, none) == []


def test_cards_that_cannot_be_watched() -> None:
    """A card is Unhealthy from the start if its place is not known or its GPU gives no events."""
    offered = offered_with("single")
    known = {uuid: place for uuid, place in MIG_PLACES.items() if uuid != "MIG-0-1"}

    assert unwatched(offered, known, ["GPU-1"]) == ["MIG-0-1", "MIG-1-0"]
    assert unwatched(offered, MIG_PLACES, []) == []


def test_places() -> None:
    """A whole GPU is no instance; the instances of one have its UUID."""
    assert WHOLE_PLACES["GPU-0"] == Place("GPU-0", WHOLE_GPU, WHOLE_GPU)
    assert MIG_PLACES["MIG-0-1"] == Place("GPU-0", 2, 0)
    assert MIG_PLACES["GPU-0"].is_mig is False
