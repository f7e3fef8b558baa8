"""What calls are about, by their paths."""

import pytest

from criproxy.api.live import CLASSES, class_of
from criproxy.cri.methods import KNOWN_METHODS, METHODS
from criproxy.cri.touched_methods import PACKAGES, TOUCHED, call_paths


@pytest.mark.parametrize(
    ("name", "word"),
    [
        pytest.param("CreateContainer", "containers", id="create"),
        pytest.param("UpdateContainerResources", "containers", id="resize"),
        pytest.param("RunPodSandbox", "pods", id="pod"),
        pytest.param("UpdatePodSandboxResources", "pods", id="pod-resize"),
        pytest.param("ListContainers", "polls", id="list"),
        pytest.param("PodSandboxStatus", "polls", id="status"),
        pytest.param("Version", "polls", id="version"),
        pytest.param("ContainerStats", "polls", id="stats"),
        pytest.param("ExecSync", "streams", id="exec"),
        pytest.param("GetContainerEvents", "streams", id="events"),
        pytest.param("PullImage", "images", id="pull"),
        pytest.param("ListImages", "images", id="list-of-images"),
    ],
)
@pytest.mark.parametrize("package", [0, 1], ids=PACKAGES)
def test_the_class_of_a_method(package: int, name: str, word: str) -> None:
    """It is the same in both packages of CRI."""
    assert class_of(METHODS[name].paths[package]) == word


def test_every_method_of_cri_has_a_class() -> None:
    """None of them counts as another program's call."""
    assert "other" not in {class_of(path) for path in KNOWN_METHODS}
    assert {class_of(path) for path in KNOWN_METHODS} == {*CLASSES} - {"other"}


def test_what_changes_containers_is_no_poll() -> None:
    """The methods that criproxy touches are polls only if they ask."""
    polls = {name for name in TOUCHED if class_of(call_paths("RuntimeService", name)[0]) in {"polls", "streams"}}
    assert polls == {"ContainerStatus", "PodSandboxStatus", "GetContainerEvents"}


@pytest.mark.parametrize(
    "path", ["", "/", "other", "/criproxy.v1.Criproxy/Here", "/runtime.v1.RuntimeService/", "/a/b/c"]
)
def test_what_is_not_of_cri_is_other(path: str) -> None:
    """Whatever a client calls has a class."""
    assert class_of(path) == "other"
