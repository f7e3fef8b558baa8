"""Files of other programs, and objects and values that contain a file: how they are known, what is right instead."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

_CRIRM = "docs/migrate-from-crirm.md"
_NRI = "docs/migrate-from-nri-plugins.md"
_KINDS = ("TopologyAwarePolicy", "BalloonsPolicy", "TemplatePolicy")
"""The kinds of nri-plugins' objects."""
CRIRM_POLICIES = {
    "none": "none",
    "static": "static",
    "static-plus": "static",
    "static-pools": "pools",
    "podpools": "pools",
    "topology-aware": "topology-aware",
    "memtier": "topology-aware",
    "balloons": "balloons",
    "dynamic-pools": "balloons",
}
"""Policy of CRI-RM → the one that does its work here."""
_OPTIONS = {
    **dict.fromkeys(("blockio", "cpu", "dump", "logger", "rdt", "resource-manager"), ("CRI-RM", _CRIRM)),
    **dict.fromkeys(("agent", "control", "log"), ("nri-plugins", _NRI)),
    "instrumentation": ("CRI-RM and nri-plugins", f"{_CRIRM} and {_NRI}"),
    **dict.fromkeys(
        ("controllableInterrupts", "cpuClasses", "schedulingClasses"), ("other policies", "docs/classes.md")
    ),
}
"""Option beside those of the policy, which policy files do not have → the programs that have it, and the page."""
_NRI_OPTIONS = frozenset(("availableResources", "balloonTypes", "pinCPU", "pinMemory", "reservedResources"))
"""Some of those in the values of every chart of nri-plugins."""
_HEEDED = frozenset(("flags", "imex", "sharing", "version"))
"""Keys of NVIDIA's file in small letters, beside ``resources``, which values of Helm charts have, too."""
_OF_PODS = frozenset(("claims", "limits", "requests"))
"""The keys of ``resources`` in values of Helm charts."""
_OF_VALUES = frozenset(("affinity", "config", "devicePlugin", "gfd", "image", "nfd", "nodeSelector", "tolerations"))
"""Some of the keys in the values of NVIDIA's charts."""
_DEEP = 6
"""How deep texts lie in values: no deeper than the dependency of a dependency of a chart."""
_IS_NVIDIA = re.compile(r"(?m)^version:\s*[\"']?v1\b")
_NVIDIA_FILE = "a file of NVIDIA's device plugin"
_NAME_NVIDIA_FILE = "name that file with devices.plugin.nvidiaConfig"
_OUR_VALUES = "these are values of criproxy's Helm chart"
_NO_TEXTS = "this is a ConfigMap without texts"
_NAMED = 3


def recognised(data: Mapping[str, Any]) -> str:
    """Return a sentence about a whole file that is no policy file, but known; empty if it is not known."""
    kind = data.get("kind")
    if kind in _KINDS or str(data.get("apiVersion")).startswith("config.nri/"):
        return _sentence("nri-plugins", _NRI)
    if kind == "ConfigMap":
        return _of_config_map(data)
    if data.get("version") == "v1" and "policy" not in data:
        return f"this is {_NVIDIA_FILE}: {_NAME_NVIDIA_FILE}"
    return _other_object(data, "a policy file") or _of_values(data)


def instead_of_nvidia_file(data: Any, places: Mapping[str, str]) -> str:  # noqa: ANN401 (YAML)
    """Return a sentence about a whole file of which NVIDIA's plugin would heed nothing; empty if it heeds anything.

    Args:
        data: The content of the file.
        places: Where keys belong in NVIDIA's file, such as ``flags.migStrategy`` for ``migStrategy``.
    """
    if not isinstance(data, Mapping) or not data or any(_is_heeded(key, value) for key, value in data.items()):
        return ""
    if data.get("kind") == "ConfigMap":
        texts = _texts("data", data.get("data"))
        return f"this is a ConfigMap: the {_NVIDIA_FILE[2:]} is the text of {texts} alone" if texts else _NO_TEXTS
    if _inside(data, "devicePlugin", "nvidiaConfig"):
        return f"{_OUR_VALUES}: the {_NVIDIA_FILE[2:]} is the content of 'devicePlugin.nvidiaConfig'"
    prefix, texts = _nvidia_values(data)
    if texts:
        return f"{prefix}the {_NVIDIA_FILE[2:]} is the text of {texts} alone"
    if isinstance(data.get("policy"), str):
        return "this is a policy file of criproxy"
    return _other_object(data, _NVIDIA_FILE) or _without_effect(data, places)


def _is_heeded(key: str, value: Any) -> bool:  # noqa: ANN401 (YAML)
    if key.lower() != "resources" or value is None:
        return key.lower() in _HEEDED
    return not isinstance(value, Mapping) or not value.keys() <= _OF_PODS


def _without_effect(data: Mapping[str, Any], places: Mapping[str, str]) -> str:
    if data.keys() <= {"resources"}:
        return ""
    if not data.keys().isdisjoint(_OF_VALUES):
        return f"these are Helm values, without a text that is {_NVIDIA_FILE}, such as one of config.map"
    near = (places[close] for key in data for close in get_close_matches(key, places, n=1))
    meant = " and ".join(list(dict.fromkeys(near))[:_NAMED])
    text = "NVIDIA's device plugin ignores the whole file: at the top, it knows only version, flags, resources, sharing"
    return f"{text} and imex{f'; did you mean {meant}?' if meant else ''}"


def _nvidia_texts(data: Any, where: str = "", depth: int = _DEEP) -> Iterator[str]:  # noqa: ANN401 (YAML)
    """Yield where NVIDIA's files are among the texts in *data*."""
    if isinstance(data, str) and where and _IS_NVIDIA.search(data):
        yield where
    for key, value in data.items() if isinstance(data, Mapping) and depth else ():
        yield from _nvidia_texts(value, f"{where}.{key}" if where else str(key), depth - 1)


def _of_config_map(data: Mapping[str, Any]) -> str:
    contents = data.get("data")
    contents = contents if isinstance(contents, Mapping) else {}
    name = str(_inside(data, "metadata", "name"))
    if name.startswith("nri-resource-policy") or "nri-resource-policy.cfg" in contents:
        return _sentence("nri-plugins", _NRI)
    is_policy = re.search(r"(?m)^\s*Active:", str(contents.get("policy")))
    if (
        name.startswith("cri-resmgr-config")
        or is_policy
        or any(_OPTIONS.get(key, ("",))[0] == "CRI-RM" for key in contents)
    ):
        return _sentence("CRI-RM", _CRIRM)
    texts = _texts("data", contents)
    if any(_IS_NVIDIA.search(str(text)) for text in contents.values()):
        return f"this is a ConfigMap: the text of {texts} alone is {_NVIDIA_FILE}; {_NAME_NVIDIA_FILE}"
    return f"this is a ConfigMap: the policy file is the text of {texts} alone" if texts else _NO_TEXTS


def _of_values(data: Mapping[str, Any]) -> str:
    """Return a sentence about the values of a Helm chart, or about a configuration of CRI-RM, which has groups, too."""
    policy, config = data.get("policy"), data.get("config")
    is_ours = isinstance(policy, Mapping) and isinstance(policy.get("policy"), str)
    if is_ours or (policy is None and {"policy", "devicePlugin"} <= data.keys()):
        return f"{_OUR_VALUES}: the policy file is the content of 'policy'"
    if isinstance(policy, Mapping):
        return _sentence("CRI-RM", _CRIRM)
    prefix, texts = _nvidia_values(data)
    if texts:
        return f"{prefix}the text of {texts} alone is {_NVIDIA_FILE}; {_NAME_NVIDIA_FILE}"
    if isinstance(config, Mapping) and (_NRI_OPTIONS & config.keys() or "nri" in data):
        return (
            "these are Helm values of nri-plugins: the policy file is the content of 'config' with the name of its "
            f"policy; {_NRI} explains how to translate it"
        )
    return ""


def _nvidia_values(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return how to begin a sentence about the texts in *data* that are NVIDIA's files, and these; empty if none is.

    The charts of NVIDIA's device plugin and of its GPU operator have them as known values.
    """
    for path in (("config", "map"), ("devicePlugin", "config", "data")):
        if texts := _texts(".".join(path), _inside(data, *path)):
            return "these are Helm values: ", texts
    return "", _listed([*_nvidia_texts(data)])


def _other_object(data: Mapping[str, Any], what: str) -> str:
    kind = data.get("kind")
    is_object = isinstance(kind, str) and isinstance(data.get("apiVersion"), str)
    return f"this is an object of Kubernetes ({kind}), not {what}" if is_object else ""


def _inside(data: Any, *path: str) -> Any:  # noqa: ANN401 (YAML)
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _texts(where: str, contents: Any) -> str:  # noqa: ANN401 (YAML)
    """Return the keys of the texts in *contents*, as people write them; empty if there is none."""
    values = contents if isinstance(contents, Mapping) else {}
    return _listed([f"{where}.{key}" for key, text in values.items() if isinstance(text, str)])


def _listed(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} or another key"
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _sentence(program: str, page: str) -> str:
    return f"this is a configuration of {program}: {page} explains how to translate it"


def instead_of_policy(name: str) -> str:
    """Return ``; …`` about the policy that replaces one of CRI-RM; empty if *name* is none of its policies."""
    if name == CRIRM_POLICIES.get(name, name):
        return ""
    return f"; {CRIRM_POLICIES[name]!r} replaces CRI-RM's {name!r}: {_CRIRM} explains how to translate its options"


def about_option(name: str) -> str:
    """Return ``; …`` about an option of another program that policy files do not have; empty if it is none."""
    if name not in _OPTIONS:
        return ""
    programs, page = _OPTIONS[name]
    return f"; it is one of {programs}, see {page}"
