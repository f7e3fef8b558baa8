"""The options below ``exclusive``: of policies that give a container as many CPUs alone as it asks for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from criproxy.placement.options.policy_options import options_of


class Exclusive(BaseModel):
    """What happens to exclusive CPUs."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    keep: Literal["pod", "none"] = "pod"
    """What happens to exclusive CPUs when their container ends and its pod does not. pod: the pod keeps them, up to its
    total request, so that a container that crashes gets them back. none: other containers may get them."""


def exclusive_of(policy: object) -> Exclusive | None:
    """The options of a policy about such CPUs; None for one that gives none, or by other rules."""
    found = getattr(options_of(policy), "exclusive", None)
    return found if isinstance(found, Exclusive) else None
