"""A cache for results computed from immutable values.

The engine and the policies have no state of their own. They keep results from one step to the next only here, in the
`functools.lru_cache` of a function, and in `placement.alloc.sums`: all are bounded, and keyed by the inputs.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
V = TypeVar("V")


def remembered(most: int) -> Callable[[Callable[[*Ts], V]], Callable[[*Ts], V]]:
    """Cache the last *most* results of a function, by the identity of its arguments.

    For arguments that never change and are slow to compare: a machine, the options of a policy, a map of a node. They
    are positional, and are kept with the result, so that their identities are not reused. Several threads may call at
    the same time; then the function may run more than once.
    """

    def decorate(function: Callable[[*Ts], V]) -> Callable[[*Ts], V]:
        known: dict[tuple[int, ...], tuple[object, V]] = {}

        @wraps(function)
        def of(*arguments: *Ts) -> V:
            key = tuple(map(id, arguments))
            if (found := known.get(key)) is not None:
                return found[1]
            answer = function(*arguments)
            known[key] = arguments, answer
            for old in list(known)[:-most]:
                known.pop(old, None)  # another thread may have removed it
            return answer

        return of

    return decorate
