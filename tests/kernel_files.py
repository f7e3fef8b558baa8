"""Files of this machine's kernel that tests change: one test at a time, and they are restored in any case."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEFAULT_AFFINITY = Path("/proc/irq/default_smp_affinity")
"""Where new interrupts go."""


@contextmanager
def changing_this_machine() -> Iterator[dict[Path, str]]:
    """Yield the files of interrupts and idle states, with what they have; skip where they cannot be written.

    Several runs of pytest are beside each other in one run of all tests.
    """
    if os.geteuid():
        pytest.skip("only root may write the files of interrupts and idle states")
    paths = [*Path("/proc/irq").glob("*/smp_affinity_list"), DEFAULT_AFFINITY]
    paths += Path("/sys/devices/system/cpu").glob("cpu*/cpuidle/state*/disable")
    with (Path(tempfile.gettempdir()) / "criproxy-tests-kernel-files.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = {path: path.read_text() for path in paths}
        try:
            yield before
        finally:
            for path, text in before.items():
                if path.read_text() != text:
                    path.write_text(text)
