"""Mistakes in the definition of a device class: it has no effect, affects too much, or conflicts with another one."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from criproxy.devices.classes.device_class import DeviceClass

NEEDED = (
    *("PATH", "HOME", "USER", "SHELL", "PWD", "HOSTNAME", "LANG", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "GOMAXPROCS", "OMP_NUM_THREADS"),
)
"""Variables that do not belong to a vendor."""
NOT_SHARED = ("/dev/mem", "/dev/kmsg", "/dev/port", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/dm-0")
"""Device nodes that give a container access to the host, or to its disks."""
RESERVED = frozenset({"container"})
"""Names that findings use for something other than classes."""

Mistake = tuple[tuple[str | int, ...], str]
"""A path that starts at the class, and what is wrong there."""


def mistakes(kind: DeviceClass, others: Mapping[str, DeviceClass]) -> Iterator[Mistake]:
    """Yield the mistakes in *kind*.

    Args:
        kind: the class, including its built-in values.
        others: the previous classes, by name.
    """
    if kind.name in RESERVED:
        yield ("name",), f"{kind.name!r} is reserved in criproxy's device records: choose another name"
    elif not _does_something(kind):
        needs = "visibleEnv, nodes.perDevice, cdiKinds, stripEnv or stripMountPrefix"
        yield ("name",), f"the class {kind.name!r} does nothing: it needs {needs}"
    yield from _of_variables(kind)
    for number, pattern in enumerate(kind.shared):
        if node := next((node for node in NOT_SHARED if fnmatchcase(node, pattern)), ""):
            yield (
                ("nodes", "shared", number),
                f"would give {node} to every container with a card: list only the vendor's device nodes",
            )
    rest = [other for other in others.values() if other.name != kind.name]
    for number, resource in enumerate(kind.resources):
        if other := next((each.name for each in rest if _overlap(resource, each.resources)), ""):
            yield ("resources", number), f"{resource} already belongs to the class {other!r}"


def _does_something(kind: DeviceClass) -> bool:
    return bool(kind.visible_env or kind.per_device or kind.cdi_kinds or kind.strip_env or kind.strip_mount_prefix)


def _of_variables(kind: DeviceClass) -> Iterator[Mistake]:
    text = "is a variable that programs need, and criproxy would remove it from every container"
    if kind.visible_env in NEEDED:
        yield ("visibleEnv",), f"{kind.visible_env} {text}"
    for number, pattern in enumerate(kind.strip_env):
        beginning = pattern.removesuffix("*")
        fits = (
            name for name in sorted(NEEDED) if name == pattern or (pattern.endswith("*") and name.startswith(beginning))
        )
        if name := next(fits, ""):
            yield ("stripEnv", number), f"{name} {text}"


def _overlap(resource: str, patterns: Sequence[str]) -> bool:
    """Whether one resource may match both."""
    return any(_means(resource, pattern) or _means(pattern, resource) for pattern in patterns)


def _means(one: str, pattern: str) -> bool:
    """Whether *pattern* matches a string that *one*, itself a pattern, matches, with any or no text for its ``*``."""
    return any(fnmatchcase(one.replace("*", some).replace("?", "x"), pattern) for some in ("", "x"))
