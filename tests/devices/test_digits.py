"""Numbers in a pod's devices and variables may have thousands of digits, and Python reads no such number."""

import pytest

from criproxy.devices.classes.builtin import ASCEND, NVIDIA
from criproxy.devices.classes.cards import Stock, number_in
from criproxy.devices.classes.device_class import DeviceClass


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/dev/nvidia7", 7),
        ("/dev/nvidia123456789", 123_456_789),
        ("/dev/nvidia" + "9" * 10, None),
        ("/dev/nvidia" + "9" * 5000, None),
        ("/dev/nvidia", None),
    ],
)
def test_a_path_with_too_many_digits_is_no_card(path: str, number: int | None) -> None:
    """There is no such card."""
    assert NVIDIA.card_number(path) == number
    assert NVIDIA.is_card_node(path) is (number is not None)


@pytest.mark.parametrize("kind", [NVIDIA, ASCEND], ids=["uuid", "index"])
@pytest.mark.parametrize("name", ["9" * 5000, "Ascend910-" + "9" * 5000, "x" + "9" * 5000, "٣"])
def test_a_name_with_too_many_digits_is_no_card(kind: DeviceClass, name: str) -> None:
    """Be it of a variable, an allocation or a CDI device."""
    assert Stock().card(kind, name) is None
    assert number_in(name) is None
