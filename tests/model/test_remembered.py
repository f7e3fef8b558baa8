"""What is worked out of values that never change is kept for the next who asks, and not for ever."""

from criproxy.model.remembered import remembered


def test_the_same_arguments_have_the_same_answer() -> None:
    """Those that only compare equal are others: to compare them is what shall not be done."""
    asked = list[list[int]]()

    @remembered(2)
    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    one, other = [1, 2], [1, 2]

    assert ([total(one), total(one), total(other)], asked) == ([3, 3, 3], [one, other])
    assert asked[0] is one
    assert asked[1] is other


def test_the_oldest_answers_are_forgotten() -> None:
    """And worked out once more when somebody asks again; the others are not."""
    asked = list[str]()

    @remembered(2)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    for text in ("a", "bb", "ccc", "bb", "ccc", "a"):
        assert length(text) == len(text)

    assert asked == ["a", "bb", "ccc", "a"]


def test_another_object_never_gets_the_answer_of_one_that_is_gone() -> None:
    """The arguments are kept, so that their identity is not given to others."""

    @remembered(50)
    def first(numbers: list[int]) -> int:
        return numbers[0]

    assert all(first([number]) == number for number in range(1000))
