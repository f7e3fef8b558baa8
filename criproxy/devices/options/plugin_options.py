"""The section ``devices.plugin`` of a policy file: which cards criproxy's own device plugin offers to the kubelet."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import MAX_REPLICAS, Selector, SharedCards
from criproxy.devices.options import option_types
from criproxy.devices.options.plugin_mistakes import default_resource, plugin_mistakes
from criproxy.devices.options.profiles import ProfileOptions
from criproxy.devices.options.quota_options import QuotaOptions, UsageOptions, usage_mistakes, with_usage
from criproxy.devices.plugin.plan import Advertised, HealthCommand, Labels, OnUnhealthy, PluginPlan, Register
from criproxy.devices.plugin.preference import Spread
from criproxy.placement.options.policy_options import Misfit


def _selector(value: object) -> Selector:
    """Validate a selection: all cards, a number of them, or a list of indexes and ids."""
    match value:
        case "all":
            return "all"
        case bool():
            pass
        case int() if value > 0:
            return value
        case tuple() | list() if value and all(_names_a_card(each) for each in value):
            return tuple(map(str, value))
    raise ValueError(f"must be all, a number of cards, or a list of indexes and ids, not {value!r:.60}")


def _names_a_card(value: object) -> bool:
    return (type(value) is int and value >= 0) or (isinstance(value, str) and value != "")


_LIST = {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}}
_SELECTION = WithJsonSchema({"anyOf": [{"enum": ["all"]}, {"type": "integer", "minimum": 1}, _LIST]})
SelectorOption = Annotated[Any, PlainValidator(_selector), _SELECTION]
"""A `Selector`."""


class AdvertisedOptions(option_types.NamedSection):
    """A class of devices that criproxy's device plugin serves."""

    kind: option_types.ClassName = Field(alias="class")
    """The name of a device class that criproxy uses."""
    resource: option_types.ResourceName | None = None
    """The resource name under which the cards are offered. It must be one of the resources of the class, and is
    required if the class has several resources, or a resource with a wildcard. For NVIDIA's cards, NVIDIA's own file
    sets it."""
    allocation: Spread = "distributed"
    """How replicas are spread if a container requests several: over the least used cards (distributed), or on the most
    used ones (packed). For NVIDIA's cards, NVIDIA's own file sets it."""


AdvertisedOption = Annotated[
    AdvertisedOptions, option_types.or_word("class", AdvertisedOptions | option_types.ClassName)
]


class SharingOptions(option_types.Section):
    """Cards that are offered several times, without isolation from each other."""

    resource: option_types.ResourceName
    """The resource of the cards, such as aliyun.com/npu."""
    devices: SelectorOption = "all"
    """Which cards of the resource to share: all, the first N, or a list of indexes and IDs. The other cards are offered
    whole."""
    replicas: int = Field(ge=2, le=MAX_REPLICAS)
    """How many containers can share each of these cards."""
    rename: option_types.ResourceName | None = None
    """The resource name under which these replicas are offered, such as aliyun.com/npu.shared; by default, the name in
    resource."""
    fail_requests_greater_than_one: bool = False
    """Whether criproxy refuses a container that requests more than one replica. Several replicas give it no larger
    share of the card than one does."""

    def shared(self) -> SharedCards:
        """Convert to plain values."""
        return SharedCards(
            name=self.resource,
            devices=self.devices,
            replicas=self.replicas,
            rename=self.rename or "",
            only_one=self.fail_requests_greater_than_one,
        )


class HealthCommandOptions(option_types.Section):
    """A program that knows which cards of a class work."""

    kind: option_types.ClassName = Field(alias="class")
    """The name of an advertised class."""
    command: tuple[str, ...] = Field(min_length=1)
    """The absolute path of the program, and its arguments. For each unhealthy card, the program prints a line with the
    card's ID, a space, and the reason. If it fails or times out, all cards of the class count as unhealthy."""
    period: option_types.Period = "60s"
    """How often the command runs."""
    timeout: option_types.Period = "10s"
    """How long the command may run before criproxy kills it."""

    def health_command(self) -> HealthCommand:
        """Convert to plain values."""
        period_s, timeout_s = option_types.seconds(self.period), option_types.seconds(self.timeout)
        return self.plain(HealthCommand, period_s=period_s, timeout_s=timeout_s)


class HealthOptions(option_types.Section):
    """Cards that do not work."""

    hold_down: option_types.Duration = "30s"
    """How long a card must stay healthy after a failure before it is offered again."""
    on_unhealthy: OnUnhealthy = "none"
    """What happens to containers with an unhealthy card. none: nothing. annotate: their status shows the reason. stop:
    criproxy stops them, their status shows the reason, and criproxy refuses CreateContainer requests for containers
    with that card until it is healthy."""
    commands: tuple[HealthCommandOptions, ...] = ()
    """Programs that report which cards of a class are unhealthy, in addition to criproxy's own checks."""


class LabelOptions(option_types.Section):
    """Labels of the node, by node-feature-discovery."""

    file: option_types.FilePath = "/etc/kubernetes/node-feature-discovery/features.d/criproxy"
    """The feature file that criproxy writes."""
    interval: option_types.Period = "60s"
    """How often criproxy checks whether the labels have changed; it rewrites the file only then."""


class PluginOptions(option_types.Section):
    """criproxy's own device plugin; without this section it offers nothing."""

    advertise: tuple[AdvertisedOption, ...] | None = None
    """The classes whose cards are offered to the kubelet: names or mappings. By default, NVIDIA's class and all classes
    with exactly one resource, if they are listed in classes."""
    nvidia_config: option_types.HostPath = ""
    """NVIDIA's configuration file (version: v1) for the class nvidia, or a directory of such files. In a directory,
    criproxy uses the file named after the host. If there is none, it uses the one named after the node's group;
    failing that, the one named default; and failing that, the only file, if the directory contains just one."""
    sharing: tuple[SharingOptions, ...] = ()
    """Cards that are offered several times. Share NVIDIA's cards either here or in NVIDIA's own file."""
    register_by: Register = Field(default="kubelet", alias="register")
    """How the plugin registers. kubelet: it calls the kubelet's socket. plugins-registry: the kubelet finds the
    plugin's socket in its directory plugins_registry."""
    health: HealthOptions = HealthOptions()
    """Cards that do not work."""
    labels: LabelOptions | None = None
    """Node labels that describe the cards. Without this section, criproxy writes no labels."""
    profiles: tuple[ProfileOptions, ...] = ()
    """Sizes of vGPUs, with memory and compute quotas, into which cards are divided. Divided cards are not offered
    whole."""
    quota: QuotaOptions = QuotaOptions()
    """Containers that exceed the quota of their vGPU."""
    usage: tuple[UsageOptions, ...] | None = None
    """For each class, the source that reports how much of each card a process uses. If profiles divide NVIDIA's cards,
    NVML is used for them, unless an entry says otherwise; with an empty list, NVML is not used."""

    def extended(self, kind: DeviceClass) -> DeviceClass:
        """Return the class with its own resources, and those of its shared cards and vGPUs."""
        found = [each.rename for each in self.sharing if kind.serves(each.resource)]
        found += [each.profile().resource for each in self.profiles if each.kind == kind.name]
        more = dict.fromkeys(name for name in found if name and not kind.serves(name))
        return replace(kind, resources=(*kind.resources, *more)) if more else kind

    def plan(self, classes: Mapping[str, DeviceClass]) -> PluginPlan:
        """Convert to plain values.

        Args:
            classes: the device classes in use, by name.
        """
        labels = self.labels
        plan = PluginPlan(
            advertised=tuple(self._advertised(classes)),
            sharing=tuple(each.shared() for each in self.sharing),
            nvidia_config=self.nvidia_config,
            register=self.register_by,
            hold_down_s=option_types.seconds(self.health.hold_down),
            on_unhealthy=self.health.on_unhealthy,
            health_commands=tuple(each.health_command() for each in self.health.commands),
            labels=None if labels is None else Labels(labels.file, option_types.seconds(labels.interval)),
            profiles=tuple(each.profile() for each in self.profiles),
            quota=self.quota.quota_plan(),
        )
        return with_usage(plan, self.usage)

    def contradictions(self, classes: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
        """Yield the mistakes in the section; paths start there.

        Args:
            classes: the device classes in use, by name.
        """
        named = None if self.advertise is None else tuple((each.kind, each.resource or "") for each in self.advertise)
        plan = self.plan(classes)
        yield from plugin_mistakes(plan, classes, named)
        yield from self.quota.contradictions(plan)
        yield from usage_mistakes(plan)

    def _advertised(self, classes: Mapping[str, DeviceClass]) -> Iterator[Advertised]:
        if self.advertise is None:
            for kind in classes.values():
                resource = default_resource(kind)
                if kind.name == NVIDIA.name or (resource and kind.per_device):
                    yield Advertised(kind=self.extended(kind), resource=resource)
            return
        for each in self.advertise:
            known = classes.get(each.kind)
            if known:
                resource = each.resource or default_resource(known)
                yield Advertised(kind=self.extended(known), resource=resource, spread=each.allocation)
