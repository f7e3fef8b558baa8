"""The labels of a resource that is no NVIDIA's: how many cards, which, and how they are shared.

Keys begin with the resource, and so with its vendor's domain, as NVIDIA's do: ``huawei.com/Ascend910.count``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.devices.offers import Offered
from criproxy.devices.sharing import SHARED_SUFFIX

_BLANKS = re.compile(r"[\s/]+")
NOT_SHARED = "none"
"""The strategy of cards that are offered once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """A resource as it is offered."""

    resource: str
    """With its domain, before it is renamed."""
    cards: int
    products: tuple[str, ...] = ()
    """The cards' models, as far as they are known."""
    replicas: int = 1
    """In how many each card is shared; where cards differ, the most."""
    strategy: str = NOT_SHARED
    """How cards are shared if they are: ``time-slicing``."""
    renamed: bool = False
    """Whether shared cards are offered as another resource."""


def advertised(
    resource: str,
    offered: Iterable[Offered],
    *,
    products: Sequence[str] = (),
    strategy: str = "time-slicing",
    original: str = "",
) -> Advertised:
    """What labels say of a resource that is offered under these ids.

    Args:
        resource: as it is offered, with its domain.
        offered: what is offered.
        products: models of its cards.
        strategy: how cards are shared.
        original: the resource that it was before it was renamed; empty: as its name tells.
    """
    found = list(offered)
    plain = original or resource.removesuffix(SHARED_SUFFIX)
    return Advertised(
        resource=plain,
        cards=len({each.card for each in found}),
        products=tuple(products),
        replicas=max((each.replicas for each in found), default=1) or 1,
        strategy=strategy,
        renamed=plain != resource,
    )


def resource_labels(advertised: Advertised) -> dict[str, str]:
    """The labels of one resource."""
    name, shared = advertised.resource, advertised.replicas > 1
    labels = {
        f"{name}.count": str(advertised.cards),
        f"{name}.replicas": str(advertised.replicas),
        f"{name}.sharing-strategy": advertised.strategy if shared else NOT_SHARED,
    }
    if model := _most_common(advertised.products):
        labels[f"{name}.product"] = f"{model}-SHARED" if shared and not advertised.renamed else model
    return labels


def _most_common(products: Iterable[str]) -> str:
    """The product of most cards, in the order of the alphabet among equals; a label has room for one."""
    words = Counter(_BLANKS.sub("-", product.strip()) for product in products)
    return max(sorted(words), key=words.__getitem__, default="")
