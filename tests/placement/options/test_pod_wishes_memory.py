"""Kinds of memory and cold starts, as pods write them."""

import pytest

from criproxy.model.machine.topology import MemoryKind
from criproxy.placement.options.pod_wishes import cold_start_s, memory_kinds


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["dram"], {MemoryKind.DRAM}),
        (["pmem", "hbm", "pmem"], {MemoryKind.PMEM, MemoryKind.HBM}),
        (["mixed"], {MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM}),
        (["mixed", "device"], set(MemoryKind)),
        (["DRAM", "Hbm"], {MemoryKind.DRAM, MemoryKind.HBM}),
    ],
)
def test_words_for_kinds(words: list[str], kinds: set[MemoryKind]) -> None:
    """Mixed is all of them; the case does not matter."""
    assert memory_kinds(words) == kinds


def test_an_unknown_kind_is_quoted_as_it_was_written() -> None:
    """So that its author finds it."""
    with pytest.raises(ValueError, match=r"^'Flash' must be dram, pmem, hbm, device or mixed$"):
        memory_kinds(["dram", "Flash"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: {duration: 60s}", 60.0, id="a-map"),
        pytest.param("a: 10s", 10.0, id="a-duration"),
        pytest.param("b: {duration: 60s}", None, id="of-another-container"),
        pytest.param("a: soon", None, id="no-duration"),
        pytest.param("duration: 10s", None, id="of-no-container"),
    ],
)
def test_a_cold_start_in_the_old_form_ends_too(text: str, expected: float | None) -> None:
    """CRI-RM's ``DOMAIN/cold-start`` maps containers to durations: who begins cold by it does not stay so."""
    assert cold_start_s({"cri-resource-manager.intel.com/cold-start": text}, "a") == expected
