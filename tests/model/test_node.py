"""A node knows who owns and what is left."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.controls import NO_CONTROLS, Controls
from criproxy.model.grant import NO_CPUS, PRESERVED, Grant
from criproxy.model.node import LastConfiguration, Node, changed_keys, with_changes, without
from criproxy.simulate.hosts import machine

# ---------------------------------------------------------------- what differs between the maps of two nodes


KEYS = st.sampled_from("abcdef")
MAPS = st.dictionaries(KEYS, st.integers(1000, 1010))


@given(MAPS, MAPS)
def test_what_differs_between_any_two_maps_is_found(old: dict[str, int], new: dict[str, int]) -> None:
    """Entries that are the same objects are not among it."""
    differing = {key for key in {*old, *new} if old.get(key) != new.get(key)}

    assert differing <= set(changed_keys(old, new))
    assert differing == set(changed_keys(old, {key: new[key] if key in differing else old[key] for key in new}))
    assert changed_keys(old, old) == ()


@given(MAPS, st.sets(KEYS))
def test_a_map_without_some_entries_has_all_others(base: dict[str, int], gone: set[str]) -> None:
    """In their order."""
    assert list(without(base, sorted(gone)).items()) == [each for each in base.items() if each[0] not in gone]


@given(st.lists(st.tuples(st.integers(0, 9), st.dictionaries(KEYS, st.integers()), st.sets(KEYS)), max_size=9))
def test_what_differs_between_maps_made_from_each_other_is_found(
    steps: list[tuple[int, dict[str, int], set[str]]],
) -> None:
    """Between an ancestor and a descendant, siblings and strangers, whether their origins are still known or not."""
    maps: list[Mapping[str, int]] = [{"a": 1000, "b": 2000}]
    for parent, changes, removed in steps:
        maps.append(with_changes(maps[parent % len(maps)], changes, removed))
        assert maps[-1] == {k: v for k, v in maps[parent % (len(maps) - 1)].items() if k not in removed} | changes
    for old in maps:
        for new in maps:
            differing = {key for key in old.keys() | new.keys() if old.get(key) is not new.get(key)}
            assert set(changed_keys(old, new)) == differing


CPUS = st.frozensets(st.integers(0, 5), max_size=2)
GRANTS = st.builds(
    Grant,
    cpus=CPUS,
    mems=CPUS,
    exclusive=st.just(NO_CPUS) | CPUS,
    pool=st.sampled_from(["", PRESERVED]),
    home_mems=st.just(NO_CPUS) | CPUS,
    controls=st.sampled_from([NO_CONTROLS, Controls(classes=(("cpu", "batch"),))]),
)
MANY = st.dictionaries(st.sampled_from("abcdefghijkl"), GRANTS, max_size=12)


@given(MANY, st.lists(st.tuples(st.dictionaries(KEYS, GRANTS, max_size=2), st.sets(KEYS, max_size=2)), max_size=5))
def test_what_is_special_is_the_same_whether_all_is_looked_at_or_what_has_changed(
    first: dict[str, Grant], steps: list[tuple[dict[str, Grant], set[str]]]
) -> None:
    """Who owns CPUs, is preserved, is displaced, or has classes, from one map to the next."""
    grants: Mapping[str, Grant] = first
    for changes, removed in steps:
        grants = with_changes(grants, changes, removed - changes.keys())
        node, anew = Node(machine(), grants=grants), Node(machine(), grants=dict(grants))
        assert node.owned_cpus == anew.owned_cpus
        assert (node.preserved_keys, node.controlled_keys) == (anew.preserved_keys, anew.controlled_keys)
        assert list(node.displaced_keys) == list(anew.displaced_keys)


# ---------------------------------------------------------------- which configuration a node was left with


DIGEST = "0123abcd"


@pytest.mark.parametrize(
    ("text", "left", "keeps"),
    [
        pytest.param("", LastConfiguration(), {""}, id="nothing-is-known"),
        pytest.param(DIGEST, LastConfiguration(DIGEST), {DIGEST}, id="a-policy-file"),
        pytest.param("unknown", LastConfiguration("unknown"), {"", DIGEST}, id="released-after-a-loss"),
        pytest.param("undone", LastConfiguration("", is_undone=True), set(), id="undone-without-a-file"),
        pytest.param(f"undone{DIGEST}", LastConfiguration(DIGEST, is_undone=True), set(), id="undone"),
        pytest.param("undoneunknown", LastConfiguration("unknown", is_undone=True), set(), id="undone-after-a-loss"),
    ],
)
def test_what_a_text_says(text: str, left: LastConfiguration, keeps: set[str]) -> None:
    """These are the texts in the databases of nodes; and under which configurations a release goes on."""
    assert (LastConfiguration.parse(text), left.format()) == (left, text)
    assert {digest for digest in ("", DIGEST, "another") if left.keeps_release(digest)} - {"another"} == keeps
    assert left.keeps_release("another") is (text == "unknown")


@pytest.mark.parametrize(
    ("text", "then"),
    [
        pytest.param("", "unknown", id="nothing-is-known"),
        pytest.param(DIGEST, DIGEST, id="a-policy-file"),
        pytest.param(f"undone{DIGEST}", DIGEST, id="that-an-earlier-release-was-undone-is-over"),
        pytest.param("undone", "unknown", id="undone-without-a-file"),
        pytest.param("unknown", "unknown", id="released-after-a-loss"),
    ],
)
def test_a_release_for_which_no_file_is_read(text: str, then: str) -> None:
    """It is one of the node's configuration; of an unknown one it goes on under any."""
    assert LastConfiguration.parse(text).digest_of_release == then
