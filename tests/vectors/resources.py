"""Cards and a configuration make resources with ids: ``resources.yaml``."""

from collections.abc import Mapping
from typing import Any

from criproxy.deviceplugin.nvidia.allocation import MpsError, overloaded
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigMinors
from criproxy.deviceplugin.nvidia.resources import ResourceError, matches, offers
from criproxy.devices.classes.mig_profiles import mixed_resource, profile_name
from criproxy.devices.classes.offers import Offered, Offers, card_of, is_replica
from criproxy.devices.mps_client import PIPE_DIRECTORY, ROOT, pipe_directory
from criproxy.errors import ConfigError
from tests.vectors.cards import config_of_case, gpus_of
from tests.vectors.deliberate import Difference

Case = Mapping[str, Any]
NEVER_BOTH = "no card is offered whole and shared at once"


def judge(case: Case, whole: Case) -> str | None:
    """What differs from ``expect``; None: nothing does."""
    match case["kind"]:
        case "device-map":
            return _device_map(case, whole)
        case "pattern":
            return differs(matches(case["pattern"], case["input"]), case["expect"])
        case "mig-name":
            return differs(_name(case), case["expect"])
        case _:
            return _daemons(case, whole)


def by_rule(case: Case, whole: Case) -> Difference | None:
    """NVIDIA's code, if it did not drop ``devices``, would offer some cards whole and shared; ours are only shared."""
    honoured = case.get("expect_if_honoured", {}).get("resources", {})
    shared = {card_of(each) for ids in honoured.values() for each in ids if is_replica(each)}
    resources = {name: [each for each in ids if each not in shared] for name, ids in honoured.items()}
    if resources == honoured:
        return None
    return Difference(NEVER_BOTH, {"resources": {name: ids for name, ids in resources.items() if ids}})


def differs(found: object, expected: object) -> str | None:
    """How a result differs from the expected one."""
    return None if found == expected else f"found {found!r}, expected {expected!r}"


def differs_error(error: Exception, expected: Mapping[str, Any]) -> str | None:
    """How the text of an error differs from the fragment, and from the whole, that is expected."""
    text, fragment = str(error), expected.get("error")
    if fragment is None or fragment not in text:
        return f"found the error {text!r}, expected {expected!r}"
    return differs(text, expected.get("full_error", text))


def minors_of(gpus: tuple[Gpu, ...]) -> MigMinors:
    """The numbers of capability nodes on the machine of the vectors; their header has the rule."""
    found: dict[tuple[int, int, int | None], int] = {}
    for gpu in gpus:
        for device in gpu.mig:
            number = 3 + 135 * gpu.minor + 9 * device.gi
            found |= {(gpu.minor, device.gi, None): number, (gpu.minor, device.gi, device.ci): number + 1 + device.ci}
    return found


def offers_of(case: Case, whole: Case) -> Offers:
    """What the cards of *case* are offered as."""
    gpus = gpus_of(case, whole)
    platform = case.get("platform", "nvml")
    return offers(gpus, config_of_case(case), minors=minors_of(gpus), platform=platform)


def _device_map(case: Case, whole: Case) -> str | None:
    expected = case["expect"]
    try:
        found = offers_of(case, whole)
    except (ConfigError, ResourceError) as error:
        return differs_error(error, expected)
    if "error" in expected:
        return f"found {found!r}, expected the error {expected['error']!r}"
    resources = {name: sorted(offered) for name, offered in found.items()}
    wanted = expected.get("details", {})
    details = {each.id: _details(each) for offered in found.values() for each in offered.values()}
    return differs(resources, {name: sorted(ids) for name, ids in expected["resources"].items()}) or differs(
        {name: each for name, each in details.items() if name in wanted}, wanted
    )


def _details(offered: Offered) -> dict[str, Any]:
    return {
        "index": offered.index,
        "paths": list(offered.paths),
        "replicas": offered.replicas,
        "numa": offered.numa_node,
    }


def _name(case: Case) -> dict[str, str | None]:
    sizes = {key: case[key] for key in ("device_memory_mib", "mig_memory_mib", "gi_slices", "ci_slices")}
    profile = profile_name(**sizes, attribute=case["attribute"] or "")
    return {"profile": profile, "mixed_resource": mixed_resource(profile)}


def _daemons(case: Case, whole: Case) -> str | None:
    """Criproxy starts no daemons: it says which cards NVIDIA's would refuse, and where clients find those."""
    config, found = config_of_case(case), offers_of(case, whole)
    for text in overloaded(found, gpus_of(case, whole), config).values():
        return differs_error(MpsError(text), case["expect"])
    shared = [
        name for name, offered in found.items() if config.sharing.strategy == "mps" and any(map(is_replica, offered))
    ]
    pipes = [each["env"][PIPE_DIRECTORY] for each in case["expect"].get("daemons", ())]
    return differs([pipe_directory(ROOT, name) for name in shared], pipes)
