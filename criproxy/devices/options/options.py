"""The section ``devices`` of a policy file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.alias_generators import to_camel

from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.classes.device_class import DeviceClass, IdFormat
from criproxy.devices.device_rules import (
    DeviceRules,
    HideUnallocated,
    KubeletFiles,
    OnNoEvidence,
    Privileged,
    UserOverride,
)
from criproxy.devices.options.option_types import (
    CardNodePath,
    CdiKind,
    ClassName,
    EnvName,
    EnvPattern,
    HideValue,
    HostPath,
    MountPrefix,
    NodePath,
    ResourcePattern,
    Wait,
)
from criproxy.devices.options.plugin_options import PluginOptions
from criproxy.devices.options.usage_options import to_watch, unwatched
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.placement.options.policy_options import Misfit, NamespacePattern

NEEDED = (
    *("PATH", "HOME", "USER", "SHELL", "PWD", "HOSTNAME", "LANG", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "GOMAXPROCS", "OMP_NUM_THREADS"),
)
"""Variables that do not belong to a vendor."""
NOT_SHARED = ("/dev/mem", "/dev/kmsg", "/dev/port", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/dm-0")
"""Device nodes that give a container access to the host, or to its disks."""
RESERVED = frozenset({"container"})
"""Names that findings use for something other than classes."""
Mistake = tuple[tuple[str | int, ...], str]
"""A path that starts at the class, and what is wrong there."""
BuiltinName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(BUILTIN)})]


class NodeOptions(BaseModel):
    """The device nodes of a class."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    per_device: tuple[CardNodePath, ...] = ()
    """Paths of a card's device nodes, such as /dev/npu{index}; {index} is the number of the card."""
    shared: tuple[NodePath, ...] = ()
    """Paths of the device nodes that every container with a card needs; * and ? are wildcards that do not match '/'."""
    permissions: Literal["r", "rw", "rwm"] = "rw"
    """The access of containers to these device nodes: read (r), write (w), mknod (m)."""


class ClassOptions(BaseModel):
    """A class of devices: one of your own, or changes to a built-in one."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: ClassName
    """The name of a built-in class (nvidia, ascend, amd, intel-gpu, intel-npu, habana, cambricon), whose values are the
    defaults for the other options, or a name of your own for a new class, which also needs the option resources."""
    resources: tuple[ResourcePattern, ...] = ()
    """The extended resources that the device plugins of this class offer; * and ? are wildcards."""
    visible_env: EnvName = ""
    """The environment variable that tells the vendor's hook which cards to show. Leave it empty if there is no
    such hook."""
    hide_value: HideValue = ""
    """The value of visibleEnv that makes the hook expose no cards. If it is empty, criproxy does not write
    visibleEnv to hide cards."""
    write_env: bool = True
    """Whether criproxy writes the allocated cards to visibleEnv. Set it to false if the device plugin passes only
    device nodes: criproxy then writes hideValue for containers with a card, too, so that the hook adds no others."""
    strip_env: tuple[EnvPattern, ...] = ()
    """Additional environment variables that criproxy removes; a * at the end is a wildcard."""
    strip_mount_prefix: tuple[MountPrefix, ...] = ()
    """A pod can use a mount to ask the hook for a card. These are the prefixes of the container paths of such mounts;
    the rest of the path names the card."""
    runtimes: tuple[str, ...] = ("*",)
    """The runtime handlers (of RuntimeClass) whose hook understands hideValue; * means all, "" means the node's
    default."""
    id_format: IdFormat = "as-is"
    """How visibleEnv names cards: by the kubelet's IDs (uuid, as-is), by the number at the end of these IDs (index), by
    the number of the card's device node (minor), or by values that only the device plugin knows and sets itself
    (plugin)."""
    replica_separator: str = "::"
    """The separator between the ID of a card and the number of a replica."""
    nodes: NodeOptions = NodeOptions()
    """The device nodes of the class."""
    cdi_kinds: tuple[CdiKind, ...] = ()
    """The kinds of CDI devices that represent cards of this class."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any] | str:
        """Serialize only what the file sets: the defaults here are not always the effective values."""
        if self.model_fields_set == {"name"}:
            return self.name
        given = {type(self).model_fields[name].alias or name for name in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name in given}

    def device_class(self) -> DeviceClass:
        """Return the class, with the built-in values as defaults."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"nodes"}}
        if "nodes" in self.model_fields_set:
            given |= {name: getattr(self.nodes, name) for name in self.nodes.model_fields_set}
        known = BUILTIN.get(self.name)
        return replace(known, **given) if known else DeviceClass(**given)


def _named(value: object) -> object:
    """Accept a plain name in place of a mapping."""
    return {"name": value} if isinstance(value, str) else value


ClassOption = Annotated[ClassOptions, BeforeValidator(_named, json_schema_input_type=ClassOptions | BuiltinName)]


class ExemptOptions(BaseModel):
    """Containers that keep every device that they ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    namespaces: tuple[NamespacePattern, ...] = ("kube-system", "gpu-operator")
    """Namespaces whose containers keep every device that they ask for, for example because they are device plugins or
    exporters; * and ? are wildcards."""
    images: tuple[str, ...] = ()
    """Images, written as in pods, whose containers keep every device that they ask for; * and ? are wildcards."""


class PodresourcesOptions(BaseModel):
    """The kubelet's socket that reports allocated devices."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    socket: HostPath = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """The socket of the kubelet's podresources API. If it is "", criproxy does not use this API."""
    timeout: Wait = "1s"
    """How long a CreateContainer request may wait for evidence from the kubelet (podresources and checkpoint together):
    at most 1s."""

    def timeout_s(self) -> float:
        """The timeout in seconds."""
        text = self.timeout
        return int(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


class DeviceOptions(BaseModel):
    """Which containers see which accelerators; without this section criproxy leaves devices alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    hide_unallocated: HideUnallocated = "enforce"
    """Whether criproxy hides all cards from containers to which none is allocated, no matter what their image requests.
    enforce: hide them. report: only report them. off: do neither."""
    user_override: UserOverride = "strip"
    """What criproxy does if a pod uses environment variables or mounts to ask for cards that are not allocated to it.
    keep: keep them, and record them in the container's history. report: also log a warning. strip: remove them."""
    privileged: Privileged = "report"
    """What criproxy does with privileged containers, which see every device node of the host in any case. allow: leave
    them alone. report: treat them like all others, and report them. deny: refuse them."""
    exempt: ExemptOptions = ExemptOptions()
    """Containers that keep every device that they ask for."""
    keep_access_on_update: bool = True
    """Whether criproxy adds the device nodes of allocated cards to a container's CreateContainer request, so that later
    updates of its CPUs do not take the nodes away."""
    update_without_nodes: bool = False
    """Whether criproxy moves containers with a card to other CPUs even if their CreateContainer requests do not list
    the card's device nodes. By default, these containers stay where they are, because older versions of runc would take
    the card away during the update."""
    on_no_evidence: OnNoEvidence = "keep"
    """What criproxy does if a container asks for cards, and neither the kubelet nor its checkpoint shows whether they
    are allocated to it. keep: keep the cards. hide: treat the cards as not allocated (see userOverride). fail: refuse
    the container until the allocation is known."""
    podresources: PodresourcesOptions = PodresourcesOptions()
    """How criproxy asks the kubelet for allocated devices."""
    checkpoint: HostPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    """The checkpoint file of the kubelet's device manager. criproxy uses it if podresources gives no answer, and to
    distinguish pods with the same name. If it is "", criproxy does not read the file."""
    classes: tuple[ClassOption, ...] = Field(default=tuple(ClassOptions(name=name) for name in BUILTIN))
    """The device classes that criproxy uses: names of built-in classes, mappings that change a built-in class, and
    mappings that define a class of your own. By default, all built-in classes."""

    plugin: PluginOptions | None = None
    """Which cards criproxy's own device plugin (`criproxy device-plugin`) offers to the kubelet. Without this section,
    it offers none."""

    def rules(self) -> DeviceRules:
        """Convert to plain values; classes include the resources that our own plugin derives from theirs."""
        kinds = (each.device_class() for each in self.classes)
        plan = self.plan()
        return DeviceRules(
            classes=tuple(self.plugin.extended(kind) if self.plugin else kind for kind in kinds),
            hide_unallocated=self.hide_unallocated,
            user_override=self.user_override,
            privileged=self.privileged,
            on_no_evidence=self.on_no_evidence,
            keep_access_on_update=self.keep_access_on_update,
            update_without_nodes=self.update_without_nodes,
            exempt_namespaces=self.exempt.namespaces,
            exempt_images=self.exempt.images,
            kubelet=KubeletFiles(
                socket=self.podresources.socket,
                checkpoint=self.checkpoint,
                timeout_s=self.podresources.timeout_s(),
            ),
            offered=tuple(dict.fromkeys(each.kind.name for each in plan.advertised)) if plan else (),
            watched=tuple(to_watch(plan)) if plan else (),
            without_usage=tuple(unwatched(plan)) if plan else (),
        )

    def plan(self) -> PluginPlan | None:
        """Return the configuration of criproxy's own device plugin; None without its section."""
        return None if self.plugin is None else self.plugin.plan(self._classes())

    def contradictions(self) -> Iterator[Misfit]:
        """Yield the mistakes in the section; paths start there."""
        found = [*self._of_classes()]
        yield from found
        if self.plugin and not found:
            for path, text in self.plugin.contradictions(self._classes()):
                yield Misfit(("plugin", *path), text)

    def _classes(self) -> dict[str, DeviceClass]:
        """Return the device classes, by name."""
        return {each.name: each.device_class() for each in self.classes}

    def _of_classes(self) -> Iterator[Misfit]:
        names: dict[str, str] = {}
        known: dict[str, DeviceClass] = {}
        variables: dict[str, str] = {}
        for number, options in enumerate(self.classes):
            path = ("classes", number)
            if options.name in names:
                yield Misfit((*path, "name"), f"the class {options.name!r} is listed twice")
            names[options.name] = options.name
            if options.name not in BUILTIN and not options.resources:
                yield Misfit((*path, "name"), _unknown(options.name))
                continue
            kind = options.device_class()
            found = [*_class_contradictions(path, options)]
            yield from found or (Misfit((*path, *place), text) for place, text in mistakes(kind, known))
            known.setdefault(options.name, kind)
            variable = kind.visible_env
            if variable and (other := variables.setdefault(variable, options.name)) != options.name:
                yield Misfit((*path, "visibleEnv"), f"{variable} already belongs to the class {other!r}")


def _class_contradictions(path: tuple[str | int, ...], options: ClassOptions) -> Iterator[Misfit]:
    kind = options.device_class()
    if kind.hide_value and not kind.visible_env:
        yield Misfit((*path, "hideValue"), "has no effect without visibleEnv, the variable that gets it")
    if kind.id_format == "minor" and not kind.per_device:
        yield Misfit((*path, "idFormat"), "minor needs nodes.perDevice, the source of a card's number")


def _unknown(name: str) -> str:
    near = get_close_matches(name, BUILTIN, n=1)
    mean = f" (did you mean {near[0]!r}?)" if near else ""
    own = "a class of your own needs resources"
    return f"there is no class {name!r}{mean}; built-in classes are: {', '.join(BUILTIN)}; {own}"


def mistakes(kind: DeviceClass, others: Mapping[str, DeviceClass]) -> Iterator[Mistake]:
    """Yield the mistakes in *kind*.

    Args:
        kind: the class, including its built-in values.
        others: the previous classes, by name.
    """
    if kind.name in RESERVED:
        yield ("name",), f"{kind.name!r} is reserved in criproxy's device records: choose another name"
    elif not _does_something(kind):
        needs = "visibleEnv, nodes.perDevice, cdiKinds, stripEnv or stripMountPrefix"
        yield ("name",), f"the class {kind.name!r} does nothing: it needs {needs}"
    yield from _of_variables(kind)
    for number, pattern in enumerate(kind.shared):
        if node := next((node for node in NOT_SHARED if fnmatchcase(node, pattern)), ""):
            yield (
                ("nodes", "shared", number),
                f"would give {node} to every container with a card: list only the vendor's device nodes",
            )
    rest = [other for other in others.values() if other.name != kind.name]
    for number, resource in enumerate(kind.resources):
        if other := next((each.name for each in rest if _overlap(resource, each.resources)), ""):
            yield ("resources", number), f"{resource} already belongs to the class {other!r}"


def _does_something(kind: DeviceClass) -> bool:
    return bool(kind.visible_env or kind.per_device or kind.cdi_kinds or kind.strip_env or kind.strip_mount_prefix)


def _of_variables(kind: DeviceClass) -> Iterator[Mistake]:
    text = "is a variable that programs need, and criproxy would remove it from every container"
    if kind.visible_env in NEEDED:
        yield ("visibleEnv",), f"{kind.visible_env} {text}"
    for number, pattern in enumerate(kind.strip_env):
        beginning = pattern.removesuffix("*")
        fits = (
            name for name in sorted(NEEDED) if name == pattern or (pattern.endswith("*") and name.startswith(beginning))
        )
        if name := next(fits, ""):
            yield ("stripEnv", number), f"{name} {text}"


def _overlap(resource: str, patterns: Sequence[str]) -> bool:
    """Whether one resource may match both."""
    return any(_means(resource, pattern) or _means(pattern, resource) for pattern in patterns)


def _means(one: str, pattern: str) -> bool:
    """Whether *pattern* matches a string that *one*, itself a pattern, matches, with any or no text for its ``*``."""
    return any(fnmatchcase(one.replace("*", some).replace("?", "x"), pattern) for some in ("", "x"))
