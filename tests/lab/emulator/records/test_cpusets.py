"""What may be written to a cpuset file: a table taken from a kernel with two CPUs, and its properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import format_cpuset
from lab.emulator.records.cpusets import BadCpuset, Cpuset, Machine, parse_bitmap

RANGE, INVALID = "numerical result out of range", "invalid argument"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,,1", {0, 1}),
        ("0-1:1/2", {0}),
        (" 0", {0}),
        ("0 1", {0, 1}),
        ("0,", {0}),
        ("0-1\n", {0, 1}),
        ("all", {0, 1}),
        ("N", {1}),
        ("0-N", {0, 1}),
        ("", set()),
    ],
)
def test_lists_that_the_kernel_takes(text: str, expected: set[int]) -> None:
    """Everything that a two-CPU kernel accepted is read as that kernel showed it."""
    assert parse_bitmap(text, 2) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2", RANGE),
        ("99999", RANGE),
        ("0-1000000", RANGE),
        ("0,9", RANGE),
        ("abc", INVALID),
        ("0-", INVALID),
        ("1-0", INVALID),
        ("-1", INVALID),
        ("0x1", INVALID),
        ("+1", INVALID),
        ("0-1:2/1", INVALID),
        ("0-1:1/0", INVALID),
        ("٣", INVALID),
        pytest.param("9" * 5000, INVALID, id="thousands-of-digits"),
    ],
)
def test_lists_that_the_kernel_refuses(text: str, reason: str) -> None:
    """The reason is the error number's text, as Go prints it."""
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_bitmap(text, 2)


@given(st.frozensets(st.integers(0, 63)))
def test_what_is_printed_is_read_back(cpus: frozenset[int]) -> None:
    """The kernel's own notation goes through unchanged."""
    assert parse_bitmap(format_cpuset(cpus), 64) == cpus


@given(st.text(alphabet="0123456789-,:/ Nal\n", max_size=20))
def test_any_text_is_a_set_within_the_bits_or_an_error(text: str) -> None:
    """Nothing but ValueError comes out of a bad list, and no bit beyond the last."""
    try:
        result: frozenset[int] | str = parse_bitmap(text, 8)
    except ValueError as error:
        result = str(error)

    assert result in {RANGE, INVALID} if isinstance(result, str) else result <= set(range(8))


MACHINE = Machine.parse("0-1,4-5", "0,2")


def test_an_empty_list_inherits_the_machine() -> None:
    """A container without a cpuset may use everything."""
    assert MACHINE.cpuset("", "") == Cpuset(frozenset({0, 1, 4, 5}), frozenset({0, 2}))


@pytest.mark.parametrize(
    ("cpus", "mems", "file", "reason"),
    [
        pytest.param("6", "", "cpuset.cpus", RANGE, id="beyond-the-last-cpu"),
        pytest.param("2", "", "cpuset.cpus", INVALID, id="a-hole-between-cpus"),
        pytest.param("", "1", "cpuset.mems", INVALID, id="a-node-that-is-not-there"),
        pytest.param("", "1024", "cpuset.mems", RANGE, id="beyond-the-kernels-nodes"),
        pytest.param(",", "", "cpuset.cpus", "no space left on device", id="nothing-left"),
    ],
)
def test_a_machine_refuses_what_it_has_not(cpus: str, mems: str, file: str, reason: str) -> None:
    """The refusal names the file and the reason."""
    with pytest.raises(BadCpuset) as caught:
        MACHINE.cpuset(cpus, mems)

    assert (caught.value.file, caught.value.reason) == (file, reason)


@pytest.mark.parametrize(("cpus", "mems", "named"), [("", "0", "cpus"), ("0", "", "mems"), ("x", "0", "cpus")])
def test_options_of_a_machine_are_checked(cpus: str, mems: str, named: str) -> None:
    """A machine without CPUs or memory is refused with the name of the option."""
    with pytest.raises(ValueError, match=named):
        Machine.parse(cpus, mems)
