"""The section ``devices.plugin.quota`` of a policy file: when a container is over its quota, and what happens then."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from criproxy.devices.options.option_types import ClassName, Duration, Period, seconds
from criproxy.devices.plugin.plan import OverQuota, PluginPlan, QuotaActions, QuotaPlan
from criproxy.placement.options.policy_options import Misfit

MIN_PERIOD_S, MAX_PERIOD_S = 0.1, 60.0
"""With shorter periods, readings would be too expensive; with longer ones, quotas would not be enforced."""
MAX_GRACE_S = 3600.0
"""The maximum of the grace period, and of the time that a stopped container has to exit."""
MAX_SAMPLES = 1000
MAX_MARGIN_MIB = 1 << 20

Samples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
MarginMib = Annotated[int, Field(ge=0, le=MAX_MARGIN_MIB)]
Percent = Annotated[int, Field(ge=0, le=100)]


class QuotaActionOptions(BaseModel):
    """What happens to a container that is over a quota."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    memory: OverQuota = "stop"
    """What happens to a container that exceeds its memory quota. observe: criproxy only records it. annotate: its
    status also gets an annotation. stop: criproxy stops the container. kill-process: criproxy kills
    whichever of the container's processes uses the most memory."""
    cores: OverQuota = "observe"
    """The same for a container that exceeds its compute quota."""


class ClassActionOptions(BaseModel):
    """What happens to a container of one class that is over a quota."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    memory: OverQuota | None = None
    """What happens to a container that exceeds its memory quota; by default as in quota.actions."""
    cores: OverQuota | None = None
    """The same for a container that exceeds its compute quota."""


class ClassQuotaOptions(BaseModel):
    """Other actions for the cards of one class."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    kind: ClassName = Field(alias="class")
    """The name of a class with profiles."""
    actions: ClassActionOptions = ClassActionOptions()
    """What happens to containers with its cards."""


class QuotaOptions(BaseModel):
    """Containers that exceed the quota of their vGPU."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    period: Period = "1s"
    """How often criproxy measures how much each container uses: between 100ms and 60s."""
    grace: Duration = "5s"
    """How long a container may exceed its quota before criproxy acts."""
    samples: Samples = 3
    """How many consecutive readings must show the container over its quota before criproxy acts."""
    over_time_percent: Percent = 20
    """For how much of the time a container may exceed its quota again and again, each time for less than `grace`. With
    100, there is no limit."""
    margin_mib: MarginMib = 512
    """How many MiB of memory a container may use beyond its quota. The driver's own memory also counts as use."""
    cores_margin_percent: Percent = 10
    """How much compute a container may use beyond its quota, in percent of the card."""
    stop_timeout: Duration = "10s"
    """How long a container has to exit after criproxy stops it, before the runtime kills it."""
    actions: QuotaActionOptions = QuotaActionOptions()
    """What happens to a container that exceeds its quota."""
    classes: tuple[ClassQuotaOptions, ...] = ()
    """Different actions for some classes."""

    def quota_plan(self) -> QuotaPlan:
        """Convert to plain values."""
        return QuotaPlan(
            period_s=seconds(self.period),
            grace_s=seconds(self.grace),
            samples=self.samples,
            over_time_percent=self.over_time_percent,
            margin_mib=self.margin_mib,
            cores_margin_percent=self.cores_margin_percent,
            stop_timeout_s=seconds(self.stop_timeout),
            actions=QuotaActions(memory=self.actions.memory, cores=self.actions.cores),
            by_class={each.kind: self._of_class(each.actions) for each in self.classes},
        )

    def _of_class(self, actions: ClassActionOptions) -> QuotaActions:
        """Return the actions of a class, with those of all classes as defaults."""
        return QuotaActions(memory=actions.memory or self.actions.memory, cores=actions.cores or self.actions.cores)

    def contradictions(self, plan: PluginPlan) -> Iterator[Misfit]:
        """Yield the mistakes in the section; paths start at the section of the device plugin.

        Args:
            plan: the contents of that section.
        """
        yield from _of_times(plan.quota)
        cut, offered, seen = {each.kind for each in plan.profiles}, [a.kind.name for a in plan.advertised], set[str]()
        for number, each in enumerate(self.classes):
            path = ("quota", "classes", number, "class")
            if each.kind in seen:
                yield Misfit(path, f"the class {each.kind!r} is listed twice: put all its actions into one item")
            elif each.kind not in offered:
                near = get_close_matches(each.kind, offered, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                yield Misfit(path, f"the class {each.kind!r} is not in advertise{hint}")
            elif each.kind not in cut:
                yield Misfit(
                    path, f"has no effect: no profile is of the class {each.kind!r}, so no container has a quota"
                )
            seen.add(each.kind)


_LIMITS: Mapping[str, tuple[float, float, str]] = {
    "period": (MIN_PERIOD_S, MAX_PERIOD_S, "must be between 100ms and 60s"),
    "grace": (0.0, MAX_GRACE_S, "must be at most 1h"),
    "stopTimeout": (0.0, MAX_GRACE_S, "must be at most 1h"),
}


def _of_times(quota: QuotaPlan) -> Iterator[Misfit]:
    times = {"period": quota.period_s, "grace": quota.grace_s, "stopTimeout": quota.stop_timeout_s}
    for name, value_s in times.items():
        least_s, most_s, text = _LIMITS[name]
        if not least_s <= value_s <= most_s:
            yield Misfit(("quota", name), f"{text}, not {value_s:g}s")
