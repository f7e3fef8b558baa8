"""What the examples for nodes with accelerators, and the page about them, promise."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.boundary import boundary
from criproxy.devices.evidence.evidence import weigh
from tests.devices.fixture import ANYBODY, STOCKS, asked

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("value", ["all", "GPU-a,GPU-b", "0"])
def test_who_was_given_nothing_sees_nothing_whoever_tells(value: str) -> None:
    """The header of gpu-node.yaml holds also while the kubelet does not tell: no container sees a card then.

    Those to whom one may have been given are refused until somebody can tell, so that nobody runs without their card.
    """
    section = load(ROOT / "policies/gpu-node.yaml", "any").common.devices
    assert section is not None
    rules = section.rules()
    create = asked(f"NVIDIA_VISIBLE_DEVICES={value}")

    done = boundary(rules, ANYBODY, create, weigh(rules.classes, create, (), STOCKS), STOCKS)

    assert done.refusal is not None
    assert done.refusal.code.name == "UNAVAILABLE"
    image = boundary(rules, ANYBODY, asked(), weigh(rules.classes, asked(), (), STOCKS), STOCKS)
    assert [env.value for env in image.asked.envs] == [b"void"]
