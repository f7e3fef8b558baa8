"""The embedded runtime says what a real containerd says, in code and text."""

from pathlib import Path

from criproxy.cri.touched_methods import PACKAGES
from lab.containerd.containerd import PrivateContainerd
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from tests.e2e.conversation import talk
from tests.e2e.recording import UNKNOWN_TO_CONTAINERD_16

KNOWN_BUT_EMPTY = {"CheckpointContainer", "GetContainerEvents"}
"""Methods that containerd 1.6 knows and does not implement, which it says in other words."""
NEEDS_A_REGISTRY = {"PullImage"}
"""Every pull succeeds on the embedded runtime."""


async def test_codes_and_texts_are_containerds(containerd: PrivateContainerd, tmp_path: Path) -> None:
    """The whole conversation, call by call, in the version that containerd 1.6 is."""
    options = RuntimeOptions(cpus="0-1", missing=UNKNOWN_TO_CONTAINERD_16)
    real = await talk(containerd.socket, tmp_path, containerd.cgroups, PACKAGES[0])
    async with EmbeddedRuntime(tmp_path / "embedded.sock", options) as embedded:
        made_up = await talk(Path(embedded.path), tmp_path, containerd.cgroups, PACKAGES[0])

    pairs = zip(real.answers, made_up.answers, strict=True)
    different = {
        one.label: (one.code, one.text, other.code, other.text)
        for one, other in pairs
        if (one.label, one.code, one.text) != (other.label, other.code, other.text)
    }
    methods = {label.split()[0].rpartition("/")[2] for label in different}
    assert methods <= KNOWN_BUT_EMPTY | NEEDS_A_REGISTRY, different
