"""Pod annotations by which workload owners tell a policy what they want.

An annotation is ``KEY.DOMAIN/container.NAME`` for one container, ``KEY.DOMAIN/pod`` or ``KEY.DOMAIN`` for all of a pod.
The domain is ours or one of our peers', so that a workload keeps its annotations when its node moves over.
"""

from collections.abc import Mapping

DOMAINS = ("criproxy.io", "cri-resource-manager.intel.com", "resource-policy.nri.io")
"""In the order in which they count: ours wins."""


def policy_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Those of a pod's *annotations* that a policy may read; nothing else of them is kept."""
    return {key: value for key, value in annotations.items() if _domain(key) in DOMAINS}


def _domain(key: str) -> str:
    """The one of our domains that *key* ends with, as far as its slash."""
    name = key.partition("/")[0]
    return next((domain for domain in DOMAINS if name == domain or name.endswith(f".{domain}")), "")


def effective(annotations: Mapping[str, str], key: str, container: str) -> tuple[str, str] | None:
    """The annotation that says *key* for a container of a pod: its full name and its value.

    What is said about the container goes before what is said about its pod, and our domain before all others.

    Args:
        annotations: of the pod.
        key: such as ``prefer-isolated-cpus``.
        container: its name in the pod.
    """
    for domain in DOMAINS:
        for name in (f"{key}.{domain}/container.{container}", f"{key}.{domain}/pod", f"{key}.{domain}"):
            if name in annotations:
                return name, annotations[name]
    return None
