"""The table of CRI methods against the services of the protocol file."""

import pytest

from criproxy.cri import api_pb2, methods
from criproxy.cri.methods import BY_PATH, METHODS
from criproxy.cri.touched_methods import PACKAGES, TOUCHED, touched_paths

SERVICES = {name: [m.name for m in s.methods] for name, s in api_pb2.DESCRIPTOR.services_by_name.items()}


def test_every_method_of_both_services_is_known_in_both_packages() -> None:
    """The known paths are the services times the packages, and nothing else."""
    expected = {
        f"/{package}.{service}/{name}"
        for package in ("runtime.v1", "runtime.v1alpha2")
        for service, names in SERVICES.items()
        for name in names
    }

    assert expected == methods.KNOWN_METHODS
    assert {"RuntimeService", "ImageService"} == set(SERVICES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_path_leads_to_its_message_classes(package: str) -> None:
    """Both packages are read with the classes of `api_pb2`."""
    method = methods.BY_PATH[f"/{package}.RuntimeService/CreateContainer"]

    assert (api_pb2.CreateContainerRequest, api_pb2.CreateContainerResponse) == (method.request, method.reply)
    assert not method.server_streaming


def test_paths_of_a_short_name() -> None:
    """A short name gives the current path first, then the old one."""
    expected = ("/runtime.v1.ImageService/PullImage", "/runtime.v1alpha2.ImageService/PullImage")

    assert expected == methods.paths("PullImage")


# ---------------------------------------------------------------- paths


def test_touched_methods_are_methods_of_cri() -> None:
    """Each is one of RuntimeService, under the paths that its descriptor gives."""
    assert {path for name in TOUCHED for path in METHODS[name].paths} == touched_paths() <= BY_PATH.keys()
