"""What the scheduler of a machine takes of a class: said before any container has it. Pure."""

from dataclasses import dataclass

from criproxy.model.controls import Scheduling

REAL_TIME = ("fifo", "rr")
LEAST_RUNTIME_US = 2
"""The kernel takes no ``runtime`` below 1024 ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """What a kernel says of its scheduler."""

    runtime_us: int = 950_000
    """``kernel.sched_rt_runtime_us``: what real-time threads may have of each second; -1: no limit."""
    pods_runtime_us: int | None = None
    """``cpu.rt_runtime_us`` of the pods' parent with cgroup v1; None if the kernel has no such limits for cgroups."""
    shortest_period_us: int = 100
    longest_period_us: int = 1 << 22
    """``kernel.sched_deadline_period_{min,max}_us``."""


def misfit(scheduling: Scheduling, machine: Scheduler, *, every_cpu: bool) -> str:
    """Return why *machine* cannot schedule a container's threads as *scheduling* says; empty if nothing is known.

    For `check`, and for the daemon before it takes a policy file. What is only known at the container (too little
    bandwidth left for another deadline, a real-time limit of its own cgroup) is said when the class is applied.

    Args:
        scheduling: of a class; its values are within the limits of the options.
        machine: see `criproxy.host.controllable.read_scheduler`.
        every_cpu: whether containers of the class may run on all CPUs of the machine.
    """
    if scheduling.policy in REAL_TIME:
        return _real_time(scheduling.policy, machine)
    if scheduling.policy == "deadline":
        return _deadline(scheduling, machine, every_cpu=every_cpu)
    return ""


def _real_time(policy: str, machine: Scheduler) -> str:
    if machine.runtime_us == 0:
        return f"policy {policy}: kernel.sched_rt_runtime_us is 0, so that real-time threads never run"
    if machine.pods_runtime_us == 0:
        return (
            f"policy {policy}: with cgroup v1, this kernel lets only those containers have real-time threads whose"
            " cgroup has cpu.rt_runtime_us, and the parent cgroup of the pods has none"
        )
    return ""


def _deadline(scheduling: Scheduling, machine: Scheduler, *, every_cpu: bool) -> str:
    if machine.runtime_us == 0:
        return "policy deadline: kernel.sched_rt_runtime_us is 0, so that the kernel takes no deadline"
    runtime_us, period_us = scheduling.runtime_us, scheduling.period_us
    deadline_us = scheduling.deadline_us or period_us
    if not LEAST_RUNTIME_US <= runtime_us <= deadline_us <= period_us:
        return (
            f"policy deadline needs {LEAST_RUNTIME_US} us <= runtime <= deadline <= period:"
            f" {runtime_us} us, {deadline_us} us and {period_us} us are not"
        )
    if not machine.shortest_period_us <= period_us <= machine.longest_period_us:
        return (
            f"policy deadline: this kernel takes periods from {machine.shortest_period_us} to"
            f" {machine.longest_period_us} us, not {period_us} us"
        )
    if not every_cpu:
        return (
            "policy deadline: the kernel takes it only from threads that may run on all CPUs,"
            " and containers of this class have fewer"
        )
    return ""
