"""The scheduling of one thread as values, and the system calls that read and set it; Python has only some of them."""

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

POLICIES = {"other": 0, "fifo": 1, "rr": 2, "batch": 3, "idle": 5, "deadline": 6}
IO_CLASSES = {"none": 0, "rt": 1, "be": 2, "idle": 3}
FLAGS = {"reset-on-fork": 1, "reclaim": 2, "dl-overrun": 4}
FAIR = frozenset({0, 3})
"""The policies other and batch: sched_setattr sets the nice value with them, and with no other one."""
DEADLINE = 6

POLICY, NICE, IO = "policy", "nice", "I/O priority"
"""What is set by one call each."""

_SETATTR, _GETATTR, _IO_SET, _IO_GET = (314, 315, 251, 252) if os.uname().machine == "x86_64" else (274, 275, 30, 31)
_WHO_PROCESS = 1
_IO_CLASS_SHIFT, _IO_LEVEL_MASK = 13, 7
_WITH_LEVEL = frozenset({1, 2})
_IDLE_LEVEL = 7
"""What ionice(1) sets; the kernel ignores it."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Attr(ctypes.Structure):
    """``struct sched_attr`` of version 0: later ones have utilization clamps, which nobody changes by that."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """What sched_setattr(2) sets beside nice; numbers are the kernel's."""

    number: int = 0
    priority: int = 0
    flags: int = 0
    runtime_us: int = 0
    deadline_us: int = 0
    period_us: int = 0


@dataclass(frozen=True, slots=True)
class Attributes:
    """How a thread is scheduled."""

    policy: Policy = Policy()
    nice: int = 0
    io: tuple[int, int] = (0, 0)
    """I/O class and level; the level is 0 where the class has none."""


def read(number: int) -> Attributes:
    """Read how a thread is scheduled.

    Raises:
        OSError: It has ended (ESRCH), or may not be read.
    """
    attr = _Attr()
    _call(_GETATTR, number, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    io = _call(_IO_GET, _WHO_PROCESS, number)
    io_class = io >> _IO_CLASS_SHIFT
    flags = attr.flags & sum(FLAGS.values())
    times = (0, 0, 0)  # of other policies, runtime is the length of a time slice
    if attr.policy == DEADLINE:
        times = (attr.runtime_ns // 1000, attr.deadline_ns // 1000, attr.period_ns // 1000)
    return Attributes(
        Policy(attr.policy, attr.priority, flags, *times),
        os.getpriority(os.PRIO_PROCESS, number),
        (io_class, io & _IO_LEVEL_MASK if io_class in _WITH_LEVEL else 0),
    )


def steps(number: int, now: Attributes, wanted: Attributes) -> Mapping[str, Callable[[], None]]:
    """Return the calls that change a thread from *now* to *wanted*, by what they set; they raise OSError."""
    found: dict[str, Callable[[], None]] = {}
    nice = now.nice
    if wanted.policy != now.policy:
        found[POLICY] = partial(_set_policy, number, wanted.policy, wanted.nice)
        nice = wanted.nice if wanted.policy.number in FAIR else nice
    if wanted.nice != nice:
        found[NICE] = partial(os.setpriority, os.PRIO_PROCESS, number, wanted.nice)
    if wanted.io != now.io:
        found[IO] = partial(_set_io, number, *wanted.io)
    return found


def _set_policy(number: int, policy: Policy, nice: int) -> None:
    attr = _Attr(
        size=ctypes.sizeof(_Attr),
        policy=policy.number,
        flags=policy.flags,
        nice=nice,
        priority=policy.priority,
        runtime_ns=policy.runtime_us * 1000,
        deadline_ns=policy.deadline_us * 1000,
        period_ns=policy.period_us * 1000,
    )
    _call(_SETATTR, number, ctypes.byref(attr), 0)


def _set_io(number: int, io_class: int, level: int) -> None:
    level = level if io_class in _WITH_LEVEL else _IDLE_LEVEL * (io_class == IO_CLASSES["idle"])
    _call(_IO_SET, _WHO_PROCESS, number, io_class << _IO_CLASS_SHIFT | level)


def _call(call: int, *arguments: object) -> int:
    # A variadic function: each number must be as wide as a register.
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(call), *wide))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
