"""Where NVIDIA's feature discovery puts labels, and where criproxy does."""

import pytest

from criproxy.deviceplugin.nvidia.labels.label_output import (
    FileOutput,
    NodeFeatureOutput,
    Output,
    StandardOutput,
    feature_file,
    output,
)
from criproxy.deviceplugin.nvidia.labels.labels import LabelError
from criproxy.deviceplugin.nvidia.options import Flags, GfdFlags

PATH = "/etc/kubernetes/node-feature-discovery/features.d/gfd"


def flags(*, api: bool | None = False, **gfd: object) -> Flags:
    """Return flags of feature discovery."""
    return Flags(use_node_feature_api=api, gfd=GfdFlags(**gfd))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(flags(), FileOutput(path=PATH, removed_on_exit=True), id="file"),
        pytest.param(flags(api=None), FileOutput(path=PATH, removed_on_exit=True), id="not-said"),
        pytest.param(flags(oneshot=True), FileOutput(path=PATH, removed_on_exit=False), id="once"),
        pytest.param(flags(sleep_interval_ns=None), FileOutput(path=PATH, removed_on_exit=False), id="for-ever"),
        pytest.param(flags(output_file=""), StandardOutput(), id="standard-output"),
        pytest.param(
            flags(api=True, output_file=""),
            NodeFeatureOutput(
                name="nvidia-features-for-n1",
                namespace="default",
                label=("nfd.node.kubernetes.io/node-name", "n1"),
            ),
            id="object",
        ),
    ],
)
def test_where_labels_go(given: Flags, expected: Output) -> None:
    """A file stays only where the program ends of itself; with the API there is none."""
    assert output(given, node_name="n1") == expected


@pytest.mark.parametrize(
    ("node_name", "namespace", "missing"),
    [pytest.param("", "default", "node-name", id="node"), pytest.param("n1", "", "namespace", id="namespace")],
)
def test_an_object_needs_names(node_name: str, namespace: str, missing: str) -> None:
    """NVIDIA's program does not start without."""
    with pytest.raises(LabelError, match=f"required flag {missing} not set"):
        output(flags(api=True), node_name=node_name, namespace=namespace)


def test_criproxy_writes_the_file() -> None:
    """Also where NVIDIA's program would make an object."""
    assert feature_file(flags(api=True, output_file="/x")) == FileOutput(path="/x", removed_on_exit=True)
