"""How much work something is, whatever the machine: the lines of some modules that it runs."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType


def steps_of(work: Callable[[], object], *modules: ModuleType) -> int:
    """How many lines of *modules* *work* runs."""
    files = {module.__file__ for module in modules}
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal steps
        steps += event == "line"
        return trace if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # typeshed's own protocol is recursive
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
