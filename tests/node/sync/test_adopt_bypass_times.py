"""When calls went by us on somebody's order."""

from time import time

from criproxy.node.sync.adopt import GRACE_S, BypassTimes


def test_a_create_that_was_under_way_at_the_end_of_a_bypass_is_of_it() -> None:
    """The runtime made its container after the bypass, and nobody held the call."""
    seen = BypassTimes()
    before = time()
    seen.begin()
    seen.end()
    after = time()
    assert seen.cover(after + GRACE_S / 2)
    assert not seen.cover(after + GRACE_S + 1)
    assert not seen.cover(before - 1)
