"""The daemon in front of a real containerd, on machines with many NUMA nodes: what `checks` found in guests."""

import pytest

from lab.vm.plans import CASES, IN_MAKE_TEST, Case
from tests.lab.vm.conftest import Verdicts

THOROUGH = {case: () if case in IN_MAKE_TEST else pytest.mark.thorough for case in CASES}


@pytest.mark.slow
@pytest.mark.timeout(3000)  # the first waits for all the guests before its own
@pytest.mark.parametrize("case", [pytest.param(case, id=str(case), marks=THOROUGH[case]) for case in CASES])
def test_in_a_guest(case: Case, verdicts: Verdicts) -> None:
    """The claim in the check's docstring holds on that machine and under that policy."""
    if error := verdicts[case.plan].result()[case.check]:
        pytest.fail(error, pytrace=False)
