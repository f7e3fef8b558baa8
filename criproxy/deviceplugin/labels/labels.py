"""The labels of resources of other vendors than NVIDIA: the number and model of the cards, and how they are shared.

As with NVIDIA, the keys begin with the resource, and so with the vendor's domain: ``huawei.com/Ascend910.count``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.classes.offers import Offered, Offers, unique
from criproxy.devices.classes.sharing import SHARED_SUFFIX

_BLANKS = re.compile(r"[\s/]+")
NOT_SHARED = "none"
"""The strategy of cards that are not shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """A resource that is offered."""

    resource: str
    """The original name of the resource, with its domain."""
    cards: int
    products: tuple[str, ...] = ()
    """The models of the cards, as far as they are known."""
    replicas: int = 1
    """The number of replicas of each card; the maximum if cards differ."""
    strategy: str = NOT_SHARED
    """How shared cards are shared, such as ``time-slicing``."""
    renamed: bool = False
    """Whether shared cards are offered as another resource."""


def advertised(
    offers: Offers,
    products: Mapping[str, str],
    *,
    strategy: str = "time-slicing",
    originals: Mapping[str, str] | None = None,
) -> list[Advertised]:
    """Return the resources that labels describe; a resource and the renamed one of its shared cards are one.

    Args:
        offers: all that is offered.
        products: the models by the id of the card, as far as they are known.
        strategy: how cards are shared.
        originals: the original name of renamed resources; by default, the name without the suffix of shared ones.
    """
    found: dict[str, dict[str, list[Offered]]] = {}
    for resource, offered in offers.items():
        original = (originals or {}).get(resource) or resource.removesuffix(SHARED_SUFFIX)
        found.setdefault(original, {})[resource] = list(offered.values())
    return [_one(original, parts, products, strategy) for original, parts in found.items()]


def _one(
    original: str, parts: Mapping[str, Sequence[Offered]], products: Mapping[str, str], strategy: str
) -> Advertised:
    offered = [each for part in parts.values() for each in part]
    cards = unique(each.card for each in offered)
    return Advertised(
        resource=original,
        cards=len(cards),
        products=tuple(products[card] for card in cards if products.get(card)),
        replicas=max((each.replicas for each in offered), default=1) or 1,
        strategy=strategy,
        renamed=not any(each.replicas for each in parts.get(original, ())),
    )


def resource_labels(advertised: Advertised) -> dict[str, str]:
    """Return the labels of one resource."""
    name, shared = advertised.resource, advertised.replicas > 1
    labels = {
        f"{name}.count": str(advertised.cards),
        f"{name}.replicas": str(advertised.replicas),
        f"{name}.sharing-strategy": advertised.strategy if shared else NOT_SHARED,
    }
    if model := _most_common(advertised.products):
        labels[f"{name}.product"] = f"{model}-SHARED" if shared and not advertised.renamed else model
    return labels


def vgpu_labels(resource: str, offered: Sequence[Offered]) -> dict[str, str]:
    """Return the labels of a profile: the numbers of its vGPUs and their cards, and the smallest quotas among them."""
    vgpus = [each.vgpu for each in offered if each.vgpu]
    cards = unique(each.whole_index for each in offered if each.vgpu)
    labels = {f"{resource}.count": str(len(vgpus)), f"{resource}.cards": str(len(cards))}
    for name, quotas in (
        ("memory-mib", [each.memory_mib for each in vgpus]),
        ("cores-percent", [each.cores_percent for each in vgpus]),
    ):
        if any(quotas):
            labels[f"{resource}.{name}"] = str(min(quotas))
    return labels


def _most_common(products: Iterable[str]) -> str:
    """Return the most common model, the first in the alphabet if there are several; a label has room for one."""
    words = Counter(_BLANKS.sub("-", product.strip()) for product in products if product.strip())
    return max(sorted(words), key=words.__getitem__, default="")
