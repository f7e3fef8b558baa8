"""Judges who is over the quota of a vGPU: a pure fold over readings.

A container is over its quota when it was beyond quota and margin in so many readings in a row, for longer than the
grace. That is one incident, until a reading has the container within its quota (without the margin, so that who stays
just above it is not one incident after the other). It is said again only if more is to be done about it than was, as
with another plan. A doubt never speaks against a container: readings that are not complete judge nobody, and after a
pause in the readings, or with another plan, everybody begins anew. Nor does it end an incident: a process that is gone
before its container is found may have been of any container on its card.

Memory is judged as it is. Computing units are sampled by the driver and come in bursts, so they are judged by the mean
of the last readings. A reading without a newer sample than the one before is none of them: it only says the same again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from criproxy.devices.plan import STRENGTHS, OverQuota, QuotaPlan
from criproxy.usage.values import ContainerUse, Grant, Process, ProcessUse, Quantity

MEAN_OF = 5
"""Readings over which the use of computing units is averaged, at least."""
PAUSE_PERIODS = 3.0
"""After so many periods without a complete reading a container begins anew."""
ALL_CORES_PERCENT = 100.0
"""What one container can use of the computing units of a card: more is a mistake of its driver."""
_QUANTITIES: tuple[Quantity, ...] = ("memory", "cores")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One quota of one container."""

    container_id: str
    card: str
    quantity: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A container is over its quota: said once for each incident, and again for a stronger action."""

    key: Key
    kind: str
    """The name of the class."""
    used: float
    """In MiB, or in percent of the card's computing units."""
    allowed: int
    """Without the margin."""
    over_since_s: float
    """On the monotonic clock: the first reading in which it was over the quota."""
    action: OverQuota
    largest: Process | None = None
    """Its process that uses most."""


@dataclass(frozen=True, slots=True)
class Within:
    """A container that was over its quota is within it again, or it is gone."""

    key: Key


@dataclass(frozen=True, slots=True)
class _Series:
    """Readings of one quota in a row."""

    recent: tuple[float, ...] = ()
    over_since_s: float | None = None
    readings_over: int = 0
    is_incident: bool = False
    last_s: float | None = None
    action: OverQuota = "observe"
    """What was said to do about the incident."""
    sampled_s: float | None = None
    """Of when the last sample was, if that is known."""

    def anew(self) -> "_Series":
        """The same without what was read: only an incident stays one."""
        return _Series(is_incident=self.is_incident, action=self.action, sampled_s=self.sampled_s)


Verdict = Over | Within


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is remembered of the cards of one class from one reading to the next."""

    kind: str
    """The name of the class."""
    plan: QuotaPlan
    _series: Mapping[Key, _Series] = field(default_factory=dict)

    def with_plan(self, plan: QuotaPlan) -> "Judgement":
        """The same by another *plan*: everybody begins anew, and what is an incident stays one."""
        if plan == self.plan:
            return self
        return replace(self, plan=plan, _series={key: each.anew() for key, each in self._series.items()})

    def over_since(self) -> dict[Key, float]:
        """Who is over a quota, also within the grace, and since when on the monotonic clock."""
        return {key: each.over_since_s for key, each in self._series.items() if each.over_since_s is not None}

    def incidents(self) -> list[Key]:
        """The quotas of which it was said that a container is over them, and not yet that it is within them."""
        return [key for key, each in self._series.items() if each.is_incident]

    def resumed(self, key: Key, action: OverQuota = STRENGTHS[-1]) -> "Judgement":
        """The same with an incident that the daemon knows from before a restart, and about which it did *action*."""
        return replace(self, _series={**self._series, key: _Series(is_incident=True, action=action)})

    def after(
        self,
        at_s: float,
        grants: Iterable[Grant],
        uses: Iterable[ContainerUse],
        lost: Collection[ProcessUse] = (),
        sampled_s: float | None = None,
    ) -> tuple["Judgement", tuple[Verdict, ...]]:
        """Judge a complete reading.

        Args:
            at_s: when it was taken, on the monotonic clock.
            grants: what containers have that are there now.
            uses: what they use of cards of this class; who is not in it uses nothing.
            lost: what processes use of the containers' card that were gone before their containers were found.
            sampled_s: when the newest sample of the card's computing units was taken, by any clock; None: it is new.

        Returns:
            What to remember, and what has changed.
        """
        used = {(each.container_id, each.card): each for each in uses}
        series: dict[Key, _Series] = {}
        verdicts: list[Verdict] = []
        for key, (allowed, grant) in _quotas(grants, self.kind).items():
            before = self._continued(self._series.get(key, _Series()), at_s)
            use = used.get((key.container_id, key.card))
            used_now = self._certain(key, allowed, _used(key, use), lost)
            sample_s = sampled_s if key.quantity == "cores" else None
            now, action = self._read(before, key, allowed, used_now, at_s, sample_s), self._action(key, grant)
            if self._is_news(before, now, action):
                now = replace(now, action=action)
                verdicts.append(self._over(key, allowed, now, use))
            elif before.is_incident and not now.is_incident:
                verdicts.append(Within(key))
            series[key] = now
        verdicts += [Within(key) for key, each in self._series.items() if each.is_incident and key not in series]
        return replace(self, _series=series), tuple(verdicts)

    def _continued(self, before: _Series, at_s: float) -> _Series:
        pause_s = PAUSE_PERIODS * self.plan.period_s
        return before if before.last_s is None or at_s - before.last_s <= pause_s else before.anew()

    def _read(
        self, before: _Series, key: Key, allowed: int, used: float | None, at_s: float, sampled_s: float | None
    ) -> _Series:
        """What is remembered after one more reading, if it is one: it must be newer, and say how much is *used*."""
        if used is None or (before.last_s is not None and at_s <= before.last_s):
            return before
        if sampled_s is not None and sampled_s == before.sampled_s:
            return replace(before, last_s=at_s)
        now = self._with(before, key, allowed, used, at_s)
        return replace(now, sampled_s=sampled_s)

    def _with(self, before: _Series, key: Key, allowed: int, used: float, at_s: float) -> _Series:
        kept = max(MEAN_OF, self.plan.samples) if key.quantity == "cores" else 1
        recent = (*before.recent, used)[-kept:]
        value = sum(recent) / len(recent)
        is_read = len(recent) == kept
        if not is_read or value <= allowed + self._margin(key):
            is_incident = before.is_incident and (not is_read or value > allowed)
            return _Series(recent=recent, is_incident=is_incident, last_s=at_s, action=before.action)
        over_since_s = at_s if before.over_since_s is None else before.over_since_s
        now = _Series(recent, over_since_s, before.readings_over + 1, before.is_incident, at_s, before.action)
        return replace(now, is_incident=now.is_incident or self._is_long(now))

    def _is_long(self, series: _Series) -> bool:
        """Whether it is over its quota for longer than the grace."""
        if series.over_since_s is None or series.last_s is None:
            return False
        over_s = series.last_s - series.over_since_s
        return over_s > self.plan.grace_s and series.readings_over >= self.plan.samples

    def _is_news(self, before: _Series, now: _Series, action: OverQuota) -> bool:
        """Whether an incident has begun, or more is to be done about it than was said."""
        is_stronger = STRENGTHS.index(action) > STRENGTHS.index(now.action)
        is_more = is_stronger and now.readings_over > before.readings_over and self._is_long(now)
        return now.is_incident and (is_more or not before.is_incident)

    def _action(self, key: Key, grant: Grant) -> OverQuota:
        return "observe" if grant.is_only_observed else self.plan.action(self.kind, key.quantity)

    def _certain(self, key: Key, allowed: int, used: float | None, lost: Collection[ProcessUse]) -> float | None:
        """How much is *used*; None where what is *lost*, if it is the container's, makes the difference."""
        if used is None or not lost:
            return used
        most = used + sum(_lost(key, each) for each in lost)
        limits = allowed, allowed + self._margin(key)
        return None if any(used <= limit < most for limit in limits) else used

    def _margin(self, key: Key) -> int:
        return self.plan.margin_mib if key.quantity == "memory" else self.plan.cores_margin_percent

    def _over(self, key: Key, allowed: int, now: _Series, use: ContainerUse | None) -> Over:
        return Over(
            key=key,
            kind=self.kind,
            used=sum(now.recent) / len(now.recent),
            allowed=allowed,
            over_since_s=now.over_since_s or 0.0,
            action=now.action,
            largest=_largest(key, use),
        )


def _quotas(grants: Iterable[Grant], kind: str) -> dict[Key, tuple[int, Grant]]:
    """Each quota of cards of a class, and how much it allows; the larger one where a container has two of a card."""
    found: dict[Key, tuple[int, Grant]] = {}
    for grant in grants:
        if grant.kind != kind or grant.quota is None:
            continue
        limits = {"memory": grant.quota.memory_mib, "cores": grant.quota.cores_percent}
        for key in (Key(grant.container_id, card, quantity) for card in grant.cards for quantity in _QUANTITIES):
            allowed = limits[key.quantity]
            if allowed and (key not in found or found[key][0] < allowed):
                found[key] = allowed, grant
    return found


def _used(key: Key, use: ContainerUse | None) -> float | None:
    """How much is used; None where a reading does not say it, as that of a driver without samples of processes."""
    if use is None:
        return 0.0
    used = use.memory_mib if key.quantity == "memory" else use.cores_percent
    if used is None or not isfinite(used):
        return None
    return float(used) if key.quantity == "memory" else min(used, ALL_CORES_PERCENT)


def _lost(key: Key, use: ProcessUse) -> float:
    """How much a process uses at most."""
    if key.quantity == "memory":
        return use.memory_mib
    return ALL_CORES_PERCENT if use.cores_percent is None else use.cores_percent


def _largest(key: Key, use: ContainerUse | None) -> Process | None:
    """The process that uses most of the quantity; of equal ones the one that started last."""
    if use is None or not use.processes:
        return None

    def size(each: ProcessUse) -> tuple[float, int]:
        used = float(each.memory_mib) if key.quantity == "memory" else each.cores_percent or 0.0
        return used, each.process.start_ticks

    return max(use.processes, key=size).process
