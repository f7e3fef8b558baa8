"""One class of accelerators: the resources that allocate it, and what makes its cards visible in a container."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from criproxy.devices.offers import REPLICA
from criproxy.devices.paths import clean_path
from criproxy.devices.vgpu_profiles import card_of_vgpu, is_vgpu

IdFormat = Literal["uuid", "index", "minor", "as-is", "plugin"]
"""What the visible variable says of the ids that the kubelet knows: the same words (uuid, as-is), the number at the end
of each (index), the number of the card's node (minor), or what only its device plugin knows (plugin)."""

PLACEHOLDER = re.compile(r"\{(?:index|minor)\}")
"""Stands for a card's number in the path of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """One kind of accelerator."""

    name: str
    resources: tuple[str, ...]
    """Extended resources that its plugins serve; * and ? stand for anything."""
    visible_env: str = ""
    """The variable from which the vendor's hook learns which cards to show; empty where there is no such hook."""
    hide_value: str = ""
    """With this value the hook shows none; empty: nothing is written to hide."""
    write_env: bool = True
    """Whether the variable says what was allocated; not where plugins pass nodes only, so that it is the user's."""
    strip_env: tuple[str, ...] = ()
    """More variables that widen what is seen, or lift its limits; a * at the end stands for anything."""
    strip_mount_prefix: tuple[str, ...] = ()
    """What the path of a mount in the container begins with whose rest asks for a card, with or without a '/'."""
    beside_env: tuple[tuple[str, bytes], ...] = ()
    """Variables of *strip_env*, each with the value that its plugins pass beside a card: with it they get in there."""
    beside_mounts: tuple[str, ...] = ()
    """What mounts that its plugins pass beside a card have behind that beginning."""
    runtimes: tuple[str, ...] = ("*",)
    """Runtime handlers whose hook knows the hide value; elsewhere it is not written. The default handler is ''."""
    id_format: IdFormat = "as-is"
    replica_separator: str = "::"
    """What follows it in an id is the number of a share, and not of the card."""
    per_device: tuple[str, ...] = ()
    """Paths of a card's nodes, with {index} or {minor} for its number."""
    shared: tuple[str, ...] = ()
    """Paths of nodes that all cards need; * and ? stand for anything but '/'."""
    permissions: str = "rw"
    cdi_kinds: tuple[str, ...] = ()
    """Kinds of CDI devices, ``vendor/class``, that are its cards."""
    cdi_beside: tuple[str, ...] = ()
    """Kinds of CDI devices that its plugins pass beside cards, and that bring none."""
    pci_vendor: str = ""
    """Tells its nodes from those of other classes with such paths: as the kernel writes it, ``0x1002``."""
    env_prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """What every variable begins with that the class manages; a quick test for the many that it does not."""

    def __post_init__(self) -> None:
        names = self.visible_env, *(name.removesuffix("*") for name in self.strip_env)
        object.__setattr__(self, "env_prefixes", tuple(filter(None, names)))

    def serves(self, resource: str) -> bool:
        """Whether *resource* is one of its."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources)

    def hides_in(self, runtime: str) -> bool:
        """Whether the hook of this runtime handler knows the hide value."""
        return any(fnmatchcase(runtime, pattern) for pattern in self.runtimes)

    def strips(self, env: str) -> bool:
        """Whether a variable of that name is beside the visible one and does not get in."""
        return env != self.visible_env and any(
            env.startswith(name[:-1]) if name.endswith("*") else env == name for name in self.strip_env
        )

    def asked_by_mount(self, container_path: str) -> str | None:
        """What a mount at *container_path* asks for; None where it is a mount like others."""
        for prefix in self.strip_mount_prefix:
            if prefix.rpartition("/")[2] not in container_path:
                continue  # in whatever way it is written, its last name is in there
            path = clean_path(container_path)
            if path.startswith(prefix):  # as NVIDIA's toolkit compares: …-devicesall asks for all
                return path[len(prefix) :].lstrip("/")
        return None

    def cdi_device(self, name: str) -> str | None:
        """The device of the CDI name ``vendor/class=device``, if the kind is one of its."""
        kind, _, device = name.partition("=")
        return device if kind in self.cdi_kinds else None

    def is_beside_cards(self, name: str) -> bool:
        """Whether a CDI device brings no card."""
        return name.partition("=")[0] in self.cdi_beside

    def is_card_node(self, path: str) -> bool:
        """Whether *path* is a node of one card."""
        return self.card_number(path) is not None

    def card_number(self, path: str) -> int | None:
        """The number in the *path* of a card's node."""
        found = next(filter(None, (_pattern(each).fullmatch(path) for each in self.per_device)), None)
        return int(found[1]) if found else None

    def physical(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The cards that *ids* mean: without numbers of shares, each once, in their order."""
        return tuple(dict.fromkeys(filter(None, map(self._whole, ids))))

    def _whole(self, id: str) -> str:
        """The card of *id*: its own plugins separate shares in their way, and ours in one way for all classes."""
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
