"""Paths that are known without the messages of CRI."""

from criproxy.cri.methods import BY_PATH, METHODS
from criproxy.cri.paths import TOUCHED, touched_paths


def test_touched_methods_are_methods_of_cri() -> None:
    """Each is one of RuntimeService, under the paths that its descriptor gives."""
    assert {path for name in TOUCHED for path in METHODS[name].paths} == touched_paths() <= BY_PATH.keys()
