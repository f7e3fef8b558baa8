"""Runs in a guest: the checks of a plan against a real containerd, one line of JSON for each on standard output.

python -m lab.vm.inside PLAN CHECK …
"""

import asyncio
import json
import sys
import traceback
from dataclasses import asdict, dataclass

from lab.vm.plans import PLANS, Case, Check, Plan
from lab.vm.world import World, proxied

CHECK_TIMEOUT_S = 400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a check; `error` is empty if its claim holds."""

    case: Case
    error: str

    def line(self) -> str:
        """As `parse` reads it."""
        return json.dumps(asdict(self))


def parse(line: str) -> Verdict:
    """A verdict from its line."""
    fields = json.loads(line)
    return Verdict(Case(**fields["case"]), fields["error"])


async def run(plan: Plan, wanted: set[str]) -> None:
    """Try those checks of *plan* that are wanted, by name, and print their verdicts."""
    async with proxied(plan.hardware, plan.policy_file, plan.cgroup_driver) as world:
        for check in plan.checks:
            if check.__name__ in wanted:
                print((await judge(Case(plan.name, check.__name__), check, world)).line(), flush=True)


async def judge(case: Case, check: Check, world: World) -> Verdict:
    """Try one check, on a node without pods before and after."""
    logged = len(world.serve.log.read_text())
    error = ""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check(world)
        await world.clear()
    except Exception as problem:  # noqa: BLE001 (whatever it is, it is this check's verdict and must not end the others)
        told = traceback.TracebackException.from_exception(problem, capture_locals=True)
        error = f"{''.join(told.format())}\ncriproxy said meanwhile:\n{world.serve.log.read_text()[logged:]}"
        await world.recover()
    return Verdict(case, error)


if __name__ == "__main__":
    asyncio.run(run(PLANS[sys.argv[1]], set(sys.argv[2:])))
