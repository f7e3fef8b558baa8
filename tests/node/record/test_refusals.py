"""The list of those who cannot be created is bounded, and no pod or namespace hides those of others."""

import pytest

from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.record.outbox import record_of
from criproxy.node.record.refusals import MAX_LEFT_OUT, MAX_OF_POD, MAX_REFUSALS, REFUSAL_S, Refusals
from criproxy.placement.records.history import Entry


class Clock:
    """Seconds since the epoch; each reading is a second later."""

    now_s = 0.0

    def __call__(self) -> float:
        """The next second."""
        self.now_s += 1
        return self.now_s


def refused(name: str, pod: str = "web", namespace: str = "shop") -> Container:
    """A container that was refused."""
    return Container(key="r", pod=f"sandbox-{pod}", name=name, pod_name=pod, namespace=namespace)


def names(refusals: Refusals) -> list[str]:
    """Who is listed."""
    return [refusal.container for refusal in refusals.listed()]


def test_the_newest_come_first_and_are_forgotten_after_an_hour() -> None:
    """What is not repeated for an hour is no longer told, and does not count as left out, either."""
    clock = Clock()
    refusals = Refusals(clock)
    for number in range(MAX_REFUSALS + 1):
        refusals.add(refused("c", f"p{number}"), "no room")
    assert (len(names(refusals)), names(refusals)[0], names(refusals)[-1]) == (
        MAX_REFUSALS, f"shop/p{MAX_REFUSALS}/c", "shop/p1/c",
    )  # fmt: skip
    assert refusals.omitted() == 1

    clock.now_s += REFUSAL_S - 20
    assert 0 < len(names(refusals)) < MAX_REFUSALS
    assert refusals.omitted() == 0


def test_a_pod_with_many_containers_hides_no_other_pod() -> None:
    """Of its 120 refused containers the last ten are listed, and the others are counted."""
    refusals = Refusals()
    for each in (refused("main", "toobig"), *(refused(f"c{number}", "flood", "team") for number in range(120))):
        record_of(Entry(each, Kind.REFUSED, ("no",), {}), refusals)

    assert names(refusals)[-1] == "shop/toobig/main"
    assert len(names(refusals)) == 1 + MAX_OF_POD
    assert refusals.omitted() == 120 - MAX_OF_POD


def test_a_namespace_with_many_pods_hides_no_other_namespace() -> None:
    """Where the list is full, the namespace and in it the pod with the most give way."""
    refusals = Refusals(Clock())
    refusals.add(refused("main", "toobig"), "no room")
    for number in range(MAX_REFUSALS):
        refusals.add(refused("c", f"p{number}", "team"), "no")
        refusals.add(refused("d", "p0", "team"), "no")

    assert "shop/toobig/main" in names(refusals)
    assert len(names(refusals)) == MAX_REFUSALS
    assert refusals.omitted() == 2  # of 102 containers
    assert "team/p0/c" not in names(refusals)


@pytest.mark.parametrize("end", ["placed", "sandbox gone", "refused again"])
def test_who_is_left_out_is_counted_once_and_while_it_is_refused(end: str) -> None:
    """One that is refused again counts once and is listed with its number; one that is placed or gone does not."""
    refusals = Refusals(Clock())
    for number in range(MAX_OF_POD + 1):
        refusals.add(refused(f"c{number}"), "no")
    assert refusals.omitted() == 1
    assert refusals.sandboxes() == {"sandbox-web"}

    if end == "placed":
        assert refusals.remove(refused("c0")) == 1
        assert refusals.omitted() == 0
    elif end == "sandbox gone":
        refusals.forget({"sandbox-web"})
        assert (names(refusals), refusals.omitted(), refusals.sandboxes()) == ([], 0, frozenset())
    else:
        refusals.add(refused("c0"), "no")
        assert (refusals.listed()[0].times, refusals.omitted()) == (2, 1)


def test_what_is_remembered_of_those_left_out_is_bounded() -> None:
    """However many there are."""
    refusals = Refusals(lambda: 1e9)
    for number in range(MAX_LEFT_OUT + MAX_OF_POD + 5):
        refusals.add(refused(f"c{number}"), "no")
    assert refusals.omitted() == MAX_LEFT_OUT
