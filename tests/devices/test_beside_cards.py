"""What NVIDIA's hook shows beside cards: what only a pod asks for goes, and what its device plugin passes stays."""

import pytest

from criproxy.devices.boundary import Word
from tests.devices.fixture import NOTHING, asked, at_create, envs, given, rules, words

GPU_B = given(nvidia_com__gpu="GPU-b")
CARD = "NVIDIA_VISIBLE_DEVICES=GPU-b"
MOUNTS = "/var/run/nvidia-container-devices"


@pytest.mark.parametrize(
    "own",
    [
        "NVIDIA_NVSWITCH=enabled",
        "NVIDIA_IMEX_CHANNELS=all",
        "NVIDIA_IMEX_CHANNELS=1",
        "NVIDIA_IMEX_CHANNELS=0,1",
    ],
)
def test_what_no_plugin_passes_goes(own: str) -> None:
    """Switches of the whole machine, and channels to cards of other nodes, are not part of a card."""
    enforced = at_create(asked(CARD, own), GPU_B)
    reported = at_create(asked(CARD, own), GPU_B, of=rules(user_override="report"))

    assert envs(enforced) == [CARD]
    assert words(enforced) == [Word.ALLOCATED, Word.STRIPPED, Word.NODES_ADDED]
    assert f"criproxy removed {own.partition('=')[0]}" in enforced.findings[1].sentence
    assert envs(reported) == [CARD, own]
    assert words(reported) == [Word.ALLOCATED, Word.OVERRIDE, Word.NODES_ADDED]


def test_the_channel_of_the_plugin_stays_and_that_of_the_pod_goes() -> None:
    """NVIDIA's plugin passes channel 0 and no other, before what the pod says itself."""
    done = at_create(asked("NVIDIA_IMEX_CHANNELS=0", CARD, "NVIDIA_IMEX_CHANNELS=all"), GPU_B)

    assert envs(done) == ["NVIDIA_IMEX_CHANNELS=0", CARD]


@pytest.mark.parametrize("feature", ["NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY"])
def test_what_the_plugin_may_have_passed_stays(feature: str) -> None:
    """By its settings it passes the same as a pod would: nobody loses what was given."""
    done = at_create(asked(CARD, f"{feature}=enabled"), GPU_B)

    assert envs(done) == [CARD, f"{feature}=enabled"]
    assert words(done) == [Word.ALLOCATED, Word.NODES_ADDED]


def test_the_channel_that_the_plugin_passes_as_a_mount_stays() -> None:
    """Beside an allocated card the mount for channel 0 is the plugin's; any other is the pod's own."""
    create = asked(
        f"NVIDIA_VISIBLE_DEVICES={MOUNTS}", mounts=(f"{MOUNTS}/GPU-b", f"{MOUNTS}/imex/0", f"{MOUNTS}/imex/1")
    )

    given_one, none = at_create(create, GPU_B), at_create(create, NOTHING)

    assert [mount.container_path for mount in given_one.asked.mounts] == [f"{MOUNTS}/GPU-b", f"{MOUNTS}/imex/0"]
    assert f"it asked for more than was allocated to it: criproxy removed mount {MOUNTS}/imex/1" in (
        given_one.findings[1].sentence
    )
    assert not none.asked.mounts


def test_without_a_card_nothing_beside_one_stays() -> None:
    """Channel 0 belongs to a card that was given."""
    done = at_create(asked("NVIDIA_IMEX_CHANNELS=0", "NVIDIA_NVSWITCH=enabled"), NOTHING)

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=void"]
