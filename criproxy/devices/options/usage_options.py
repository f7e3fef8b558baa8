"""The list ``devices.plugin.usage`` of a policy file: the sources of readings about the use of cards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.options.option_types import ClassName, HostPath
from criproxy.devices.plugin.plan import PluginPlan, UsageSource
from criproxy.placement.options.policy_options import Misfit

NVML = UsageSource(kind=NVIDIA.name, source="nvml")
"""The source for NVIDIA's cards if the file names no other."""
_NEEDS: Mapping[str, str] = {"command": "command", "file": "file"}


class UsageOptions(BaseModel):
    """What reports the use of the cards of one class."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    kind: ClassName = Field(alias="class")
    """The name of an advertised class."""
    source: Literal["nvml", "command", "file"] = Field(alias="from")
    """Where the readings come from: NVIDIA's driver (nvml), a program that keeps running and prints them (command), or
    a file that another program rewrites in every period (file)."""
    command: tuple[str, ...] = ()
    """The absolute path of the program, and its arguments. It prints one line of JSON for each reading."""
    file: HostPath = ""
    """The absolute path of the file, which contains one reading as JSON."""

    def usage_source(self) -> UsageSource:
        """Convert to plain values."""
        return UsageSource(kind=self.kind, source=self.source, command=self.command, file=self.file)


def with_usage(plan: PluginPlan, named: Sequence[UsageOptions] | None) -> PluginPlan:
    """Return the *plan* with the sources of usage data.

    Args:
        plan: the rest of the section.
        named: the list; None if the file has none. If profiles divide NVIDIA's cards, NVML watches them unless the list
            has an entry for them, or is empty.
    """
    usage = tuple(each.usage_source() for each in named or ())
    is_cut = plan.nvidia is not None and any(each.kind == NVIDIA.name for each in plan.profiles)
    is_default = is_cut and named != () and all(each.kind != NVIDIA.name for each in usage)
    return replace(plan, usage=(*usage, NVML) if is_default else usage)


def usage_mistakes(plan: PluginPlan) -> Iterator[Misfit]:
    """Yield the mistakes in the list; paths start at the section of the device plugin."""
    offered, seen = [each.kind.name for each in plan.advertised], set[str]()
    for number, source in enumerate(plan.usage):
        path = ("usage", number)
        if source.kind in seen:
            yield Misfit((*path, "class"), f"the class {source.kind!r} is listed twice: one entry is enough")
        elif source.kind not in offered:
            near = get_close_matches(source.kind, offered, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield Misfit((*path, "class"), f"the class {source.kind!r} is not in advertise{hint}")
        seen.add(source.kind)
        yield from _of_source(path, source)


def _of_source(path: tuple[str | int, ...], source: UsageSource) -> Iterator[Misfit]:
    if source.source == "nvml" and source.kind != NVIDIA.name:
        yield Misfit((*path, "from"), f"nvml knows only NVIDIA's cards, not those of {source.kind!r}")
    needed = _NEEDS.get(source.source, "")
    for name, value in (("command", source.command), ("file", source.file)):
        if name == needed and not value:
            yield Misfit(path, f"from: {source.source} needs {name}")
        elif name != needed and value:
            yield Misfit((*path, name), f"has no effect with from: {source.source}; leave it out")
    if source.command and not source.command[0].startswith("/"):
        text = f"must begin with the absolute path of a program, not {source.command[0]!r:.60}"
        yield Misfit((*path, "command"), text)


def to_watch(plan: PluginPlan) -> list[str]:
    """The classes whose profiles are to be watched."""
    return list(dict.fromkeys(each.kind for each in plan.profiles if "watch" in each.enforce))


def unwatched(plan: PluginPlan) -> list[str]:
    """Return the classes with watched profiles that have no source of usage data."""
    watched = {each.kind for each in plan.usage}
    return [kind for kind in to_watch(plan) if kind not in watched]
