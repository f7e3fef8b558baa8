"""What a guest says of its checks, and that every check has a guest."""

import inspect

from lab.vm import checks, policy_checks, topology_checks
from lab.vm.plans import CASES, IN_MAKE_TEST, PLANS


def test_no_check_is_forgotten() -> None:
    """Each function that takes a world belongs to a plan, and no plan has one twice."""
    written = {
        name
        for module in (checks, policy_checks, topology_checks)
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }

    assert {case.check for case in CASES} == written
    assert set(CASES) > IN_MAKE_TEST
    assert len(set(CASES)) == len(CASES) == sum(len(plan.checks) for plan in PLANS.values())
