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
        if (found := self._known.get(tuple(map(id, arguments)))) is not None:
            return found[1]
        return self.keep(self._function(*arguments), *arguments)

    def keep(self, result: V, *arguments: *Ts) -> V:
        """Keep a *result* for *arguments* that is known without a call, and return it."""
        self._known[tuple(map(id, arguments))] = arguments, result
        if len(self._known) > self._most:
            self._known.popitem(last=False)  # in one step of the interpreter, whatever other threads do
        return result


def remembered(most: int) -> Callable[[Callable[[*Ts], V]], Remembered[*Ts, V]]:
    """Make a function keep its last *most* results, as `Remembered`."""
    return lambda function: Remembered(function, most)
