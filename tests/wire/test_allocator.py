"""Large buffers are used again after the allocator was told to keep them."""

import subprocess
import sys

FAULTS = """
import resource, sys
from criproxy.wire.allocator import keep_large_buffers
if sys.argv[1] == "keep":
    assert keep_large_buffers()
def many():
    for size in range(200):
        parts = [bytes(1_000_000), bytes(1_000_000 + size)]
        del parts
many()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
many()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    """Page faults of 400 buffers of 1 MB in a process of its own."""
    command = [sys.executable, "-c", FAULTS, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_freed_buffers_keep_their_pages() -> None:
    """With the setting, a large buffer costs no page faults after the first time; without, it does."""
    assert faults("keep") < 1_000
    assert faults("default") > 10 * max(1, faults("keep"))
