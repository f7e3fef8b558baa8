"""What the numbers of a CRI message say about what was asked: the kubelet's formulas and their inverses.

The kubelet's side is written out as well (``milli_to_shares`` and so on): the tests prove that each
inverse is exact, and the embedded machines send what a kubelet would send.
"""

from dataclasses import dataclass

from criproxy.model.cpuset import MAX_ID

MIN_SHARES = 2
MAX_SHARES = 262_144
MAX_SHARES_MILLI = 256_000
"""The request from which the kubelet sends MAX_SHARES."""
MIN_REQUEST_MILLI = 2
"""The kubelet sends MIN_SHARES for a request of this and for less."""
MAX_MACHINE_MILLI = (MAX_ID + 1) * 1000
"""No machine has more: the end of a request of which only the beginning is known, and of every limit."""
DEFAULT_PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
LIFTED_US = -1
"""The cpu_quota that means that there is no limit; in an update, 0 would leave it as it is."""

GUARANTEED_OOM_SCORE_ADJ = -997
BEST_EFFORT_OOM_SCORE_ADJ = 1000
_MIN_BURSTABLE_ADJ = 3
_MAX_BURSTABLE_ADJ = 999


@dataclass(frozen=True, slots=True)
class Interval:
    """An amount that is only known to lie in low..high, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class CfsQuota:
    """A CPU limit as CRI says it: so much CPU time in each period."""

    quota_us: int
    period_us: int = DEFAULT_PERIOD_US

    @classmethod
    def sent(cls, quota_us: int, period_us: int) -> "CfsQuota | None":
        """That of a message; None where there is no limit. A period of 0 means the default, 100 ms."""
        return cls(quota_us, period_us if period_us > 0 else DEFAULT_PERIOD_US) if quota_us > 0 else None

    @classmethod
    def of_limit(cls, cpu_limit_milli: int | None) -> "CfsQuota | None":
        """What the kubelet sends for a limit, at its usual period; None for none."""
        return cls.sent(milli_to_quota(cpu_limit_milli), DEFAULT_PERIOD_US) if cpu_limit_milli else None


def milli_to_shares(cpu_milli: int) -> int:
    """The kubelet's cpu_shares for a request of *cpu_milli*."""
    return min(max(cpu_milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def shares_to_milli(shares: int) -> int:
    """The request in milli-CPU that the kubelet turned into *shares*; 0 where none was sent.

    Exact for requests of 2 to 256000 milli-CPU. The smallest shares, 2, stand for anything of 0 to 2
    milli-CPU and give 2; the largest stand for 256 CPUs and more and give 256000.
    """
    if shares <= 0:
        return 0
    return -(-min(max(shares, MIN_SHARES), MAX_SHARES) * 1000 // 1024)


def milli_to_quota(cpu_limit_milli: int, period_us: int = DEFAULT_PERIOD_US) -> int:
    """The kubelet's cpu_quota in µs for a limit of *cpu_limit_milli*; 0 (no limit) for 0."""
    if cpu_limit_milli == 0:
        return 0
    return max(cpu_limit_milli * period_us // 1000, MIN_QUOTA_US)


def quota_to_milli(quota_us: int, period_us: int) -> int | None:
    """The limit in milli-CPU, None where there is none (a quota of 0, or -1 when it was lifted).

    Exact for periods of 1 ms and more, except that limits whose quota would be under 1 ms (10 milli-CPU
    at the usual period) read as that much. A period of 0 means the default, 100 ms. What is beyond all machines is the
    limit of the largest one.
    """
    if quota_us <= 0:
        return None
    milli = -(-quota_us * 1000 // (period_us if period_us > 0 else DEFAULT_PERIOD_US))
    return min(milli, MAX_MACHINE_MILLI)


def request_to_oom_score_adj(request_bytes: int, capacity_bytes: int) -> int:
    """The kubelet's oom_score_adj for a container of a Burstable pod on a node with *capacity_bytes*."""
    adj = 1000 - 1000 * request_bytes // capacity_bytes
    return min(max(adj, _MIN_BURSTABLE_ADJ), _MAX_BURSTABLE_ADJ)


def oom_score_adj_to_request(oom_score_adj: int, capacity_bytes: int) -> Interval | None:
    """The memory requests in bytes that give this *oom_score_adj* on a node with *capacity_bytes*.

    None where it says nothing of a request: outside 3..999 (Guaranteed, BestEffort, node-critical,
    a value of another program) or without a known capacity.
    """
    if not _MIN_BURSTABLE_ADJ <= oom_score_adj <= _MAX_BURSTABLE_ADJ or capacity_bytes <= 0:
        return None
    thousandths = 1000 - oom_score_adj
    low = 0 if oom_score_adj == _MAX_BURSTABLE_ADJ else -(-thousandths * capacity_bytes // 1000)
    if oom_score_adj == _MIN_BURSTABLE_ADJ:
        return Interval(low, max(low, capacity_bytes))
    return Interval(low, -(-(thousandths + 1) * capacity_bytes // 1000) - 1)
