"""A cache for results computed from immutable values.

The engine and the policies have no state of their own. They keep results from one step to the next only here, in the
`functools.lru_cache` of a function, and in `placement.alloc.sums`: all are bounded, and keyed by the inputs.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
V = TypeVar("V")


class Remembered(Generic[*Ts, V]):
    """A function that keeps its last *most* results for arguments that never change, by the identity of these.

    For arguments that are slow to compare: a machine, the options of a policy, a map of a node. They are positional,
    and are kept with the result, so that their identities are not reused. Several threads may call it at the same time,
    and each may run it.
    """

    def __init__(self, function: Callable[[*Ts], V], most: int) -> None:
        update_wrapper(self, function)
        self._function, self._most = function, most
        self._known = OrderedDict[tuple[int, ...], tuple[object, V]]()

    def __call__(self, *arguments: *Ts) -> V:
        """Return the result for *arguments*."""
        key = tuple(map(id, arguments))
        if (found := self._known.get(key)) is not None:
            return found[1]
        result = self._function(*arguments)
        self._known[key] = arguments, result
        if len(self._known) > self._most:
            self._known.popitem(last=False)  # in one step of the interpreter, whatever other threads do
        return result


def remembered(most: int) -> Callable[[Callable[[*Ts], V]], Remembered[*Ts, V]]:
    """Make a function keep its last *most* results, as `Remembered`."""
    return lambda function: Remembered(function, most)
