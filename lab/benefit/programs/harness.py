"""What every program in a container does: get warm, say so, wait for the word to go, work, say what was done, and stay.

The rig makes two named pipes in the folder that BENEFIT_OUT names: ``say``, for lines of JSON from here, and ``go``.
The programs run with the interpreter of the equipment (`lab.benefit.equipment`), not with that of the rig.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("BENEFIT_OUT", "/out"))
WARM_S = 1.0


def say(**line: Any) -> None:  # noqa: ANN401 (whatever JSON has)
    """Tell the rig something."""
    with (OUT / "say").open("w") as pipe:
        pipe.write(json.dumps(line) + "\n")


def wait_for_go() -> None:
    """Return when the rig says so."""
    with (OUT / "go").open() as pipe:
        pipe.readline()


def work(step: Callable[[], float], seconds: float, **described: Any) -> None:  # noqa: ANN401
    """Repeat *step* for *seconds*, report how much it did, and wait for another word, which is never said.

    The rig reads the cgroup after the report, and with the last process the cgroup goes.

    Args:
        step: does a piece of work and returns its amount.
        seconds: how long; the last step may end later.
        described: what else the report shall say, such as the number of threads.
    """
    _repeat(step, min(WARM_S, seconds))
    say(ready=True)
    wait_for_go()
    amount, took_s = _repeat(step, seconds)
    say(amount=amount, took_s=took_s, **described)
    wait_for_go()


def _repeat(step: Callable[[], float], seconds: float) -> tuple[float, float]:
    amount, begun = 0.0, time.perf_counter()
    while (took_s := time.perf_counter() - begun) < seconds:
        amount += step()
    return amount, took_s
