"""Where the device rules failed, every card is hidden, in messages of any size."""

from criproxy.cri import api_pb2 as api
from criproxy.cri.devices import hide_all
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from tests.cri.test_rewrite import field


def test_the_others_stay_as_they_were() -> None:
    """In their order, with fields that we do not know."""
    entry = field(6, field(1, b"A") + field(900, b"newer"))
    card = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"all"))
    void = field(6, field(1, b"NVIDIA_VISIBLE_DEVICES") + field(2, b"void"))
    request = api.CreateContainerRequest.FromString(field(2, (entry + card) * 1001 + entry))

    hide_all(request, DeviceRules(classes=(NVIDIA,)))

    assert request.SerializeToString() == field(2, entry * 1002 + void)
