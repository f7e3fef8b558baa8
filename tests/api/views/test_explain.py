"""Whom a user means, and what is told of them."""

import pytest

from criproxy.api.views.explain import choose, instances, to_values
from criproxy.api.views.situation import Situation
from criproxy.errors import CriproxyError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.text.notices import timestamp
from criproxy.model.workload import Container, ContainerState
from criproxy.simulate.hosts import machine

WEB = "shop/web/main"


def container(key: str, life: str, name: str = "main", state: ContainerState = ContainerState.RUNNING) -> Container:
    """A container of the pod shop/web."""
    return Container(key=key, pod="s", name=name, pod_name="web", namespace="shop", reservation=life, state=state)


def node(*containers: Container) -> Node:
    """A node that knows *containers*."""
    return Node(machine(), containers={each.key: each for each in containers})


def record(kind: Kind, at_s: float, life: str, key: str = "", text: str = "so it was", title: str = WEB) -> Record:
    """One record; it is about the reservation where no *key* is given."""
    facts = {"cpus": "1-2"} if kind is Kind.GRANTED else {}
    return Record(at_s, key or life, title, kind, (text,), life, facts)


def names(found: list[str]) -> str:
    """One text to compare."""
    return " ".join(found)


HOSTILE = "side\nAll is well\x1b[31m"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("0a", r"0a2 (shop/web/side\nAll is well\x1b[31m, running)", id="ids"),
        pytest.param("side", r"did you mean shop/web/side\nAll is well\x1b[31m?", id="names"),
        pytest.param("x" * 9000, "'xx", id="asked"),
        pytest.param("y", "yyy… (", id="long"),
        pytest.param("a\nb", r"'a\nb'", id="asked-with-a-break"),
    ],
)
def test_names_in_errors_are_shown_as_text(text: str, said: str) -> None:
    """A name of a tenant makes no line of its own in an error, and is cut."""
    containers = [
        container("0a1", "r-1"),
        container("0a2", "r-2", name=HOSTILE),
        container("c", "r-3", name="y" * 9000),
    ]
    with pytest.raises(CriproxyError) as caught:
        choose(node(*containers), [], text)

    assert str(caught.value).isprintable()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0a1", "r-1", id="beginning-of-an-id"),
        pytest.param("r-2", "r-2", id="reservation"),
        pytest.param(WEB, "r-1 r-0", id="name-the-living-first"),
        pytest.param("ff", "r-0", id="id-of-one-that-is-gone"),
        pytest.param("web", "", id="part-of-a-name"),
    ],
)
def test_whom_a_text_means(text: str, expected: str) -> None:
    """A beginning of an id, a reservation, or a whole name, among those who live and those who ended."""
    known = node(container("0a1b2c", "r-1"), container("0b", "r-2", name="side"))
    told = [
        record(Kind.ASKED, 1.0, "r-0"),
        record(Kind.CREATED, 2.0, "r-0", "ffff"),
        record(Kind.GONE, 9.0, "r-0", "ffff"),
        record(Kind.ASKED, 3.0, "r-1"),
    ]
    found = instances(known, told, text)

    assert expected == names([life.name for life in found])


def test_of_those_who_ended_the_last_is_meant() -> None:
    """A name without anybody alive means the one that was heard of last; refused or gone."""
    told = [record(Kind.GONE, 5.0, "r-1", "aa"), record(Kind.REFUSED, 7.0, "r-2")]
    found = instances(node(), told, WEB)

    assert [(life.name, life.state, life.id) for life in found] == [("r-2", "refused", ""), ("r-1", "gone", "aa")]


def test_an_id_that_means_many_is_refused_with_them() -> None:
    """The user is told who is meant and how to be clearer."""
    known = node(container("0a1", "r-1"), container("0a2", "r-2", name="side"))
    with pytest.raises(CriproxyError) as caught:
        choose(known, [], "0a")

    assert str(caught.value) == (
        "'0a' is the beginning of 2 IDs: 0a1 (shop/web/main, running), 0a2 (shop/web/side, running); "
        "give more of the ID, or NAMESPACE/POD/CONTAINER"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("web/main", "did you mean shop/web/main?", id="part"),
        pytest.param("shop/wep/main", "did you mean shop/wet/main, shop/web/main?", id="misspelt"),
        pytest.param("0123456789ab", "`criproxy status` lists those that it knows", id="nothing-like-it"),
    ],
)
def test_somebody_unknown_is_refused_with_names_near_by(text: str, said: str) -> None:
    """Names that are known now or were before are proposed."""
    with pytest.raises(CriproxyError) as caught:
        choose(node(container("0a", "r")), [], text, ["shop/wet/main"])

    assert str(caught.value).startswith(f"criproxy knows no container {text!r}; ")
    assert str(caught.value).endswith(said)


def test_the_story() -> None:
    """What was asked, why it is there and what moved it since, every event in order, earlier ones of that name."""
    known = node(container("0a1b", "r-1"))
    update = Record(4.0, "0a1b", WEB, Kind.UPDATED, ("CPUs 0-3 → 0-1",), "r-1", {"cpus": "0-1", "why": "x came"})
    told = [
        Record(1.25, "r-1", WEB, Kind.ASKED, ("CPU request 2",), "r-1", {"cpu_shares": 2048}),
        record(Kind.GRANTED, 2.0, "r-1", text="it shares"),
        update,
        record(Kind.GONE, 0.5, "r-0", "ffff", text="it was removed"),
    ]
    values = to_values(Situation(node=known), choose(known, told, WEB), told, ["shop/other/main"])

    assert values["container"]["id"] == "0a1b"
    assert values["asked"] == {"read_as": ["CPU request 2"], "sent": {"cpu_shares": 2048}}
    assert values["why"] == ["it shares", "then CPUs 0-3 → 0-1"]
    assert values["waits_for"] == ["shop/other/main"]
    assert [event["kind"] for event in values["events"]] == ["asked", "granted", "updated"]
    assert values["events"][0]["time"] == "1970-01-01T00:00:01.250Z"
    assert values["earlier"] == [
        {"id": "ffff", "state": "gone", "time": timestamp(0.5), "text": "it was removed"},
    ]


def test_the_story_of_one_that_was_refused() -> None:
    """It has a name, no id and a reason."""
    told = [record(Kind.ASKED, 1.0, "r-1"), record(Kind.REFUSED, 2.0, "r-1", text="too large")]
    values = to_values(Situation(node=node()), choose(node(), told, WEB), told)

    assert values["container"] == {"id": "", "namespace": "shop", "pod": "web", "container": "main", "state": "refused"}
    assert values["why"] == ["too large"]


def test_a_container_without_a_history() -> None:
    """Where nothing is remembered, what the node knows is told."""
    known = node(container("0a1b", "r-1"))
    values = to_values(Situation(node=known), choose(known, [], "0a"), [])

    assert (values["asked"], values["events"], values["why"]) == (None, [], [])
    assert values["container"]["state"] == "running"
