"""Guests for the tests: booted at the first need, two at a time, each once for all checks that are wanted of it."""

import io
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lab.vm import guest
from lab.vm.kernel import GuestError
from lab.vm.plans import PLANS, Case
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


Verdicts = Mapping[str, Future[Mapping[str, str]]]
"""Plan → check → what went wrong: of all checks that this run of pytest wants."""


@pytest.fixture(scope="session")
def verdicts(guests_work: None, request: pytest.FixtureRequest) -> Iterator[Verdicts]:
    """Start the guests."""
    wanted = defaultdict[str, list[str]](list)
    for item in request.session.items:
        call = getattr(item, "callspec", None)
        if call and isinstance(case := call.params.get("case"), Case):
            wanted[case.plan].append(case.check)
    environment = _environment(request.config.getoption("--runtime"))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {plan: pool.submit(_run, plan, checks, environment) for plan, checks in wanted.items()}


def _environment(runtime: str | None) -> dict[str, str]:
    """For the checks, which find this machine's files: where the containerd is that they are to use."""
    if not runtime:
        return {"PYTHONPATH": str(ROOT)}
    if reason := BY_NAME[runtime].unavailable():
        pytest.skip(reason)
    return {"PYTHONPATH": str(ROOT), "CRIPROXY_CONTAINERD": str(BY_NAME[runtime].programs() or "")}


def _run(plan: str, checks: list[str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """Boot the guest and try these checks; those that it did not get to are failures."""
    command = shlex.join([sys.executable, "-m", "lab.vm.plans", plan, *checks])
    systemd = PLANS[plan].cgroup_driver == "systemd"
    job = guest.Job(command, ROOT, GUEST_TIMEOUT_S, environment=environment, systemd=systemd)
    out, error = io.BytesIO(), io.BytesIO()
    try:
        status = guest.run(PLANS[plan].hardware, job, out, error)
        why = f"the checks in guest {plan} ended with status {status}"
    except GuestError as problem:
        why = str(problem)
    untold = dict.fromkeys(checks, f"{why}: {error.getvalue().decode(errors='replace')}")
    return untold | dict(map(json.loads, out.getvalue().decode().splitlines()))
