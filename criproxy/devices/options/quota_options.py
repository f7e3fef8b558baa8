"""The sections ``quota`` and ``usage`` of ``devices.plugin``: when a container is over a quota, and what shows that."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.options import option_types
from criproxy.devices.plugin.plan import OverQuota, PluginPlan, QuotaActions, QuotaPlan, UsageSource
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
NVML = UsageSource(kind=NVIDIA.name, source="nvml")
"""The source for NVIDIA's cards if the file names no other."""


class QuotaActionOptions(option_types.Section):
    """What happens to a container that is over a quota."""

    memory: OverQuota = "stop"
    """What happens to a container that exceeds its memory quota. observe: criproxy only records it. annotate: its
    status also gets an annotation. stop: criproxy stops the container. kill-process: criproxy kills
    whichever of the container's processes uses the most memory."""
    cores: OverQuota = "observe"
    """The same for a container that exceeds its compute quota."""


class ClassActionOptions(option_types.Section):
    """What happens to a container of one class that is over a quota."""

    memory: OverQuota | None = None
    """What happens to a container that exceeds its memory quota; by default as in quota.actions."""
    cores: OverQuota | None = None
    """The same for a container that exceeds its compute quota."""


class ClassQuotaOptions(option_types.Section):
    """Other actions for the cards of one class."""

    kind: option_types.ClassName = Field(alias="class")
    """The name of a class with profiles."""
    actions: ClassActionOptions = ClassActionOptions()
    """What happens to containers with its cards."""


class QuotaOptions(option_types.Section):
    """Containers that exceed the quota of their vGPU."""

    period: option_types.Period = "1s"
    """How often criproxy measures how much each container uses: between 100ms and 60s."""
    grace: option_types.Duration = "5s"
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
    stop_timeout: option_types.Duration = "10s"
    """How long a container has to exit after criproxy stops it, before the runtime kills it."""
    actions: QuotaActionOptions = QuotaActionOptions()
    """What happens to a container that exceeds its quota."""
    classes: tuple[ClassQuotaOptions, ...] = ()
    """Different actions for some classes."""

    def quota_plan(self) -> QuotaPlan:
        """Convert to plain values."""
        actions = self.actions.plain(QuotaActions)
        return self.plain(
            QuotaPlan,
            period_s=option_types.seconds(self.period),
            grace_s=option_types.seconds(self.grace),
            stop_timeout_s=option_types.seconds(self.stop_timeout),
            actions=actions,
            by_class={
                each.kind: replace(actions, **each.actions.model_dump(exclude_none=True)) for each in self.classes
            },
        )

    def contradictions(self, plan: PluginPlan) -> Iterator[Misfit]:
        """Yield the mistakes in the section; paths start at the section of the device plugin.

        Args:
            plan: the contents of that section.
        """
        if not MIN_PERIOD_S <= plan.quota.period_s <= MAX_PERIOD_S:
            yield Misfit(("quota", "period"), f"must be between 100ms and 60s, not {plan.quota.period_s:g}s")
        for name, value_s in (("grace", plan.quota.grace_s), ("stopTimeout", plan.quota.stop_timeout_s)):
            if value_s > MAX_GRACE_S:
                yield Misfit(("quota", name), f"must be at most 1h, not {value_s:g}s")
        cut, offered, seen = {each.kind for each in plan.profiles}, [a.kind.name for a in plan.advertised], set[str]()
        for number, each in enumerate(self.classes):
            path, twice = ("quota", "classes", number, "class"), "is listed twice: put all its actions into one item"
            wrong = [*option_types.class_mistakes(path, each.kind, seen, offered, twice)]
            yield from wrong
            if not wrong and each.kind not in cut:
                text = f"has no effect: no profile is of the class {each.kind!r}, so no container has a quota"
                yield Misfit(path, text)


class UsageOptions(option_types.Section):
    """What reports the use of the cards of one class."""

    kind: option_types.ClassName = Field(alias="class")
    """The name of an advertised class."""
    source: Literal["nvml", "command", "file"] = Field(alias="from")
    """Where the readings come from: NVIDIA's driver (nvml), a program that keeps running and prints them (command), or
    a file that another program rewrites in every period (file)."""
    command: tuple[str, ...] = ()
    """The absolute path of the program, and its arguments. It prints one line of JSON for each reading."""
    file: option_types.HostPath = ""
    """The absolute path of the file, which contains one reading as JSON."""


def with_usage(plan: PluginPlan, named: Sequence[UsageOptions] | None) -> PluginPlan:
    """Return the *plan* with the sources of usage data.

    Args:
        plan: the rest of the section.
        named: the list; None if the file has none. If profiles divide NVIDIA's cards, NVML watches them unless the list
            has an entry for them, or is empty.
    """
    usage = tuple(each.plain(UsageSource) for each in named or ())
    is_cut = plan.nvidia is not None and any(each.kind == NVIDIA.name for each in plan.profiles)
    is_default = is_cut and named != () and all(each.kind != NVIDIA.name for each in usage)
    return replace(plan, usage=(*usage, NVML) if is_default else usage)


def usage_mistakes(plan: PluginPlan) -> Iterator[Misfit]:
    """Yield the mistakes in the list; paths start at the section of the device plugin."""
    offered, seen = [each.kind.name for each in plan.advertised], set[str]()
    for number, source in enumerate(plan.usage):
        path, twice = ("usage", number), "is listed twice: one entry is enough"
        yield from option_types.class_mistakes((*path, "class"), source.kind, seen, offered, twice)
        yield from _of_source(path, source)


def _of_source(path: tuple[str | int, ...], source: UsageSource) -> Iterator[Misfit]:
    if source.source == "nvml" and source.kind != NVIDIA.name:
        yield Misfit((*path, "from"), f"nvml knows only NVIDIA's cards, not those of {source.kind!r}")
    for name, value in (("command", source.command), ("file", source.file)):
        if name == source.source and not value:
            yield Misfit(path, f"from: {source.source} needs {name}")
        elif name != source.source and value:
            yield Misfit((*path, name), f"has no effect with from: {source.source}; leave it out")
    if source.command and not source.command[0].startswith("/"):
        text = f"must begin with the absolute path of a program, not {source.command[0]!r:.60}"
        yield Misfit((*path, "command"), text)
