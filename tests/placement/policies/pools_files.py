"""Options of the policy pools as tests write them."""

from criproxy.placement.policies.pools import PoolsOptions


def pools_options(
    *pools: dict[str, object], available: str = "", reserved: object = None, **more: object
) -> PoolsOptions:
    """Options with *pools*, and with available and reserved CPUs in the peers' words."""
    options: dict[str, object] = {"pools": list(pools), **more}
    if available:
        options["availableResources"] = {"cpu": available}
    if reserved is not None:
        options["reservedResources"] = {"cpu": reserved}
    return PoolsOptions.model_validate(options)
