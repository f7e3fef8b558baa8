"""Requests and limits from the numbers of a CRI message: the kubelet's formulas and their inverses.

The kubelet's formulas are included (``milli_to_shares`` and so on): the tests prove that each inverse is exact, and the
small kubelet of the emulator sends what a kubelet would send.
"""

from dataclasses import dataclass

from criproxy.model.cpuset import MAX_ID

MIN_SHARES = 2
MAX_SHARES = 262_144
MAX_SHARES_MILLI = 256_000
"""The smallest request for which the kubelet sends MAX_SHARES."""
MOST_CPU_MILLI, MOST_MEMORY_BYTES = 1_000_000_000, 1 << 60
"""The largest sizes of a container about which people may ask."""
MIN_REQUEST_MILLI = 2
"""The largest request for which the kubelet sends MIN_SHARES."""
MAX_MACHINE_MILLI = (MAX_ID + 1) * 1000
"""More than any machine has: the upper end of open intervals of requests, and of every limit."""
DEFAULT_PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
LIFTED_US = -1
"""The cpu_quota for no limit; in an update, 0 would not change it."""

GUARANTEED_OOM_SCORE_ADJ = -997
BEST_EFFORT_OOM_SCORE_ADJ = 1000
_MIN_BURSTABLE_ADJ = 3
_MAX_BURSTABLE_ADJ = 999


@dataclass(frozen=True, slots=True)
class Interval:
    """An amount that is only known to be in low..high, inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class CfsQuota:
    """A CPU limit as in CRI: CPU time in each period."""

    quota_us: int
    period_us: int = DEFAULT_PERIOD_US

    @classmethod
    def sent(cls, quota_us: int, period_us: int) -> "CfsQuota | None":
        """Return the quota of a message; None if there is no limit. A period of 0 means the default, 100 ms."""
        return cls(quota_us, period_us if period_us > 0 else DEFAULT_PERIOD_US) if quota_us > 0 else None

    @classmethod
    def of_limit(cls, cpu_limit_milli: int | None) -> "CfsQuota | None":
        """Return what the kubelet sends for a limit, with its default period; None without a limit."""
        return cls.sent(milli_to_quota(cpu_limit_milli), DEFAULT_PERIOD_US) if cpu_limit_milli else None


def milli_to_shares(cpu_milli: int) -> int:
    """Return the kubelet's cpu_shares for a request of *cpu_milli*."""
    return min(max(cpu_milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def linear_weight(shares: int) -> int:
    """Return the cpu.weight that runc before 1.3.2 and crun before 1.23 make of *shares*; newer ones make others."""
    return 1 + (min(max(shares, MIN_SHARES), MAX_SHARES) - MIN_SHARES) * 9999 // 262_142


def shares_to_milli(shares: int) -> int:
    """Return the request in milli-CPU that the kubelet converted to *shares*; 0 if none was sent.

    Exact for requests of 2 to 256000 milli-CPU. The smallest shares, 2, stand for anything of 0 to 2
    milli-CPU and give 2; the largest stand for 256 CPUs and more and give 256000.
    """
    if shares <= 0:
        return 0
    return -(-min(max(shares, MIN_SHARES), MAX_SHARES) * 1000 // 1024)


def milli_to_quota(cpu_limit_milli: int, period_us: int = DEFAULT_PERIOD_US) -> int:
    """Return the kubelet's cpu_quota in µs for a limit of *cpu_limit_milli*; 0 (no limit) for 0."""
    if cpu_limit_milli == 0:
        return 0
    return max(cpu_limit_milli * period_us // 1000, MIN_QUOTA_US)


def quota_to_milli(quota_us: int, period_us: int) -> int | None:
    """Return the limit in milli-CPU; None if there is none (a quota of 0, or -1 if it was lifted).

    Exact for periods of 1 ms and more, except that limits whose quota would be under 1 ms (10 milli-CPU
    at the usual period) read as that much. A period of 0 means the default, 100 ms. What is beyond all machines is the
    limit of the largest one.
    """
    if quota_us <= 0:
        return None
    milli = -(-quota_us * 1000 // (period_us if period_us > 0 else DEFAULT_PERIOD_US))
    return min(milli, MAX_MACHINE_MILLI)


def request_to_oom_score_adj(request_bytes: int, capacity_bytes: int) -> int:
    """Return the kubelet's oom_score_adj for a container of a Burstable pod on a node with *capacity_bytes*."""
    adj = 1000 - 1000 * request_bytes // capacity_bytes
    return min(max(adj, _MIN_BURSTABLE_ADJ), _MAX_BURSTABLE_ADJ)


def oom_score_adj_to_request(oom_score_adj: int, capacity_bytes: int) -> Interval | None:
    """Return the memory requests in bytes that give this *oom_score_adj* on a node with *capacity_bytes*.

    None if it does not depend on a request: outside 3..999 (Guaranteed, BestEffort, node-critical, a value of another
    program) or without a known capacity.
    """
    if not _MIN_BURSTABLE_ADJ <= oom_score_adj <= _MAX_BURSTABLE_ADJ or capacity_bytes <= 0:
        return None
    thousandths = 1000 - oom_score_adj
    low = 0 if oom_score_adj == _MAX_BURSTABLE_ADJ else -(-thousandths * capacity_bytes // 1000)
    if oom_score_adj == _MIN_BURSTABLE_ADJ:
        return Interval(low, max(low, capacity_bytes))
    return Interval(low, -(-(thousandths + 1) * capacity_bytes // 1000) - 1)
