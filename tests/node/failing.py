"""Functions of criproxy that fail where a test lets them."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

import pytest

PLANTED = ValueError("planted")


def plant_failure(
    patch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    times: int = 1 << 30,
    *,
    error: Exception = PLANTED,
    when: Callable[..., bool] = lambda *_: True,
) -> list[object]:
    """Let a function fail with its first calls; returns what is given to those that have failed.

    Args:
        patch: restores the function.
        owner: has the function.
        name: of the function.
        times: how many calls fail.
        error: what they raise.
        when: whether a call with these arguments is one of them.
    """
    original, failed = getattr(owner, name), list[object]()

    def function(*arguments: object, **keys: object) -> Any:  # noqa: ANN401 (as the original)
        if len(failed) < times and when(*arguments):
            failed.append(arguments)
            raise error
        return original(*arguments, **keys)

    async def coroutine(*arguments: object, **keys: object) -> object:
        return await function(*arguments, **keys)

    patch.setattr(owner, name, coroutine if iscoroutinefunction(original) else function)
    return failed
