"""Paths of mounts, however a pod writes them."""

from criproxy.devices.classes.device_class import clean_path


def test_each_way_to_write_a_path_is_the_same_path() -> None:
    """The runtime mounts all of them at one place."""
    ways = "/etc/x //etc/x ///etc/x //etc//x/ etc/x ./etc/x ../etc/x /../etc/x /etc/../etc/./x".split()

    assert {clean_path(way) for way in ways} == {"/etc/x"}


def test_the_root_is_a_path() -> None:
    """It has nothing below its slash."""
    assert [clean_path(path) for path in ("", "/", "//", ".")] == ["/"] * 4
