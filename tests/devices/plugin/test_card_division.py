"""Cards are cut into vGPUs."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.vgpu_profiles import CardChoice, CardSize, Profile
from criproxy.devices.plugin.card_division import ALL_CORES_PERCENT, choose, cut


def _card(index: int, memory_mib: int = 16384, model: str = "Tesla-T4") -> CardSize:
    return CardSize(id=f"GPU-{'abcdef'[index]}", index=index, model=model, memory_mib=memory_mib)


A, B = _card(0), _card(1)
NOWHERE, HALF = CardChoice(ids=("GPU-x",)), CardChoice(share_percent=50)
g, h = (partial(Profile, name=name, kind="nvidia") for name in "gh")


@pytest.mark.parametrize(
    ("profiles", "count"),
    [
        pytest.param([g(memory_mib=8192, cores_percent=25)], {"g": 2}, id="by-memory"),
        pytest.param([g(memory_mib=1024, cores_percent=25)], {"g": 4}, id="by-cores"),
        pytest.param([g(memory_percent=30)], {"g": 3}, id="percent-of-memory-alone"),
        pytest.param([g(cores_percent=30)], {"g": 3}, id="cores-alone"),
        pytest.param([g(memory_percent=10, count=3)], {"g": 3}, id="a-number"),
        pytest.param([g(memory_percent=50, count=1), h(memory_percent=25)], {"g": 1, "h": 2}, id="auto-has-the-rest"),
    ],
)
def test_as_many_parts_fit_as_both_quotas_allow(profiles: list[Profile], count: dict[str, int]) -> None:
    """A card has as many vGPUs of each profile as both quotas allow, or as the profile says."""
    found = cut([A], profiles)
    assert {name: len(parts) for name, parts in found.vgpus.items()} == count
    assert (found.problems, found.whole) == ((), ())


@pytest.mark.parametrize(
    ("choice", "ids"),
    [
        pytest.param(CardChoice(), "abcd", id="all"),
        pytest.param(CardChoice(models=("Tesla-*",)), "abc", id="model"),
        pytest.param(CardChoice(models=("A100*", "Tesla-V100")), "cd", id="one-of-several-models"),
        pytest.param(CardChoice(indexes=(3, 0)), "ad", id="indexes-in-the-order-of-the-machine"),
        pytest.param(CardChoice(ids=("GPU-b", "GPU-x")), "b", id="ids"),
        pytest.param(HALF, "ab", id="the-first-half"),
        pytest.param(CardChoice(models=("Tesla-*",), share_percent=50), "a", id="half-of-what-is-left-rounded-down"),
    ],
)
def test_a_choice_means_cards(choice: CardChoice, ids: str) -> None:
    """All conditions of a choice hold for each of its cards, and the share is taken of those."""
    cards = [A, B, _card(2, model="Tesla-V100"), _card(3, model="A100-SXM4-40GB")]
    assert [card.id for card in choose(cards, choice)] == [f"GPU-{letter}" for letter in ids]


@pytest.mark.parametrize(
    ("memory_mib", "profiles", "sentence"),
    [
        (16384, [g(memory_mib=8192, cores_percent=25, count=3)], "3 x g (8192 MiB and 25 % of the cores) need 24576"),
        (16384, [g(cores_percent=40, count=2), h(cores_percent=30, count=1)], "+ 1 x h (30 % of the cores) need 110 %"),
        (16384, [g(cores_percent=5), h(cores_percent=5)], "the profiles g and h have count: auto; give all but one"),
        (16384, [g(memory_mib=32768)], "no g fits on it; 16384 MiB of 16384 and 100 % of its cores are left, but it"),
        (0, [g(memory_percent=60, count=2)], "2 x g (60 % of the memory) need 120 % of its memory"),
        (0, [g(memory_percent=50)], "its memory is unknown, so g cannot have 50 % of it; give memory in MiB"),
        (0, [g(memory_mib=1024)], "its memory is unknown, so count: auto of g cannot be computed; give a number"),
        (16384, [g(cores_percent=50, select=NOWHERE)], "profile g: select matches no card of class nvidia"),
        (16384, [g(cores_percent=50, select=HALF)], "profile g: share: 50% of 1 card is less than one card"),
    ],
)
def test_contradictions_are_said_with_the_arithmetic(memory_mib: int, profiles: list[Profile], sentence: str) -> None:
    """What does not go together is named with its numbers, and such a card has no vGPUs."""
    found = cut([_card(0, memory_mib)], profiles)
    (problem,) = found.problems
    assert sentence in problem
    assert not any(found.vgpus.values())


_PROFILE = st.builds(
    Profile,
    name=st.sampled_from(["a", "b", "c"]),
    kind=st.just("nvidia"),
    memory_mib=st.integers(0, 20_000),
    memory_percent=st.integers(1, 100),
    cores_percent=st.integers(0, 100),
    count=st.none() | st.integers(1, 8),
    select=st.sampled_from([CardChoice(), HALF]),
)


@given(
    st.lists(_PROFILE, max_size=3, unique_by=lambda each: each.name),
    st.lists(st.integers(0, 81920), min_size=1, max_size=6),
)
def test_no_card_promises_more_than_it_has(profiles: list[Profile], sizes_mib: list[int]) -> None:
    """Whatever the profiles say: ids are unique, no card promises more than it has, and each card is used one way."""
    cards = [_card(index, size_mib) for index, size_mib in enumerate(sizes_mib)]
    found = cut(cards, profiles)
    parts = [each for own in found.vgpus.values() for each in own]
    assert len({each.id for each in parts}) == len(parts)
    assert not {*found.whole} & {each.card for each in parts}
    for card in cards:
        own = [each for each in parts if each.card == card.id]
        assert sum(each.cores_percent for each in own) <= ALL_CORES_PERCENT
        assert not card.memory_mib or sum(each.memory_mib for each in own) <= card.memory_mib
        assert own or card.id in found.whole or any(card.id in text for text in found.problems)


@pytest.mark.parametrize("cards", [pytest.param([], id="at-first"), pytest.param([A], id="since-then")])
def test_cards_with_mig_are_not_cut(cards: list[CardSize]) -> None:
    """A profile that selects no other ones has no vGPU, and it is said why; other cards are cut as before."""
    found = cut(cards, [g(cores_percent=50)], [A])
    assert found.vgpus == {"g": ()}
    assert "without MIG; with MIG: GPU-a, whose MIG devices become vGPUs with enforce: [mig]" in found.problems[0]

    found = cut([*cards, B], [g(cores_percent=50)], [A])
    assert [vgpu.card for vgpu in found.vgpus["g"]] == ["GPU-b", "GPU-b"]
    assert found.problems == ()
