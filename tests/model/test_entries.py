"""Maps that know in what they differ from those they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.entries import Entries, changed_keys, entries_of, renamed, with_entries, without

KEYS = st.sampled_from("abcdef")
VALUES = st.integers(1000, 1010)
MAPS = st.dictionaries(KEYS, VALUES)


def differing(old: dict[str, int], new: dict[str, int]) -> set[str]:
    """The keys that have not the same value in both."""
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


@given(MAPS, MAPS)
def test_what_differs_between_any_two_maps_is_found(old: dict[str, int], new: dict[str, int]) -> None:
    """Also where neither was made of the other."""
    assert differing(old, new) <= set(changed_keys(old, new))
    assert differing(old, new) <= set(changed_keys(Entries(old), Entries(new)))


@given(MAPS, st.lists(st.one_of(MAPS, st.sets(KEYS), st.tuples(KEYS, KEYS))))
def test_a_map_equals_the_dict_made_in_the_same_way(first: dict[str, int], changes: list[object]) -> None:
    """In its order, too; what it says that it differs in includes all in which it does."""
    entries, expected = Entries(first), dict(first)
    for change in changes:
        before = entries
        if isinstance(change, dict):
            entries, expected = with_entries(entries, change), {**expected, **change}
        elif isinstance(change, set):
            entries = without(entries, sorted(change))
            expected = {key: value for key, value in expected.items() if key not in change}
        elif isinstance(change, tuple) and change[1] not in expected:
            old, new = change
            entries = renamed(entries, old, new)
            moved = {new: expected.pop(old)} if old in expected else {}
            expected = {**expected, **moved}
        assert list(entries.items()) == list(expected.items())
        assert differing(before, entries) <= set(changed_keys(before, entries))


@given(MAPS, MAPS, st.sets(KEYS), MAPS)
def test_maps_made_of_the_same_one_are_told_apart(
    first: dict[str, int], new: dict[str, int], gone: set[str], other: dict[str, int]
) -> None:
    """In either direction, and without a look at what neither has touched."""
    base = Entries({**first, "untouched": 0})
    one, two = without(with_entries(base, new), sorted(gone)), with_entries(base, other)

    for old, young in ((one, two), (two, one), (one, base)):
        assert differing(old, young) <= set(changed_keys(old, young)) <= {*new, *gone, *other}


def test_only_what_was_touched_is_looked_at() -> None:
    """A map of a map with a thousand entries says at once which one is another."""
    base = Entries({str(number): number for number in range(1000)})

    assert list(changed_keys(base, with_entries(base, {"7": 0}))) == ["7"]
    assert list(changed_keys(base, without(base, ("7",)))) == ["7"]
    assert changed_keys(base, base) == ()


def test_a_plain_dict_made_of_a_map_is_compared_once() -> None:
    """What a policy answers is any mapping: from then on it knows in what it differs."""
    base = Entries({"a": 1, "b": 2})

    made = entries_of(base, {**base, "b": 3})

    assert (made, set(changed_keys(base, made))) == ({"a": 1, "b": 3}, {"b"})
    assert entries_of(base, made) is made
