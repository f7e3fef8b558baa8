"""The daemon in front of a real containerd, on machines with many NUMA nodes: what `checks` found in guests."""

import pytest

from tests.rigs.vm.conftest import Verdicts
from tests.rigs.vm.plans import CASES, Case


@pytest.mark.slow
@pytest.mark.timeout(3000)  # the first waits for all the guests before its own
@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_a_guest(case: Case, verdicts: Verdicts) -> None:
    """The claim in the check's docstring holds on that machine and under that policy."""
    verdict = verdicts.of(case)

    if verdict.error:
        pytest.fail(verdict.error, pytrace=False)
