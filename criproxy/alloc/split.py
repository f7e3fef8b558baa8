"""Dividing CPUs among pools by how much each is used."""


def split_by_use(free: int, requests: list[int], weights: list[int]) -> list[int]:
    """How many CPUs each of several pools gets: what its containers ask for, and a share of the rest by its use.

    The rule is that of CRI-RM's policy dynamic-pools. The first pool is the one that everybody shares: it has all that
    is left where nothing is known of anybody's use. What cannot be divided goes to the pool that is used most.

    Args:
        free: CPUs that nobody asks for.
        requests: by pool, in CPUs.
        weights: by pool, how much its CPUs are used, in any unit; all 0 where that is not known.

    Returns:
        By pool; the sum is that of *free* and *requests*.
    """
    total = sum(weights)
    if not total:
        return [requests[0] + free, *requests[1:]]
    shares = [free * weight // total for weight in weights]
    busiest = max(range(len(weights)), key=lambda pool: (weights[pool], -pool))
    shares[busiest] += free - sum(shares)
    return [request + share for request, share in zip(requests, shares, strict=True)]
