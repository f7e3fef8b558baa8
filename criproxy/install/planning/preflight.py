"""Pure: what on a node stands against an installation, and what its administrators should know."""

import re
from collections.abc import Iterable, Iterator

from criproxy.install.planning import paths
from criproxy.install.planning.facts import Facts

_MANAGERS = (
    ("cpu-manager-policy", "cpuManagerPolicy"),
    ("memory-manager-policy", "memoryManagerPolicy"),
)
_NONE = (None, "", "none", "None")


def problems(facts: Facts, runtime: str) -> Iterator[str]:
    """Yield the reasons for which criproxy cannot be installed now; *runtime*: the socket of the runtime."""
    yield from facts.rivals
    yield from managers(facts)
    if runtime not in facts.sockets:
        yield f"no runtime listens on {runtime}: start it, or name its socket with --runtime-endpoint"
    yield from _missing(facts)


def managers(facts: Facts) -> Iterator[str]:
    """Yield the kubelet's own managers that would pin the same containers, and the files that may enable them."""
    for unread in facts.unread:
        yield (
            f"cannot read {unread}; so nobody knows whether the kubelet's own CPU or memory manager is enabled, and "
            "which CPUs the kubelet reserves"
        )
    for flag, key in _MANAGERS:
        value = facts.kubelet_value(flag, key)
        if value not in _NONE:
            yield (
                f"the kubelet's {key} is {value}: two programs that pin the same containers undo each other's changes. "
                f"Drain the node and set {key} to {'None' if key.startswith('memory') else 'none'}; "
                "docs/install.md, step 3, has the steps"
            )


def of_links(facts: Facts, names: Iterable[str]) -> Iterator[str]:
    """Yield the files among *names* that cannot be changed, since the node would not be as before."""
    for path in names:
        if path in facts.linked:
            yield (
                f"{path} has several hard links, and only this one would change: replace it with a copy: "
                f"'cp --preserve {path} {path}.new' and 'mv {path}.new {path}'"
            )


def _missing(facts: Facts) -> Iterator[str]:
    brought = facts.brought
    if not facts.program and not brought.home:
        yield f"there is no program {paths.PROGRAM}: install the deb, or follow step 1 of docs/install.md"
    units = {*facts.unit_texts, *brought.units}
    if missing := [name for name in paths.UNITS if name not in units]:
        yield f"these units are missing: {', '.join(missing)}: install the deb, or follow step 1 of docs/install.md"
    if paths.POLICY not in facts.texts and brought.policy is None:
        yield f"there is no policy file {paths.POLICY}: name one with --policy"


def notes(facts: Facts) -> Iterator[str]:
    """Yield what is allowed, but may not be intended."""
    topology = facts.kubelet_value("topology-manager-policy", "topologyManagerPolicy")
    if topology not in _NONE:
        yield (
            f"the kubelet's topologyManagerPolicy is {topology}: without its CPU manager it aligns only devices, and "
            "may refuse pods that criproxy would place"
        )
    image = facts.kubelet_value("image-service-endpoint", "imageServiceEndpoint")
    if image:
        yield f"the kubelet calls the image service at {image}, and will continue to do so"
    kubelet, runtime = cgroup_drivers(facts)
    if kubelet and runtime and kubelet != runtime:
        yield f"the kubelet's cgroup driver is {kubelet}, and the runtime's is {runtime}: they must be the same"


def cgroup_drivers(facts: Facts) -> tuple[str, str]:
    """Return the cgroup drivers of the kubelet and of the runtime; empty if unknown."""
    if facts.kind.embeds_kubelet:
        return "", ""  # it sets both
    kubelet = facts.kubelet_value("cgroup-driver", "cgroupDriver") or ""
    containerd = facts.texts.get("/etc/containerd/config.toml", "")
    if found := re.search(r"^\s*SystemdCgroup\s*=\s*(true|false)", containerd, re.MULTILINE):
        return kubelet, "systemd" if found[1] == "true" else "cgroupfs"
    return kubelet, ""
