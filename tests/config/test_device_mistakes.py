"""Classes of devices that cannot be meant: those that do nothing, do too much, or stand in another's way."""

from pathlib import Path

import pytest

from criproxy.errors import ConfigError
from tests.config.test_devices import rules


def classes(*written: str) -> str:
    """A section with these classes."""
    return f"devices: {{classes: [{', '.join(written)}]}}"


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        pytest.param(
            classes("{name: x, resources: [a.b/c]}"),
            "2:28: devices.classes[0].name: the class 'x' does nothing: it needs visibleEnv, nodes.perDevice, "
            "cdiKinds, stripEnv or stripMountPrefix",
            id="nothing",
        ),
        pytest.param(
            classes("{name: x, resources: [a.b/c], nodes: {shared: [/dev/x]}}"),
            "the class 'x' does nothing",
            id="shared-nodes-of-no-card",
        ),
        pytest.param(
            classes("{name: x, resources: [a.b/c], visibleEnv: PATH}"),
            "devices.classes[0].visibleEnv: PATH is a variable that programs need, and criproxy would remove it from "
            "every container",
            id="path",
        ),
        pytest.param(
            classes('{name: nvidia, stripEnv: ["K*"]}'),
            "devices.classes[0].stripEnv[0]: KUBERNETES_SERVICE_HOST is a variable that programs need",
            id="strips-kubernetes",
        ),
        pytest.param(
            classes("{name: x, resources: [a.b/c], nodes: {perDevice: ['/dev/../etc/x{index}']}}"),
            "devices.classes[0].nodes.perDevice[0]: must be a path below /dev/ without '.', '..' and '//', not "
            "'/dev/../etc/x{index}'",
            id="beside-dev",
        ),
        pytest.param(
            classes("{name: nvidia, nodes: {shared: [/dev/./mem]}}"),
            "must be a path below /dev/ without '.', '..' and '//'",
            id="a-dot",
        ),
        pytest.param(
            classes("{name: nvidia, nodes: {shared: ['/dev/*']}}"),
            "devices.classes[0].nodes.shared[0]: would give /dev/mem to every container with a card: list only the "
            "vendor's device nodes",
            id="all-of-dev",
        ),
        pytest.param(
            classes("{name: nvidia, nodes: {shared: ['/dev/sd?']}}"),
            "would give /dev/sda to every container with a card",
            id="disks",
        ),
        pytest.param(
            classes("nvidia", "{name: x, resources: [nvidia.com/gpu], cdiKinds: [a.b/c]}"),
            "devices.classes[1].resources[0]: nvidia.com/gpu already belongs to the class 'nvidia'",
            id="one-resource-twice",
        ),
        pytest.param(
            classes(
                '{name: x, resources: ["a.b/*"], cdiKinds: [a.b/c]}', "{name: y, resources: [a.b/c], cdiKinds: [a.b/d]}"
            ),
            "devices.classes[1].resources[0]: a.b/c already belongs to the class 'x'",
            id="a-pattern-and-one-of-it",
        ),
        pytest.param(
            classes("{name: container, resources: [a.b/c], visibleEnv: X}"),
            "devices.classes[0].name: 'container' is reserved",
            id="taken-name",
        ),
    ],
)
def test_what_cannot_be_meant_is_a_mistake(tmp_path: Path, section: str, mistake: str) -> None:
    """With its place, and what would be right."""
    with pytest.raises(ConfigError) as error:
        rules(tmp_path, section)

    assert mistake in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_classes_that_are_built_in_are_fine(tmp_path: Path) -> None:
    """Also all of them together, and one with a class beside it whose resources are others."""
    assert rules(tmp_path, "devices: {}")
    assert rules(tmp_path, classes("nvidia", "{name: x, resources: [nvidia.com/nic], visibleEnv: NIC}"))
