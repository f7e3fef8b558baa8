"""Which of several policies to take, in sentences."""

from dataclasses import replace

from criproxy.cli.offline.simulate_load import MEASURES, best, headline, reasons, recommended
from criproxy.simulate.load_run import Outcome
from criproxy.simulate.scores import Scores


def outcome(name: str, *, refused: int = 0, moves: int = 0, **scores: float) -> Outcome:
    """What came of a load of 200 containers."""
    return Outcome(name, replace(Scores(), **scores), 200, refused, 0, moves, ())


NEAR = outcome("near", distance=10.4, fragmentation=0.5)
FAR = outcome("far", distance=14.8, fragmentation=0.5)
CROWDED = outcome("tight", distance=10.0, fragmentation=0.5, crowded=0.4)


def test_the_one_to_take_and_what_each_other_lacks() -> None:
    """What it does best of what decides, at what each other falls behind first, and what it costs."""
    told = list(reasons([FAR, NEAR, CROWDED]))

    assert headline([FAR, NEAR, CROWDED]) == "For this load, use near"
    assert told == [
        (
            "Why: its containers are nearest to their memory, and no other policy is noticeably better in a more "
            "important measure."
        ),
        "With far, 'distance to memory' is 14.8, compared with 10.4.",
        "With tight, 'crowded' is 40.0 %, compared with 0.0 %.",
        "Others are better at 'distance to memory' (10.0 with tight, compared with 10.4).",
    ]


def test_a_refusal_counts_most() -> None:
    """One that places a container more is taken however far its memory is; what it refuses all the same is said."""
    lost, kept = replace(NEAR, refused=5), replace(FAR, refused=4)

    assert recommended([lost, kept]) is kept
    assert list(reasons([lost, kept])) == [
        (
            "Why: it leaves the fewest containers without a place, "
            "and no other policy is noticeably better in a more important measure."
        ),
        "With near, 'refused' is 5, compared with 4.",
        "Even so, 4 were refused, 2.0 % of the containers: the node may be too small for this load.",
        "Others are better at 'distance to memory' (10.4 with near, compared with 14.8).",
    ]


def test_several_that_are_better_at_something() -> None:
    """All of them are named; a difference too small to decide is told here."""
    first, *others = outcome("a", distance=11, crowded=0.004), replace(FAR, name="b"), replace(FAR, name="c")

    assert (
        list(reasons([first, *others]))[-1]
        == "Others are better at 'crowded' (0.0 % with b and c, compared with 0.4 %)."
    )


def test_differences_too_small_to_see_decide_nothing() -> None:
    """What is shown alike is alike: the next thing that counts decides."""
    still, moving = outcome("still", distance=10.41), outcome("moving", distance=10.39, moves=7)

    assert headline([moving, still]) == "For this load, use still"
    assert not best(next(each for each in MEASURES if each.key == "distance"), [moving, still])


def test_equals() -> None:
    """Nobody is put before others that do as well."""
    twin = replace(NEAR, name="twin")

    assert headline([NEAR, twin]) == "For this load, near and twin do equally well"
    assert list(reasons([NEAR, twin])) == [
        "They are equal in every measure that decides: refused, crowded, distance to memory, fragmentation and moves."
    ]
    assert headline([NEAR, FAR, twin]) == "For this load, near and twin do equally well"


def test_cards_count_before_memory() -> None:
    """Whoever puts more containers next to their cards is taken, however near memory is elsewhere."""
    beside, near = replace(FAR, with_cards=100, at_cards=98), replace(NEAR, with_cards=100, at_cards=40)

    assert list(reasons([near, beside]))[:2] == [
        (
            "Why: it puts the most containers next to their cards, "
            "and no other policy is noticeably better in a more important measure."
        ),
        "With near, 'next to their cards' is 40.0 %, compared with 98.0 %.",
    ]
