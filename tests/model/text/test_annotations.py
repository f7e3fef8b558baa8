"""Which annotations of a pod count, and for whom."""

import pytest

from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.text.annotations import (
    LEFT_OUT,
    MAX_POD_BYTES,
    MAX_VALUE_CHARS,
    effective,
    kept_of_pod,
    parse_cold_start,
    policy_annotations,
)
from criproxy.model.workload import Container, Pod
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.simulate.hosts import machine


def test_only_annotations_of_the_known_domains_are_kept() -> None:
    """A domain counts as a whole word at the end of the name; everything else of a pod is none of our business."""
    kept = {
        "memory-type.criproxy.io/pod": "dram",
        "criproxy.io/note": "x",
        "balloon.balloons.cri-resource-manager.intel.com": "fast",
        "cpu.preserve.resource-policy.nri.io/container.c0": "true",
    }
    others = {
        "secret.example.com/token": "s3cret",
        "evilcriproxy.io/pod": "x",
        "criproxy.io.example.com/pod": "x",
        "note/memory-type.criproxy.io": "x",
        "": "x",
    }
    assert policy_annotations(kept | others) == kept


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
    found = effective(annotations, "k", "main")
    assert (found[1] if found else None) == wins
    assert found is None or annotations[found[0]] == found[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("duration: 10s", 10.0),
        ("10s", 10.0),
        ('{"duration": "1m"}', 60.0),
        ("duration: 500ms", 0.5),
        ("duration: 1h\n", 3600.0),
    ],
)
def test_a_cold_start_is_a_duration(text: str, expected: float) -> None:
    """A duration alone, or as the only entry of a group."""
    assert expected == parse_cold_start(text)


@pytest.mark.parametrize("text", ["", "10", "duration: 0s", "61m", "soon", "duration: 10s, more: 1"])
def test_a_cold_start_that_is_none(text: str) -> None:
    """Anything else is an error where it is read, and no cold start where it is waited for."""
    with pytest.raises(ValueError, match="must be a duration of at most 1 h"):
        parse_cold_start(text)


def test_what_is_kept_of_a_pod_has_a_bound() -> None:
    """Short labels and annotations are kept; an annotation beyond the limit says so, and no policy understands it."""
    labels = {"app": "web", **{f"{number:05}": "v" * 63 for number in range(10_000)}}
    wishes = {f"balloon{number}.criproxy.io": "x" * 16_000 for number in range(8)}

    kept = kept_of_pod(labels, {"prefer-isolated-cpus.criproxy.io/pod": "true", "note": "n" * 99_999, **wishes})

    assert sum(len(key) + len(value) for part in kept for key, value in part.items()) < MAX_POD_BYTES + 1024
    assert (kept[0]["app"], kept[1]["prefer-isolated-cpus.criproxy.io/pod"]) == ("web", "true")
    assert "note" not in kept[1]
    assert sum(value == LEFT_OUT for value in kept[1].values()) == 4


# ---------------------------------------------------------------- how much of them is kept


NAME = "affinity.criproxy.io"


@pytest.mark.parametrize(("chars", "kept"), [(10, 10), (16_384, 16_384), (16_385, 16_385), (250_000, 16_385)])
def test_no_more_of_a_value_is_kept_than_shows_that_it_is_too_long(chars: int, kept: int) -> None:
    """However long it is."""
    assert len(policy_annotations({NAME: "x" * chars})[NAME]) == kept


def test_what_was_cut_is_refused() -> None:
    """It is not read as if the rest had never been written."""
    annotations = policy_annotations({NAME: "a: [b]\n" + "#" * 250_000})
    node = Node(machine(), pods={"s": Pod(key="s", annotations=annotations)})
    container = Container(key="c", pod="s", name="a", namespace="shop", pod_name="web")
    with pytest.raises(BadAnnotation, match=f"it has more than {MAX_VALUE_CHARS} characters$"):
        Wishes(node, container).document("affinity", str)
