"""Whom messages are about."""

import pytest
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as api
from criproxy.node.calls.on_error import About, about

POD = api.PodSandboxConfig(metadata=api.PodSandboxMetadata(name="web", namespace="shop"))
MAIN = api.ContainerConfig(metadata=api.ContainerMetadata(name="main"))
V1 = "/runtime.v1.RuntimeService"


@pytest.mark.parametrize(
    ("method", "request_", "expected"),
    [
        pytest.param("RunPodSandbox", api.RunPodSandboxRequest(config=POD), About("shop/web"), id="sandbox"),
        pytest.param(
            "CreateContainer",
            api.CreateContainerRequest(sandbox_config=POD, config=MAIN),
            About("shop/web/main"),
            id="create",
        ),
        pytest.param("StopContainer", api.StopContainerRequest(container_id="a"), About("", "a"), id="container"),
        pytest.param("StopPodSandbox", api.StopPodSandboxRequest(pod_sandbox_id="s"), About("", "", "s"), id="pod"),
        pytest.param("Version", api.VersionRequest(), About(), id="nobody"),
        pytest.param("Unheard", api.VersionRequest(), About(), id="unknown"),
    ],
)
def test_a_request_tells_whom_it_is_about(method: str, request_: Message, expected: About) -> None:
    """By name where it has one, else by id."""
    assert about(f"{V1}/{method}", request_.SerializeToString()) == expected


def test_a_reply_may_tell_it_too() -> None:
    """That of ContainerStatus does; what cannot be read is about nobody."""
    reply = api.ContainerStatusResponse(status=api.ContainerStatus(id="a")).SerializeToString()

    assert about(f"{V1}/ContainerStatus", reply, is_reply=True) == About("", "a")
    assert about(f"{V1}/ContainerStatus", b"\xff", is_reply=True) == About()


def test_a_create_whose_strings_are_not_utf8_has_its_name() -> None:
    """Such a one is refused: the log says whose it was."""
    request = api.CreateContainerRequest(sandbox_config=POD, config=MAIN)
    request.config.args.append("MARK")

    message = request.SerializeToString().replace(b"MARK", b"\xff\xfeok")

    assert about(f"{V1}/CreateContainer", message) == About("shop/web/main")
