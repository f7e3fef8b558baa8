"""What differs between the maps of two nodes."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.node import changed_keys, without

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
