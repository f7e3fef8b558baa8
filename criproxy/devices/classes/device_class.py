"""One class of accelerators: the resources that allocate it, and what makes its cards visible in a container."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from posixpath import normpath
from typing import Literal

from criproxy.devices.classes.offers import REPLICA
from criproxy.devices.classes.vgpu_profiles import card_of_vgpu, is_vgpu

IdFormat = Literal["uuid", "index", "minor", "as-is", "plugin"]
"""How the visible variable names cards: by the kubelet's ids (uuid, as-is), the number at the end of these (index), the
number of the card's node (minor), or values that only its device plugin knows (plugin)."""

PLACEHOLDER = re.compile(r"\{(?:index|minor)\}")
"""The placeholder of a card's number in the path of its device node."""


def clean_path(path: str) -> str:
    """Return *path* as the runtime interprets it: absolute, without ``.``, ``..`` and repeated slashes.

    `normpath` alone keeps two slashes at the beginning, and a relative path is below the container's root, too.
    """
    return normpath("/" + path.lstrip("/"))


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Whether a variable matches one of *patterns*: names, or prefixes followed by ``*``."""
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """One kind of accelerator."""

    name: str
    resources: tuple[str, ...]
    """The extended resources that its device plugins serve; * and ? are wildcards."""
    visible_env: str = ""
    """The variable that tells the vendor's hook which cards to show; empty if there is no such hook."""
    hide_value: str = ""
    """The value with which the hook shows no cards; empty: nothing is written to hide cards."""
    write_env: bool = True
    """Whether the variable contains the allocation; if plugins pass only device nodes, the variable is the user's, and
    the hide value outweighs it in containers with a card, too."""
    strip_env: tuple[str, ...] = ()
    """More variables that show further cards, or lift limits; a * at the end is a wildcard."""
    strip_mount_prefix: tuple[str, ...] = ()
    """Prefixes of the container paths of mounts that request a card, which the rest names, with or without a '/'."""
    beside_env: tuple[tuple[str, bytes], ...] = ()
    """Variables of *strip_env* that plugins pass in addition to a card; with these values, they are kept."""
    beside_mounts: tuple[str, ...] = ()
    """What follows the prefix in mounts that plugins pass in addition to a card."""
    runtimes: tuple[str, ...] = ("*",)
    """The runtime handlers whose hook knows the hide value; for others it is not written. The default handler is ''."""
    id_format: IdFormat = "as-is"
    replica_separator: str = "::"
    """The separator between a card and the number of a replica in an id."""
    per_device: tuple[str, ...] = ()
    """The paths of a card's device nodes, with {index} or {minor} for its number."""
    shared: tuple[str, ...] = ()
    """The paths of device nodes that all cards need; * and ? match anything but '/'."""
    permissions: str = "rw"
    cdi_kinds: tuple[str, ...] = ()
    """The kinds of CDI devices, ``vendor/class``, that are its cards."""
    cdi_beside: tuple[str, ...] = ()
    """The kinds of CDI devices that its plugins pass in addition to cards, and that contain none."""
    pci_vendor: str = ""
    """In the kernel's format, ``0x1002``; distinguishes its nodes from those of other classes with the same paths."""
    env_prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The prefixes of all variables that the class manages: a quick test that excludes most variables."""

    def __post_init__(self) -> None:
        names = self.visible_env, *(name.removesuffix("*") for name in self.strip_env)
        object.__setattr__(self, "env_prefixes", tuple(filter(None, names)))

    def serves(self, resource: str) -> bool:
        """Whether *resource* belongs to the class."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources)

    def hides_in(self, runtime: str) -> bool:
        """Whether the hook of this runtime handler knows the hide value."""
        return any(fnmatchcase(runtime, pattern) for pattern in self.runtimes)

    def open_in(self, programs: Mapping[str, str]) -> list[str]:
        """Return the runtime handlers in which images can ask for cards, although their program knows the hide value.

        Args:
            programs: those that the handlers run.
        """
        if not (self.visible_env and self.hide_value):
            return []
        return [handler for handler, name in programs.items() if self.hides_in(name) and not self.hides_in(handler)]

    def hiding(self, runtime: str) -> bytes | None:
        """Return the value of the visible variable that shows no cards in this runtime handler; None if none does."""
        return self.hide_value.encode() if self.visible_env and self.hide_value and self.hides_in(runtime) else None

    def strips(self, env: str) -> bool:
        """Whether a variable other than the visible one is removed."""
        return env != self.visible_env and is_among(env, self.strip_env)

    def asked_by_mount(self, container_path: str) -> str | None:
        """Return what a mount at *container_path* requests; None if it requests no card."""
        for prefix in self.strip_mount_prefix:
            if prefix.rpartition("/")[2] not in container_path:
                continue  # however the path is written, it contains the last component
            path = clean_path(container_path)
            if path.startswith(prefix):  # as NVIDIA's toolkit compares: …-devicesall requests all cards
                return path[len(prefix) :].lstrip("/")
        return None

    def cdi_device(self, name: str) -> str | None:
        """Return the device of the CDI name ``vendor/class=device`` if it is of this class."""
        kind, _, device = name.partition("=")
        return device if kind in self.cdi_kinds else None

    def is_card_node(self, path: str) -> bool:
        """Whether *path* is the device node of one card."""
        return self.card_number(path) is not None

    def card_number(self, path: str) -> int | None:
        """Return the number in the *path* of a card's device node."""
        found = next(filter(None, (_pattern(each).fullmatch(path) for each in self.per_device)), None)
        return int(found[1]) if found else None

    def physical(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the cards of *ids*: without the numbers of replicas, each once, in order."""
        return tuple(dict.fromkeys(filter(None, map(self._whole, ids))))

    def _whole(self, id: str) -> str:
        """Return the card of *id*: vendors' plugins have their own separators of replicas; ours has one for all."""
        card, ours, number = id.partition(REPLICA)
        if ours and number.isdecimal():
            return card
        if is_vgpu(id):
            return card_of_vgpu(id)
        return id.partition(self.replica_separator)[0] if self.replica_separator else id


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    before, after = PLACEHOLDER.split(template, maxsplit=1)
    return re.compile(f"{re.escape(before)}([0-9]{{1,9}}){re.escape(after)}")
