"""Methods of dataclasses that are compiled when they are first called.

`dataclasses` compiles up to eight methods for each class, 1,700 at a start of the daemon: more than a third of the
CPU time until it places the first container. Most of them are never called.
"""

import dataclasses
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from typing import Any

Method = Callable[..., Any]
Fields = Sequence["dataclasses.Field[Any]"]

_COMPILED = {"_init_fn": "__init__", "_cmp_fn": "", "_hash_fn": "__hash__"}
"""The functions of Python 3.11 and 3.12 that compile a method, and its name unless that is their first argument. Later
versions compile all methods of a class at once, and are left alone."""


def compile_late() -> None:
    """Let this process compile methods late, for the dataclasses that it makes from now on."""
    makers = vars(dataclasses)
    if makers.keys() >= {*_COMPILED, "_repr_fn", "_frozen_get_del_attr"}:
        makers.update({maker: _late(makers[maker], method) for maker, method in _COMPILED.items()})
        makers.update(_repr_fn=_repr, _frozen_get_del_attr=_frozen)


def _late(maker: Callable[..., Method], method: str) -> Callable[..., Method]:
    """Return a *maker* of methods that take the place of those which it makes, until they are called."""

    def make(*about: Any, **more: Any) -> Method:  # noqa: ANN401 (depends on the maker)
        name, made = method or about[0], list[Method]()

        def late(self: object, *args: object, **named: object) -> Any:  # noqa: ANN401 (depends on the method)
            if not made:
                made.append(maker(*about, **more))
                made[0].__qualname__ = late.__qualname__
                for cls in type(self).__mro__:
                    if vars(cls).get(name) is late:
                        setattr(cls, name, made[0])
            return made[0](self, *args, **named)

        late.__name__ = name
        return late

    return make


def _repr(fields: Fields, _globals: object) -> Method:
    """Return the same ``__repr__`` as `dataclasses`, which needs no compilation."""
    names = [field.name for field in fields]

    def __repr__(self: object) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return recursive_repr("...")(__repr__)


def _frozen(cls: type[Any], fields: Fields, _globals: object) -> tuple[Method, Method]:
    """Return the same ``__setattr__`` and ``__delattr__`` as `dataclasses`, which need no compilation."""
    names = frozenset(field.name for field in fields)

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
