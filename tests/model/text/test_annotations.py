"""Which annotations of a pod count, and for whom."""

import pytest

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.text import annotations as texts
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.simulate.hosts import machine

OURS, CRIRM, NRI = (
    f"k.{domain}" for domain in ("criproxy.io", "cri-resource-manager.intel.com", "resource-policy.nri.io")
)


@pytest.mark.parametrize(
    ("annotations", "wins"),
    [
        ({f"{OURS}/container.main": "a", f"{OURS}/pod": "b", OURS: "c"}, "a"),
        ({f"{OURS}/pod": "b", OURS: "c"}, "b"),
        ({OURS: "c"}, "c"),
        ({f"{OURS}/container.other": "a"}, None),
        ({f"{NRI}/container.main": "theirs", OURS: "ours"}, "ours"),
        ({f"{NRI}/container.main": "nri", CRIRM: "crirm"}, "crirm"),
        ({f"{NRI}/pod": "nri"}, "nri"),
        ({"other.criproxy.io/pod": "x"}, None),
    ],
)
def test_the_nearest_scope_and_our_domain_win(annotations: dict[str, str], wins: str | None) -> None:
    """Container before pod, and ours before our peers'."""
    found = texts.effective(annotations, "k", "main")
    assert (found[1] if found else None) == wins
    assert found is None or annotations[found[0]] == found[1]


def test_what_is_kept_of_a_pod_has_a_bound() -> None:
    """Short labels and annotations are kept; an annotation beyond the limit says so, and no policy understands it."""
    labels = {"app": "web", **{f"{number:05}": "v" * 63 for number in range(10_000)}}
    wishes = {f"balloon{number}.criproxy.io": "x" * 16_000 for number in range(8)}

    kept = texts.kept_of_pod(labels, {"prefer-isolated-cpus.criproxy.io/pod": "true", "note": "n" * 99_999, **wishes})

    assert sum(len(key) + len(value) for part in kept for key, value in part.items()) < texts.MAX_POD_BYTES + 1024
    assert (kept[0]["app"], kept[1]["prefer-isolated-cpus.criproxy.io/pod"]) == ("web", "true")
    assert "note" not in kept[1]
    assert sum(value == texts.LEFT_OUT for value in kept[1].values()) == 4


# ---------------------------------------------------------------- how much of them is kept


NAME = "affinity.criproxy.io"


@pytest.mark.parametrize(("chars", "kept"), [(10, 10), (16_384, 16_384), (16_385, 16_385), (250_000, 16_385)])
def test_no_more_of_a_value_is_kept_than_shows_that_it_is_too_long(chars: int, kept: int) -> None:
    """However long it is."""
    assert len(texts.policy_annotations({NAME: "x" * chars})[NAME]) == kept


def test_what_was_cut_is_refused() -> None:
    """It is not read as if the rest had never been written."""
    annotations = texts.policy_annotations({NAME: "a: [b]\n" + "#" * 250_000})
    node = Node(machine(), pods={"s": Pod(key="s", annotations=annotations)})
    container = Container(key="c", pod="s", name="a", namespace="shop", pod_name="web")
    with pytest.raises(BadAnnotation, match=f"it has more than {texts.MAX_VALUE_CHARS} characters$"):
        Wishes(node, container).document("affinity", str)
