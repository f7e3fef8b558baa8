"""What a thread is to have: its attributes, changed by a class and by the end of one. Pure."""

from dataclasses import replace

from criproxy.controls.scheduling.calls import FLAGS, IO_CLASSES, POLICIES, Attributes, Policy
from criproxy.model.controls import Scheduling

_IO_NORMAL = 4
"""The level in I/O classes rt and be if a class names none: the kernel's own."""


def goal(now: Attributes, new: Scheduling, old: Scheduling, usual: Attributes) -> Attributes:
    """Return what a thread is to have.

    Args:
        now: what it has; it keeps what neither class is about.
        new: its class.
        old: the class that it had before. What only that sets goes back to *usual*, unless somebody has set something
            else since. A lower priority or nice value, and reset-on-fork, are not something else: a thread needs no
            right to set them itself, and would keep what the class gave it.
        usual: what threads of the container have without a class.
    """
    policy, nice, io = now.policy, now.nice, now.io
    if new.policy:
        policy = policy_of(new)
    elif old.policy and _is_part_of(policy, policy_of(old)):
        policy = usual.policy
    if new.nice is not None:
        nice = new.nice
    elif old.nice is not None and (nice == old.nice or old.nice < nice < usual.nice):
        nice = usual.nice
    if has_io(new):
        io = io_of(new)
    elif has_io(old) and io == io_of(old):
        io = usual.io
    return Attributes(policy, nice, io)


def _is_part_of(policy: Policy, given: Policy) -> bool:
    """Whether a thread that was *given* a policy may have made it that *policy* itself."""
    return policy.priority <= given.priority and replace(policy, priority=given.priority, flags=given.flags) == given


def only_roots(scheduling: Scheduling) -> bool:
    """Whether what a process starts is not to have it.

    Always with the policy deadline: the kernel lets such a thread start others only if they do not inherit it.
    """
    return scheduling.policy == "deadline" or "reset-on-fork" in scheduling.flags


def policy_of(scheduling: Scheduling) -> Policy:
    """Return the policy of a class that has one."""
    flags = {*scheduling.flags, *(["reset-on-fork"] if only_roots(scheduling) else [])}
    is_deadline = scheduling.policy == "deadline"
    deadline_us = scheduling.deadline_us or scheduling.period_us
    return Policy(
        POLICIES[scheduling.policy],
        scheduling.priority if scheduling.policy in ("fifo", "rr") else 0,
        sum(FLAGS[flag] for flag in flags),
        *((scheduling.runtime_us, deadline_us, scheduling.period_us or deadline_us) if is_deadline else ()),
    )


def has_io(scheduling: Scheduling) -> bool:
    """Whether a class is about I/O priority."""
    return bool(scheduling.io_class) or scheduling.io_priority is not None


def io_of(scheduling: Scheduling) -> tuple[int, int]:
    """Return I/O class and level of a class that has them; a level alone is one of the class be."""
    io_class = scheduling.io_class or "be"
    if io_class not in ("rt", "be"):
        return IO_CLASSES[io_class], 0
    return IO_CLASSES[io_class], _IO_NORMAL if scheduling.io_priority is None else scheduling.io_priority


def text_of(scheduling: Scheduling, what: str) -> str:
    """Return, for people, what a class sets by one call: policy, nice or I/O priority."""
    if what == "policy":
        priority = f", priority {scheduling.priority}" if scheduling.priority else ""
        return f"policy {scheduling.policy or 'as before'}{priority}"
    if what == "nice":
        return f"nice {scheduling.nice if scheduling.nice is not None else 'as before'}"
    level = f" {scheduling.io_priority}" if scheduling.io_priority is not None else ""
    return f"I/O class {scheduling.io_class or 'be'}{level}" if has_io(scheduling) else "I/O class as before"
