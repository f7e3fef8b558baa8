"""Device nodes: the names that change when cards appear or disappear, and the render nodes that some cards have."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from posixpath import split

from criproxy.deviceplugin.cards.nvml_inventory import mig_instances
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import PLACEHOLDER, DeviceClass
from criproxy.host.devices.cards import NVIDIA_GPUS
from criproxy.host.devices.places import PCI
from criproxy.host.files import entries

_RENDER_NODES = "/dev/dri"

Names = frozenset[str]


def names_of_cards(classes: Iterable[DeviceClass], host_root: Path) -> Names:
    """Return the names that depend on cards: while they are the same, so are the cards."""
    found = set[str]()
    for folder, pattern in _patterns(tuple(classes)).items():
        found |= {f"{folder}/{name}" for name in entries(host_root / folder) if pattern.fullmatch(name)}
    found |= {f"{NVIDIA_GPUS}/{name}" for name in entries(host_root / NVIDIA_GPUS)}
    return frozenset(found.union(mig_instances(host_root)))


@lru_cache(maxsize=8)
def _patterns(classes: tuple[DeviceClass, ...]) -> Mapping[str, re.Pattern[str]]:
    """Return, by directory, a pattern for the names of the nodes that matter there."""
    found: dict[str, list[str]] = {_RENDER_NODES[1:]: ["renderD*"], "dev": ["dxg"]}
    for kind in classes:
        for path in (*kind.per_device, *kind.shared):
            folder, name = split(PLACEHOLDER.sub("*", path))
            found.setdefault(folder.lstrip("/"), []).append(name)
    return {folder: re.compile("|".join(map(_expression, names))) for folder, names in found.items()}


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def with_render_nodes(stock: Stock, host_root: Path) -> Stock:
    """Return *stock* with the render nodes of the cards of /dev/dri, which programs use to compute."""
    return replace(stock, cards=tuple(_with_render_node(card, host_root) for card in stock.cards))


def _with_render_node(card: Card, host_root: Path) -> Card:
    """Add the render node of a card: the kernel numbers them differently, but their PCI function is the same."""
    if not card.pci or not any(path.startswith(f"{_RENDER_NODES}/") for path in card.nodes):
        return card
    names = [name for name in entries(host_root / PCI / card.pci / "drm") if name.startswith("renderD")]
    more = [path for name in names if (host_root / (path := f"{_RENDER_NODES}/{name}").lstrip("/")).exists()]
    return replace(card, nodes=(*card.nodes, *(path for path in more if path not in card.nodes)))
