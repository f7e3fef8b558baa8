"""What is worked out of values that never change, kept for the next who asks: the same answer, sooner.

The engine and the policies keep nothing in objects of their own. What they keep from one step to the next is only here,
in the `functools.lru_cache` of a function, and in `alloc.sums`: each bounded, and each by what it was worked out of.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
V = TypeVar("V")


def remembered(most: int) -> Callable[[Callable[[*Ts], V]], Callable[[*Ts], V]]:
    """Keep the last *most* answers of a function, by the identity of its arguments.

    For arguments that are never changed and take long to compare: a machine, the options of a policy, a map of a node.
    They are positional, and are kept with the answer, so that nothing else gets their identity. Several threads may
    ask at the same time; then the function may run more often than once.
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
                known.pop(old, None)  # another thread may have been here
            return answer

        return of

    return decorate
