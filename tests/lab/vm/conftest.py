"""Guests for the tests: booted at the first need, two at a time, each once for all checks that are wanted of it."""

import io
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lab.vm import guest
from lab.vm.kernel import GuestError
from lab.vm.plans import PLANS, Case, Verdict, parse
from tests.conftest import ROOT
from tests.e2e.runtimes import BY_NAME

SIDE_BY_SIDE = 2
"""Guests at a time: an emulated one keeps little more than one CPU busy."""
GUEST_TIMEOUT_S = 2700.0
"""They take a minute each; a busy machine is no failure."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what boots guests."""
    for item in items:
        if "guests_work" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.vm)


@pytest.fixture(scope="session")
def guests_work() -> None:
    """Skip, with the reason, where no guest can run."""
    if reason := guest.unavailable():
        pytest.skip(reason)


class Verdicts:
    """The verdicts of all checks that this run of pytest wants; `of` waits for the guest."""

    def __init__(self, cases: list[Case], pool: ThreadPoolExecutor, environment: Mapping[str, str]) -> None:
        wanted = defaultdict(list)
        for case in cases:
            wanted[case.plan].append(case)
        self._futures: dict[str, Future[dict[Case, Verdict]]] = {
            plan: pool.submit(_run, plan, cases, environment) for plan, cases in wanted.items()
        }

    def of(self, case: Case) -> Verdict:
        """The verdict of a check."""
        return self._futures[case.plan].result()[case]


@pytest.fixture(scope="session")
def verdicts(guests_work: None, request: pytest.FixtureRequest) -> Iterator[Verdicts]:
    """Start the guests."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [call.params.get("case") for call in calls if call]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        wanted = [case for case in cases if isinstance(case, Case)]
        yield Verdicts(wanted, pool, _environment(request.config.getoption("--runtime")))


def _environment(runtime: str | None) -> dict[str, str]:
    """For the checks, which find this machine's files: where the containerd is that they are to use."""
    if not runtime:
        return {"PYTHONPATH": str(ROOT)}
    if reason := BY_NAME[runtime].unavailable():
        pytest.skip(reason)
    return {"PYTHONPATH": str(ROOT), "CRIPROXY_CONTAINERD": str(BY_NAME[runtime].programs() or "")}


def _run(plan: str, cases: list[Case], environment: Mapping[str, str]) -> dict[Case, Verdict]:
    """Boot the guest and try these checks; those that it did not get to are failures."""
    command = shlex.join([sys.executable, "-m", "lab.vm.plans", plan, *(case.check for case in cases)])
    job = guest.Job(
        command,
        ROOT,
        GUEST_TIMEOUT_S,
        environment=environment,
        systemd=PLANS[plan].cgroup_driver == "systemd",
    )
    out, error = io.BytesIO(), io.BytesIO()
    try:
        status = guest.run(PLANS[plan].hardware, job, out, error)
        why = f"the checks in guest {plan} ended with status {status}"
    except GuestError as problem:
        why = str(problem)
    found = {verdict.case: verdict for verdict in map(parse, out.getvalue().decode().splitlines())}
    untold = f"{why}: {error.getvalue().decode(errors='replace')}"
    return {case: found.get(case) or Verdict(case, untold) for case in cases}
