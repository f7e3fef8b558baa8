"""Placement policies. A new one is a file here, which ends in an `Entry`, and a function below that imports it.

Only the requested policy is imported: a daemon needs just one, and has to start fast.
"""

from collections.abc import Callable, Iterator, MutableMapping

from criproxy.placement.policies.api import Entry

__all__ = ["BUILTIN", "Entry"]


def _none() -> Entry:
    from criproxy.placement.policies.none import ENTRY

    return ENTRY


def _static() -> Entry:
    from criproxy.placement.policies.static import ENTRY

    return ENTRY


def _pools() -> Entry:
    from criproxy.placement.policies.pools import ENTRY

    return ENTRY


def _balloons() -> Entry:
    from criproxy.placement.policies.balloons import ENTRY

    return ENTRY


def _topology_aware() -> Entry:
    from criproxy.placement.policies.topology_aware import ENTRY

    return ENTRY


class Policies(MutableMapping[str, Entry]):
    """Policies by the name that a policy file uses; each is imported when it is first used."""

    def __init__(self, **loaders: Callable[[], Entry]) -> None:
        self._loaders = {name.replace("_", "-"): loader for name, loader in loaders.items()}

    def __getitem__(self, name: str) -> Entry:
        return self._loaders[name]()

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._loaders[name] = lambda: entry

    def __delitem__(self, name: str) -> None:
        del self._loaders[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaders

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


BUILTIN = Policies(none=_none, static=_static, pools=_pools, balloons=_balloons, topology_aware=_topology_aware)
"""The policies of this package; ``-`` in a name is ``_`` here."""
