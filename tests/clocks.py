"""The clock of the event loop, for tests in which time has to pass."""

import asyncio


def skip(seconds: float) -> None:
    """Let the event loop's clock go forward: whoever waits there has waited so much longer, and no time passes.

    Only for timers of the test's own process, and not while anything else waits with a limit that is not longer.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # this loop is the test's own
