"""However much YAML the annotations of a pod have, it is read once, and only so much of it."""

import pytest

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.text.annotations import MAX_VALUE_CHARS
from criproxy.model.workload import Container, Pod
from criproxy.placement.options import plain
from criproxy.placement.options.annotation_parsing import MAX_YAML_CHARS, Wishes
from criproxy.placement.options.plain import plain_data
from criproxy.simulate.hosts import machine
from tests.placement.alloc.steps import steps_of

MAIN = Container(key="c", pod="s", name="main", namespace="shop", pod_name="web")


def a_map(number: int, chars: int) -> str:
    """A map of as many container names as fit, in which one says something."""
    names = ", ".join(f"c{number:04d}{index:04d}: x" for index in range((chars - 30) // 14))
    return f"{{{names}, main: 'true'}}"


def wishes_of(annotations: dict[str, str]) -> Wishes:
    """Those of a container in a pod with these annotations."""
    return Wishes(Node(machine(), pods={"s": Pod(key="s", annotations=annotations)}), MAIN)


@pytest.mark.parametrize("text", [a_map(1, 6_000), "main: [", "a: 1\n---\n" * 1000], ids=["long", "broken", "several"])
def test_a_document_is_read_once(text: str) -> None:
    """Also a long one, and one that is refused: the kubelet repeats each create."""
    said = []
    for _ in range(2):
        try:
            said.append(plain_data(text))
        except ValueError as error:
            said.append(str(error))

    def again() -> None:
        try:
            said.append(plain_data(text))
        except ValueError as error:
            said.append(str(error))

    assert steps_of(again, plain) < 20
    assert said[0] == said[1] == said[2]


def test_what_is_kept_is_bounded_by_its_size() -> None:
    """However many pods come with documents of their own, long or short: the last ones are kept."""
    for number in range(150):
        plain_data("- " + "x" * 16_000 + str(number))
        plain_data(f"- {number}")
        plain_data("- " + "x" * MAX_VALUE_CHARS + str(number))
    kept = [(each.cache_info().currsize, each.cache_info().maxsize) for each in (plain._short, plain._long)]
    assert kept == [(128, 128), (128, 128)]
    assert steps_of(lambda: [plain_data("- 149"), plain_data("- " + "x" * 16_000 + "149")], plain) < 20


def test_all_documents_of_a_container_together_are_limited() -> None:
    """The one with which it is too much is named; twelve long ones would take as long as twelve pods."""
    keys = ("prefer-shared-cpus", "hide-hyperthreads", "prefer-isolated-cpus")
    wishes = wishes_of({f"criproxy.io/{key}": a_map(2, 3000) for key in keys})
    assert [wishes.boolean(key) for key in keys[:2]] == [True, True]
    with pytest.raises(BadAnnotation) as caught:
        wishes.boolean(keys[2])
    assert str(caught.value) == (
        "container shop/web/main: annotation criproxy.io/prefer-isolated-cpus is invalid: the values that are read as "
        f"YAML for this container have {3 * len(a_map(2, 3000))} characters together, and {MAX_YAML_CHARS} is the most"
    )
    assert [wishes.boolean(key) for key in keys[:2]] == [True, True]


def test_all_parts_of_the_documents_together_are_limited() -> None:
    """Short lists take more time than long texts."""
    lists = "{main: 'true', x: [" + "[]," * 600 + "]}"
    wishes = wishes_of({"criproxy.io/hide-hyperthreads": lists, "criproxy.io/prefer-shared-cpus": lists})
    assert wishes.boolean("hide-hyperthreads") is True
    with pytest.raises(BadAnnotation, match=r"this container have 1210 parts together, and 1024 is the most$"):
        wishes.boolean("prefer-shared-cpus")


def test_a_document_counts_once_and_only_if_it_is_read() -> None:
    """Not those that another form overrules, that no policy reads or that the namespace may not use."""
    long = a_map(3, 6_000)
    keys = ("hide-hyperthreads", "prefer-shared-cpus", "cpu.preserve", "no-such-key")
    wishes = wishes_of({**{f"criproxy.io/{key}": long for key in keys}, "prefer-shared-cpus.criproxy.io": "true"})
    for _ in range(3):
        assert wishes.boolean("hide-hyperthreads") is True
        assert wishes.boolean("prefer-shared-cpus") is True
        assert wishes.boolean("cpu.preserve") is None


def test_affinities_count_as_well() -> None:
    """Their values are YAML in every form."""
    wishes = wishes_of({"affinity.criproxy.io": a_map(4, 5_000), "criproxy.io/anti-affinity": a_map(5, 5_000)})
    assert wishes.document("affinity", lambda data: data is not None)
    with pytest.raises(BadAnnotation, match=r"annotation criproxy.io/anti-affinity is invalid: the values that are"):
        wishes.document("anti-affinity", lambda data: data)
