"""Cards that come as CDI devices: what stands beside their names, and which names bring none."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from criproxy.devices.boundary import Boundary
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.evidence.evidence import Given, weigh
from criproxy.errors import StatusCode
from tests.devices.fixture import NOTHING, STOCKS, asked, at_create, check, envs, given, row, rules, words

GPU = "nvidia.com/gpu=GPU-b"
GPU_B = given(nvidia_com__gpu="GPU-b")
CLAIM = "k8s.gpu.nvidia.com/claim=uid-gpu-0"
UNRESOLVED = (CLAIM, "k8s.gpu.nvidia.com/device=gpu-0", "management.nvidia.com/gpu=all", "nvidia.com/gpu=7")
FOREIGN = "nic.example.com/nic=a"
ALL, VOID = "NVIDIA_V=all", "NVIDIA_V=void"
MOUNTS = "/var/run/nvidia-container-devices"
REPORT, OFF = rules(hide_unallocated="report"), rules(hide_unallocated="off")
CHANNEL = asked("NVIDIA_IMEX_CHANNELS=0", cdi=(CLAIM,), mounts=(f"{MOUNTS}/imex/0",))
STRIPPED, KEPT = "cdi-unresolved stripped", "cdi-unresolved override"


def fail(mode: str, **more: Any) -> Any:  # noqa: ANN401 (those of `DeviceRules`)
    """Rules for who may have been given something."""
    return rules(on_no_evidence=mode, **more)


@pytest.mark.parametrize(
    ("cdi", "sets", "envs", "then"),
    [
        pytest.param((GPU,), {GPU: False}, (), [VOID], id="silent"),
        pytest.param((GPU,), {GPU: True}, (), [], id="set"),
        pytest.param((GPU,), {}, (), [], id="no-spec"),
        pytest.param((GPU, "nvidia.com/gpu=0"), {GPU: False}, (), [], id="one-unknown"),
        pytest.param((GPU, "nvidia.com/gpu=0"), {GPU: False, "nvidia.com/gpu=0": True}, (), [], id="one-sets"),
        pytest.param((GPU,), {GPU: False}, ("NVIDIA_V=GPU-b", ALL), [VOID], id="never-an-id"),
    ],
)
def test_void_beside_cdi(
    cdi: tuple[str, ...], sets: Mapping[str, bool], envs: tuple[str, ...], then: list[str]
) -> None:
    """Where the specification leaves the image's variable alone, it is hidden: else the hook shows every card."""
    done = at_create(asked(*envs, cdi=cdi), GPU_B, sets=sets)

    assert [f"{name}={value.decode()}".replace("_VISIBLE_DEVICES", "_V") for name, value in done.asked.envs] == then


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        row("off", asked(cdi=(GPU,)), GPU_B, "", of=OFF, sets={GPU: False}),
        row("reported", asked(cdi=(GPU,)), GPU_B, "", of=REPORT, sets={GPU: False}),
        row("card-of-cdi", asked(ALL, cdi=("nvidia.com/gpu=1",)), None, "", "allocated stripped", nodes=[]),
        row("channel-0", CHANNEL, None, "NVIDIA_IMEX_CHANNELS=0", "cdi-unresolved", mounts=(f"{MOUNTS}/imex/0",)),
        row("void", asked(ALL, cdi=(CLAIM,)), None, VOID, STRIPPED, sets={CLAIM: False}),
        row("set", asked(ALL, cdi=(CLAIM,)), None, "", STRIPPED, sets={CLAIM: True}),
        row("no-spec", asked(ALL, cdi=(CLAIM,)), None, "", STRIPPED, sets={}),
        row("claim-reported", asked(ALL, cdi=(CLAIM,)), None, "", STRIPPED, of=REPORT, sets={CLAIM: False}),
        row("claim-off", asked(ALL, cdi=(CLAIM,)), None, "", STRIPPED, of=OFF, sets={CLAIM: False}),
        row("keep", asked(ALL, cdi=(CLAIM,)), None, ALL, KEPT, of=rules(user_override="keep"), sets={CLAIM: False}),
        row("report", asked(ALL, cdi=(CLAIM,)), None, ALL, KEPT, of=rules(user_override="report"), sets={CLAIM: False}),
        row("image", asked(cdi=(CLAIM,)), None, VOID, "cdi-unresolved", sets={CLAIM: False}),
        # Without the variable of a pod that hides cards itself, that of the image would count.
        row("hides-itself", asked(VOID, cdi=(CLAIM,)), None, VOID, "cdi-unresolved", sets={CLAIM: True}),
        row("hides-itself-no-spec", asked(VOID, cdi=(CLAIM,)), None, VOID, "cdi-unresolved"),
        row("hides-itself-beside-a-card", asked(VOID, cdi=(GPU,)), None, VOID, "allocated", sets={GPU: True}),
        row("hides-itself-off", asked(VOID, cdi=(GPU,)), None, VOID, "allocated", of=OFF, sets={GPU: False}),
        # A device of an unknown kind brings what is in it itself: nobody waits for an answer that may never come.
        row("foreign-hide", asked("A=1", cdi=(FOREIGN,)), None, f"A=1 {VOID}", "hidden", of=fail("hide")),
        row("foreign-fail", asked("A=1", cdi=(FOREIGN,)), None, f"A=1 {VOID}", "hidden", of=fail("fail"), refused=None),
        row("foreign-again", asked(VOID, cdi=(FOREIGN,)), None, VOID, "", of=fail("fail")),
        row("foreign-report", asked(cdi=(FOREIGN,)), None, "", "would-hide", of=replace(REPORT, on_no_evidence="hide")),
        row("foreign-off", asked(cdi=(FOREIGN,)), None, "", "", of=fail("fail", hide_unallocated="off")),
        row("foreign-told", asked(cdi=(FOREIGN,)), NOTHING, VOID, "hidden"),
        row("foreign-keep", asked(cdi=(FOREIGN,)), None, "", "cdi-unresolved"),
        # A variable may be that of a plugin.
        row("foreign-waits", asked(ALL, cdi=(FOREIGN,)), None, None, of=fail("fail"), refused=StatusCode.UNAVAILABLE),
        row("foreign-kept", asked(ALL, cdi=(FOREIGN,)), None, ALL, "no-evidence"),
    ],
)
def test_beside_a_device(create: Callable[[], Boundary], expected: Mapping[str, object]) -> None:
    """By its specification, and only where cards are hidden and the pod's own words go."""
    check(create, expected)


@pytest.mark.parametrize("known", [(), (NOTHING,)], ids=["untold", "told"])
@pytest.mark.parametrize("name", UNRESOLVED)
def test_what_a_pod_asks_for_goes_beside_a_device_that_tells_no_card(name: str, known: tuple[Any, ...]) -> None:
    """The device brings its card itself: whatever the pod says beside it could only bring others."""
    own = (ALL, "NVIDIA_IMEX_CHANNELS=0-2047", "NVIDIA_NVSWITCH=enabled")
    create = asked("A=1", *own, cdi=(name,), mounts=(f"{MOUNTS}/all", f"{MOUNTS}/GPU-a", "/data"))

    done = at_create(create, *known, sets={})

    assert (envs(done), words(done)) == ("A=1", STRIPPED)
    assert [mount.container_path for mount in done.asked.mounts] == ["/data"]
    unresolved, stripped = (finding.sentence for finding in done.findings)
    assert unresolved.endswith("does not identify its card, so it is unknown which cards it sees")
    assert stripped == (
        "nvidia: it asked for cards itself: criproxy removed NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, "
        f"NVIDIA_NVSWITCH, mount {MOUNTS}/all, mount {MOUNTS}/GPU-a"
    )


def test_sentences() -> None:
    """They name the card, or say what hides all others."""
    (finding,) = at_create(asked(cdi=(GPU,))).findings
    assert finding.sentence == "nvidia: GPU-b is allocated to it (cdi)"
    (finding,) = at_create(asked(cdi=(FOREIGN,)), of=fail("hide")).findings
    assert finding.sentence == (
        "nvidia: a CDI device of an unknown kind may include a card: NVIDIA_VISIBLE_DEVICES=void hides every other card"
    )


@pytest.mark.parametrize("name", ["imex-channel", "gdrcopy", "gds", "mofed"])
def test_what_nvidias_plugin_passes_beside_cards(name: str) -> None:
    """Its devices of other kinds are known, bring no card, and do not blur which cards there are."""
    beside = f"k8s.device-plugin.nvidia.com/{name}=all"
    plugin = "k8s.device-plugin.nvidia.com/gpu=GPU-b"

    with_card = weigh((NVIDIA,), asked(cdi=(plugin, beside)), (), STOCKS)["nvidia"]
    alone = weigh((NVIDIA,), asked(ALL, cdi=(beside,)), (NOTHING,), STOCKS)["nvidia"]
    untold = weigh((NVIDIA,), asked(cdi=(beside,)), (), STOCKS)["nvidia"]

    assert (with_card.given, with_card.ids) == (Given.CARDS, ("GPU-b",))
    assert alone.given is Given.NONE
    assert (untold.given, untold.source) == (Given.NONE, "request")
