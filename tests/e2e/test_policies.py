"""Every policy on real containers: it places, resizes and releases, and everybody else follows.

On a machine like CI's, of two CPUs and one NUMA node; of a larger one the two lowest CPUs are used. How memory follows
is seen in the guests of `lab/vm`.
"""

import asyncio
from pathlib import Path

import pytest

from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from lab.containerd.containerd import PrivateContainerd
from tests.daemons import LIMIT_S
from tests.e2e.scene import ALL, Ran, proxied
from tests.lives import Ends, Life, Released, Resized, Runs, Step, burstable, guaranteed

PAIR = sorted(ALL)[:2]
LOW, HIGH, BOTH = str(PAIR[0]), str(PAIR[1]), format_cpuset(frozenset(PAIR))
EVERYTHING = f"{format_cpuset(ALL)} m{format_cpuset(discover().mems)}"
"""Where a container is that nobody places."""
AVAILABLE = f'availableResources: {{cpu: "cpuset:{BOTH}"}}\n'
LENDING = "balloonTypes: [{name: batch, namespaces: [night], shareIdleCPUsInSame: system}]\n"
RESERVED = f'{AVAILABLE}reservedCpus: "{LOW}"\n'

WEB, DB = burstable("web", 500), guaranteed("db", 1000)
RT = guaranteed("db", 1000, asks={"pool.podpools": "rt"})
JOB = burstable("job", 500, namespace="night")


def owned(cpu: str, left: str) -> tuple[Step, ...]:
    """An owner of *cpu* that shrinks below a CPU, grows again and ends: who shares has what is *left* meanwhile."""
    apart, together = {"web": left, "db": cpu}, {"web": BOTH, "db": BOTH}
    return (
        (Runs(WEB), {"web": BOTH}),
        (Runs(DB), apart),
        (Resized("db", 500), together),
        (Resized("db", 1000), apart),
        (Ends("db"), {"web": BOTH}),
        (Runs(DB), apart),
        (Released(), {"web": EVERYTHING, "db": EVERYTHING}),
        (Released(undo=True), apart),
    )


LIVES = {
    "none": (
        "policy: none\n",
        (
            (Runs(WEB), {"web": EVERYTHING}),
            (Runs(DB), {"web": EVERYTHING, "db": EVERYTHING}),
            (Resized("db", 2000), {"web": EVERYTHING, "db": EVERYTHING}),
            (Ends("db"), {"web": EVERYTHING}),
            (Released(), {"web": EVERYTHING}),
        ),
    ),
    "static": (f"policy: static\n{RESERVED}", owned(HIGH, LOW)),
    "static-plus": (
        f"policy: static\n{RESERVED}exclusiveFor: [Guaranteed, Burstable]\nsharedRemainder: true\n",
        (
            (Runs(burstable("mixed", 1500)), {"mixed": BOTH}),  # it owns one and shares the other
            (Runs(WEB), {"mixed": BOTH, "web": LOW}),
            (Resized("mixed", 500), {"mixed": BOTH, "web": BOTH}),
            (Resized("mixed", 1000), {"mixed": HIGH, "web": LOW}),
            (Released(), {"mixed": EVERYTHING, "web": EVERYTHING}),
            (Released(undo=True), {"mixed": HIGH, "web": LOW}),
            (Ends("mixed"), {"web": BOTH}),
        ),
    ),
    "pools": (
        f'policy: pools\n{RESERVED}pools: [{{name: rt, exclusive: true, cpuLists: [{{cpuset: "{HIGH}"}}]}}]\n',
        (
            (Runs(WEB), {"web": LOW}),
            (Runs(RT), {"web": LOW, "db": HIGH}),
            (Resized("db", 500), {"web": LOW, "db": HIGH}),  # the pool has the size that it has
            (Resized("web", 1500), {"web": LOW, "db": HIGH}),
            (Ends("db"), {"web": LOW}),
            (Runs(RT), {"web": LOW, "db": HIGH}),
            (Released(), {"web": EVERYTHING, "db": EVERYTHING}),
            (Released(undo=True), {"web": LOW, "db": HIGH}),
        ),
    ),
    "balloons": (
        f"policy: balloons\n{AVAILABLE}{LENDING}",
        (
            (Runs(JOB), {"job": BOTH}),  # it is lent the other one
            (Runs(WEB), {"job": LOW, "web": HIGH}),
            (Resized("web", 1000), {"job": LOW, "web": HIGH}),
            (Ends("web"), {"job": BOTH}),
            (Resized("job", 1500), {"job": BOTH}),
            (Resized("job", 800), {"job": BOTH}),
            (Runs(WEB), {"job": LOW, "web": HIGH}),
            (Released(), {"job": EVERYTHING, "web": EVERYTHING}),
            (Released(undo=True), {"job": LOW, "web": HIGH}),
        ),
    ),
    "topology-aware": (f"policy: topology-aware\n{AVAILABLE}", owned(LOW, HIGH)),
}


@pytest.mark.parametrize("name", LIVES)
async def test_a_life(name: str, tmp_path: Path, containerd: PrivateContainerd) -> None:
    """After each step the cgroups of all containers say what the table does, and criproxy has nothing left to do."""
    policy, steps = LIVES[name]
    async with asyncio.timeout(60), proxied(tmp_path, containerd, policy) as scene:
        await Life[Ran](scene, LIMIT_S).play(*steps)
