"""Where the device rules failed, every card is hidden, in messages of any size."""

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.devices import FEW, hide_all
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from tests.cri.test_rewrite import field


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_the_others_stay_as_they_were(count: int) -> None:
    """In their order, with fields that we do not know."""
    entry = field(6, field(1, b"A") + field(900, b"newer"))
    card = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"all"))
    void = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"void"))
    request = api.CreateContainerRequest.FromString(field(2, (entry + card) * count + entry))

    hide_all(request, DeviceRules(classes=(NVIDIA,)))

    assert request.SerializeToString() == field(2, entry * (count + 1) + void)
