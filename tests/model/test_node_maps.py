"""What differs between the maps of two nodes."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.node import changed_keys, with_changes, without

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


KEYS = st.sampled_from("abcdef")


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
