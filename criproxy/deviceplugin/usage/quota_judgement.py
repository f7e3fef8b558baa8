"""Finds the containers that are over the quotas of their vGPUs: a pure fold over readings.

A container is over its quota when it has exceeded quota and margin in a number of consecutive readings, for longer than
the grace period, or again and again, for more than a share of the time. That is one incident, until a reading shows the
container within its quota (without the margin, so that a container that stays just above its quota does not cause one
incident after the other). The incident is found again only if a stronger action is due, as with another plan.

The share is kept as in a leaky bucket: the time over the quota flows in, the share of all time flows out, and the
bucket holds the time for which a container may exceed its quota without a break. Each reading stands for the time since
the previous one, but for at most one period. After an incident the bucket is empty: criproxy has acted on its contents.

Uncertainty never counts against a container: incomplete readings do not count, though the share of their time flows out
(otherwise a neighbour whose processes exit quickly could take the time within the quota from a container), and after a
pause in the readings, the consecutive readings are counted anew, while the bucket stays as it was. With another plan,
everything is counted anew.
Nor does uncertainty end an incident: a process that exits
before its container is found may have belonged to any container on its card.

Here the device plugin decides; whether the daemon really stops a container is decided in `node.devices.incidents`.

Memory is judged by its current use. Computing units are sampled by the driver and are used in bursts, so they are
judged by the mean of the last readings. A reading without a newer sample than the previous one does not count.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from criproxy.deviceplugin.usage.quota_verdicts import Key, Limit, Over, Verdict, Within
from criproxy.devices.plugin.plan import STRENGTHS, OverQuota, QuotaPlan, is_stronger
from criproxy.devices.usage.values import ContainerUse, Process, ProcessUse

MEAN_OF = 5
"""The minimum number of readings over which the use of computing units is averaged."""
PAUSE_PERIODS = 3.0
"""After so many periods without a complete reading, the counts of a container start anew."""
ALL_CORES_PERCENT = 100.0
"""The maximum use of a card's computing units by one container; the driver is wrong if it reports more."""


class _Series(NamedTuple):
    """Consecutive readings about one quota; a tuple, because each reading makes hundreds of them."""

    recent: tuple[float, ...] = ()
    over_since_s: float | None = None
    readings_over: int = 0
    is_incident: bool = False
    last_s: float | None = None
    action: OverQuota = "observe"
    """The action of the incident's last verdict."""
    sampled_s: float | None = None
    """The time of the last sample, if it is known."""
    excess: float = 0.0
    """The time over the quota that exceeds the tolerated share of all time, in seconds times 100."""
    flowed_s: float | None = None
    """The time of the last incomplete reading, if it is the last one."""

    def restarted(self) -> "_Series":
        """Return the series without its readings: only an incident remains."""
        return _Series(is_incident=self.is_incident, action=self.action, sampled_s=self.sampled_s)

    def paused(self) -> "_Series":
        """Return the series after a pause: without its readings, but with what they amounted to."""
        return self.restarted()._replace(excess=self.excess)


_NEW = _Series()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The state that is kept about the cards of one class from one reading to the next."""

    kind: str
    """The name of the class."""
    plan: QuotaPlan
    _series: Mapping[Key, _Series] = field(default_factory=dict)

    def with_plan(self, plan: QuotaPlan) -> "Judgement":
        """Return the judgement with another *plan*: all counts start anew, and incidents remain."""
        if plan == self.plan:
            return self
        return replace(self, plan=plan, _series={key: each.restarted() for key, each in self._series.items()})

    def over_since(self) -> dict[Key, float]:
        """Return the exceeded quotas, also within the grace period, and since when on the monotonic clock."""
        return {key: each.over_since_s for key, each in self._series.items() if each.over_since_s is not None}

    def incidents(self) -> list[Key]:
        """Return the quotas with an incident that has not ended."""
        return [key for key, each in self._series.items() if each.is_incident]

    def resumed(self, key: Key, action: OverQuota = STRENGTHS[-1]) -> "Judgement":
        """Return the judgement with an incident from before a restart, in which the daemon took *action*."""
        return replace(self, _series={**self._series, key: _Series(is_incident=True, action=action)})

    def after(
        self,
        at_s: float,
        limits: Iterable[Limit],
        uses: Iterable[ContainerUse],
        lost: Collection[ProcessUse] = (),
        sampled_s: float | None = None,
    ) -> tuple["Judgement", tuple[Verdict, ...]]:
        """Judge a complete reading.

        Args:
            at_s: when the reading was taken, on the monotonic clock.
            limits: what the containers that exist now may use of cards of this class.
            uses: what containers use of cards of this class; a container that is missing uses nothing.
            lost: the use of the containers' card by processes that had exited before their containers were found.
            sampled_s: when the newest sample of the card's computing units was taken, by any clock; None: it is new.

        Returns:
            The new state, and the verdicts that are new.
        """
        used = {(each.container_id, each.card): each for each in uses}
        pause_s = PAUSE_PERIODS * self.plan.period_s
        series: dict[Key, _Series] = {}
        verdicts: list[Verdict] = []
        for limit in limits:
            key = limit.key
            before = self._series.get(key, _NEW)
            if before.last_s is not None and at_s - before.last_s > pause_s:
                before = before.paused()
            use = used.get(key[:2])
            used_now = _used(key, use)
            certain = self._certain(key, limit.allowed, used_now, lost) if lost else used_now
            if certain is None and used_now is not None:
                before = self._uncertain(before, at_s)
            now = self._read(before, key, limit.allowed, certain, at_s, sampled_s if key.quantity == "cores" else None)
            if now.is_incident:
                action = self._action(limit)
                if self._is_new_verdict(before, now, action):
                    now = now._replace(action=action)
                    verdicts.append(self._over(limit, now, use))
            elif before.is_incident:
                verdicts.append(Within(key))
            series[key] = now
        verdicts += [Within(key) for key, each in self._series.items() if each.is_incident and key not in series]
        return replace(self, _series=series), tuple(verdicts)

    def _read(
        self, before: _Series, key: Key, allowed: int, used: float | None, at_s: float, sampled_s: float | None
    ) -> _Series:
        """Return the series after one more reading, which counts only if it is newer and *used* is known."""
        if used is None or (before.last_s is not None and at_s <= before.last_s):
            return before
        if sampled_s is not None and sampled_s == before.sampled_s:
            return before._replace(last_s=at_s)
        kept = max(MEAN_OF, self.plan.samples) if key.quantity == "cores" else 1
        recent = (*before.recent, used)[-kept:]
        value = sum(recent) / len(recent)
        is_read = len(recent) == kept
        is_over = is_read and value > allowed + self._margin(key)
        counts = is_over or (is_read and before.excess)
        excess = self._excess(before, at_s, is_over=is_over) if counts else before.excess
        if not is_over:
            is_incident = before.is_incident and (not is_read or value > allowed)
            left = 0.0 if before.is_incident and not is_incident else excess
            return _Series(recent, None, 0, is_incident, at_s, before.action, sampled_s, left)
        over_since_s = at_s if before.over_since_s is None else before.over_since_s
        readings_over = before.readings_over + 1
        now = _Series(recent, over_since_s, readings_over, before.is_incident, at_s, before.action, sampled_s, excess)
        return now if now.is_incident else now._replace(is_incident=self._is_long(now) or self._is_often(now))

    def _uncertain(self, before: _Series, at_s: float) -> _Series:
        """Return the series after an incomplete reading."""
        if not before.excess:
            return before
        return before._replace(excess=self._excess(before, at_s, is_over=False), flowed_s=at_s)

    def _excess(self, before: _Series, at_s: float, *, is_over: bool) -> float:
        """Return what is in the bucket after one more reading."""
        since_s = before.flowed_s if before.flowed_s is not None else before.last_s
        if since_s is None:
            return before.excess
        stands_for_s = min(at_s - since_s, self.plan.period_s)
        return max(before.excess + stands_for_s * (100 * is_over - self.plan.over_time_percent), 0.0)

    def _is_often(self, series: _Series) -> bool:
        """Whether the quota has been exceeded for more than the tolerated share of the time."""
        return series.excess > 100 * self.plan.tolerated_s

    def _is_long(self, series: _Series) -> bool:
        """Whether the quota has been exceeded for longer than the grace period."""
        if series.over_since_s is None or series.last_s is None:
            return False
        over_s = series.last_s - series.over_since_s
        return over_s > self.plan.grace_s and series.readings_over >= self.plan.samples

    def _is_new_verdict(self, before: _Series, now: _Series, action: OverQuota) -> bool:
        """Whether the incident has begun, or a stronger action is due than that of its last verdict."""
        if not before.is_incident:
            return True
        is_due = now.readings_over > before.readings_over and (self._is_long(now) or self._is_often(now))
        return is_due and is_stronger(action, now.action)

    def _action(self, limit: Limit) -> OverQuota:
        return "observe" if limit.is_only_observed else self.plan.action(self.kind, limit.key.quantity)

    def _certain(self, key: Key, allowed: int, used: float | None, lost: Collection[ProcessUse]) -> float | None:
        """Return *used*; None if *lost* would decide the verdict in case it belongs to the container."""
        if used is None:
            return None
        most = used + sum(_lost(key, each) for each in lost)
        limits = allowed, allowed + self._margin(key)
        return None if any(used <= limit < most for limit in limits) else used

    def _margin(self, key: Key) -> int:
        return self.plan.margin_mib if key.quantity == "memory" else self.plan.cores_margin_percent

    def _over(self, limit: Limit, now: _Series, use: ContainerUse | None) -> Over:
        return Over(
            key=limit.key,
            kind=self.kind,
            used=sum(now.recent) / len(now.recent),
            allowed=limit.allowed,
            over_since_s=now.over_since_s or 0.0,
            action=now.action,
            largest=_largest(limit.key, use),
            repeated=not self._is_long(now),
        )


def _used(key: Key, use: ContainerUse | None) -> float | None:
    """Return how much is used; None if the reading lacks it, as with drivers that do not sample processes."""
    if use is None:
        return 0.0
    used = use.memory_mib if key.quantity == "memory" else use.cores_percent
    if used is None or not isfinite(used):
        return None
    return float(used) if key.quantity == "memory" else min(used, ALL_CORES_PERCENT)


def _lost(key: Key, use: ProcessUse) -> float:
    """Return the maximum that a process may use."""
    if key.quantity == "memory":
        return use.memory_mib
    return ALL_CORES_PERCENT if use.cores_percent is None else use.cores_percent


def _largest(key: Key, use: ContainerUse | None) -> Process | None:
    """Return the process that uses the most; of several, the one that started last."""
    if use is None or not use.processes:
        return None

    def size(each: ProcessUse) -> tuple[float, int]:
        used = float(each.memory_mib) if key.quantity == "memory" else each.cores_percent or 0.0
        return used, each.process.start_ticks

    return max(use.processes, key=size).process
