"""Which classes a machine's scheduler cannot have is said before, with the reason."""

import pytest

from criproxy.model.controls import Scheduling
from criproxy.model.machine.scheduler import Scheduler, misfit

MACHINE = Scheduler()
FIFO = Scheduling(policy="fifo", priority=10)
DEADLINE = Scheduling(policy="deadline", runtime_us=10_000, deadline_us=20_000, period_us=20_000)
NO_RUNTIME = (
    "with cgroup v1, this kernel lets only those containers have real-time threads whose cgroup has cpu.rt_runtime_us,"
    " and the parent cgroup of the pods has none"
)
FEWER_CPUS = "the kernel takes it only from threads that may run on all CPUs, and containers of this class have fewer"


@pytest.mark.parametrize(
    ("scheduling", "machine", "every_cpu", "said"),
    [
        (Scheduling(policy="batch", nice=5), Scheduler(pods_runtime_us=0), False, ""),
        (Scheduling(nice=-5, io_class="idle"), MACHINE, False, ""),
        (FIFO, MACHINE, False, ""),
        (FIFO, Scheduler(pods_runtime_us=400_000), False, ""),
        (Scheduling(policy="rr", priority=10), Scheduler(pods_runtime_us=0), False, f"policy rr: {NO_RUNTIME}"),
        (
            FIFO,
            Scheduler(runtime_us=0),
            False,
            "policy fifo: kernel.sched_rt_runtime_us is 0, so that real-time threads never run",
        ),
        (DEADLINE, MACHINE, True, ""),
        (
            DEADLINE,
            Scheduler(runtime_us=0),
            True,
            "policy deadline: kernel.sched_rt_runtime_us is 0, so that the kernel takes no deadline",
        ),
        (DEADLINE, MACHINE, False, f"policy deadline: {FEWER_CPUS}"),
        (
            Scheduling(policy="deadline", runtime_us=30_000, deadline_us=20_000, period_us=20_000),
            MACHINE,
            True,
            "policy deadline needs 2 us <= runtime <= deadline <= period: 30000 us, 20000 us and 20000 us are not",
        ),
        (
            Scheduling(policy="deadline", runtime_us=10, period_us=50),
            MACHINE,
            True,
            "policy deadline: this kernel takes periods from 100 to 4194304 us, not 50 us",
        ),
    ],
)
def test_what_does_not_fit(scheduling: Scheduling, machine: Scheduler, every_cpu: bool, said: str) -> None:
    """Empty for what fits."""
    assert misfit(scheduling, machine, every_cpu=every_cpu) == said
