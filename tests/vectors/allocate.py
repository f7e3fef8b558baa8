"""What a container gets in answer to Allocate: ``allocate.yaml``."""

from collections.abc import Mapping
from typing import Any

from criproxy.deviceplugin.nvidia.allocation import Allocator, MpsError
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.devices.evidence.device_request import InvalidRequest, Response
from tests.vectors.cards import config_of_case
from tests.vectors.resources import differs, offers_of

Case = Mapping[str, Any]
UUID = "4f7fbd5e-5c8f-4d3c-9a5e-000000000000"


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    expected = case["expect"]
    try:
        allocator = _allocator(case, whole)
        responses = [allocator.allocate(ids) for ids in case["requests"]]
    except InvalidRequest as error:
        return differs(str(error), expected.get("error"))
    except (MpsError, ResourceError) as error:
        # How the plugin says that it does not start depends on the place of the check: the innermost part counts.
        fits = str(error).rpartition(": ")[2] in expected.get("start_error", "")
        return None if fits else f"the plugin does not start: {error}"
    if "responses" not in expected:
        return f"found {responses!r}, expected {expected!r}"
    free = case.get("order_free", False)
    return differs(
        [_comparable(_plain(each), free=free) for each in responses],
        [_comparable(each, free=free) for each in expected["responses"]],
    )


def _allocator(case: Case, whole: Case) -> Allocator:
    resource = case["resource"]
    config = config_of_case(case)
    return Allocator(
        resource=resource,
        offered=offers_of(case, whole).get(resource, {}),
        config=config,
        only_one=config.sharing.only_one,
        platform=case.get("platform", "nvml"),
        nodes=tuple(case.get("existing_nodes", ())),
        imex_channels=tuple(case.get("imex_channels", ())),
        new_uuid=lambda: UUID,
    )


def _plain(response: Response) -> dict[str, Any]:
    """As the vectors write it: without empty parts but that of variables."""
    found: dict[str, Any] = {
        "envs": dict(response.envs),
        "mounts": [
            {"container_path": each.container_path, "host_path": each.host_path, "read_only": each.read_only}
            for each in response.mounts
        ],
        "devices": [each._asdict() for each in response.devices],
        "cdi_devices": list(response.cdi_devices),
        "annotations": [
            {"key_prefix": key.removesuffix(UUID), "value": value} for key, value in response.annotations.items()
        ],
    }
    return {name: part for name, part in found.items() if part or name == "envs"}


def _comparable(response: Mapping[str, Any], *, free: bool) -> dict[str, Any]:
    """The response, where the order is *free* with its lists sorted."""
    if not free:
        return dict(response)
    lists = {name: sorted(part, key=str) for name, part in response.items() if name != "envs"}
    return lists | {"envs": {name: sorted(value.split(",")) for name, value in response["envs"].items()}}
