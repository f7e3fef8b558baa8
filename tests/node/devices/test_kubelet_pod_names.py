"""Whether the name of a pod stood for another one before."""

from criproxy.model.workload import Pod
from criproxy.node.devices.kubelet import MAX_NAMES, PodNames


def test_a_name_that_two_pods_had_is_reused_for_both() -> None:
    """Each of them is the other one's former or later namesake; a third one as well, and nobody of another name."""
    names = PodNames()
    for uid in ("u1", "u1", "u2", "u3"):
        names.add("shop", "web", uid)
    names.add("shop", "api", "u1")
    names.add("team", "web", "u9")

    assert [names.is_reused("shop", "web", uid) for uid in ("u1", "u2", "u3", "u4")] == [True] * 4
    assert not names.is_reused("shop", "api", "u1")
    assert names.is_reused("shop", "api", "u2")
    assert not names.is_reused("team", "web", "u9")
    assert not names.is_reused("team", "db", "u9")


def test_the_pods_on_the_node_count() -> None:
    """Those that came before criproxy started, too."""
    names = PodNames(lambda: [Pod(key="s", uid="u1", name="web", namespace="shop")])
    assert names.is_reused("shop", "web", "u2")
    assert not names.is_reused("shop", "web", "u1")


def test_what_is_remembered_is_bounded() -> None:
    """The names seen last stay."""
    names = PodNames()
    names.add("shop", "first", "u1")
    names.add("shop", "second", "u1")
    for number in range(MAX_NAMES - 2):
        names.add("shop", f"w{number}", "u1")
    names.add("shop", "first", "u1")
    names.add("shop", "last", "u1")

    assert names.is_reused("shop", "first", "u2")
    assert not names.is_reused("shop", "second", "u2")
