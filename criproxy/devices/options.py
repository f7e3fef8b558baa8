"""The section ``devices`` of a policy file."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
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

from criproxy.devices.builtin import BUILTIN
from criproxy.devices.classes import DeviceClass, IdFormat
from criproxy.devices.mistakes import mistakes
from criproxy.devices.plan import PluginPlan
from criproxy.devices.plugin_options import PluginOptions
from criproxy.devices.rules import DeviceRules, HideUnallocated, KubeletFiles, OnNoEvidence, Privileged, UserOverride
from criproxy.devices.texts import (
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
from criproxy.policy.options import Misfit, NamespacePattern


class NodeOptions(BaseModel):
    """The device nodes of a class."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    per_device: tuple[CardNodePath, ...] = ()
    """Paths of a card's nodes, such as /dev/npu{index}; {index} is the number of the card."""
    shared: tuple[NodePath, ...] = ()
    """Paths of nodes that every container with a card needs; * and ? stand for anything but '/'."""
    permissions: Literal["r", "rw", "rwm"] = "rw"
    """What a container may do with them: read, write, mknod."""


class ClassOptions(BaseModel):
    """A class of devices: one of your own, or changes to a built-in one."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: ClassName
    """The name of a built-in class (nvidia, ascend, amd, intel-gpu, intel-npu, habana, cambricon), whose values are the
    defaults; or of a class of your own, which needs resources."""
    resources: tuple[ResourcePattern, ...] = ()
    """The extended resources of its device plugins; * and ? stand for anything."""
    visible_env: EnvName = ""
    """The variable that tells the vendor's hook which cards to show; empty where there is no such hook."""
    hide_value: HideValue = ""
    """The value of that variable with which the hook shows no card; without it, criproxy writes nothing to hide
    cards."""
    write_env: bool = True
    """Whether criproxy writes the allocated cards to that variable; false where the device plugin passes only nodes."""
    strip_env: tuple[EnvPattern, ...] = ()
    """More variables that criproxy removes; a * at the end stands for anything."""
    strip_mount_prefix: tuple[MountPrefix, ...] = ()
    """Prefixes of the container paths of mounts by which a pod asks the hook for a card; the rest of the path names the
    card."""
    runtimes: tuple[str, ...] = ("*",)
    """Runtime handlers (of RuntimeClass) whose hook understands hideValue; * means all, "" means the node's default."""
    id_format: IdFormat = "as-is"
    """How visibleEnv names cards: by the kubelet's ids (uuid, as-is), by the number at the end of these ids (index), by
    the number of the card's node (minor), or by values that only the device plugin knows and sets itself (plugin)."""
    replica_separator: str = "::"
    """The separator in an id before the number of a share of the card."""
    nodes: NodeOptions = NodeOptions()
    """Its device nodes."""
    cdi_kinds: tuple[CdiKind, ...] = ()
    """The kinds of CDI devices that represent its cards."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any] | str:
        """What the file says of it: what it does not say is not always what stands here as the default."""
        if self.model_fields_set == {"name"}:
            return self.name
        given = {type(self).model_fields[name].alias or name for name in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name in given}

    def device_class(self) -> DeviceClass:
        """The class, with what the file does not say as it is built in."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"nodes"}}
        if "nodes" in self.model_fields_set:
            given |= {name: getattr(self.nodes, name) for name in self.nodes.model_fields_set}
        known = BUILTIN.get(self.name)
        return replace(known, **given) if known else DeviceClass(**given)


def _named(value: object) -> object:
    """A class of which only the name is given."""
    return {"name": value} if isinstance(value, str) else value


BuiltinName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(BUILTIN)})]
ClassOption = Annotated[ClassOptions, BeforeValidator(_named, json_schema_input_type=ClassOptions | BuiltinName)]


class ExemptOptions(BaseModel):
    """Containers that keep every device that they ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    namespaces: tuple[NamespacePattern, ...] = ("kube-system", "gpu-operator")
    """Namespaces whose containers keep every device that they ask for, such as those of device plugins and exporters;
    * and ? stand for anything."""
    images: tuple[str, ...] = ()
    """Images whose containers keep every device that they ask for, as pods name them; * and ? stand for anything."""


class PodresourcesOptions(BaseModel):
    """The kubelet's socket that reports allocated devices."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    socket: HostPath = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """The socket of the kubelet's podresources API; with "" criproxy does not ask it."""
    timeout: Wait = "1s"
    """How long a create may wait for the kubelet's evidence, podresources and checkpoint together: at most 1s."""

    def timeout_s(self) -> float:
        """The same as a number."""
        text = self.timeout
        return int(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


class DeviceOptions(BaseModel):
    """Which containers see which accelerators; without this section criproxy leaves devices alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    hide_unallocated: HideUnallocated = "enforce"
    """Whether criproxy hides all cards from containers to which none is allocated, whatever their image says: enforce
    it, only report it, or off."""
    user_override: UserOverride = "strip"
    """What criproxy does with variables and mounts by which a pod asks for cards that are not allocated to it: keep
    them and record them in the history of the container (keep), also log a warning (report), or remove them (strip)."""
    privileged: Privileged = "report"
    """What criproxy does with privileged containers, which see every device node of the host in any case: leave them
    alone (allow), treat them like all others and report them (report), or refuse them (deny)."""
    exempt: ExemptOptions = ExemptOptions()
    """Containers that keep every device that they ask for."""
    keep_access_on_update: bool = True
    """Whether criproxy adds the device nodes of allocated cards to a container's create, so that no later update of its
    CPUs takes them away."""
    update_without_nodes: bool = False
    """Whether criproxy moves containers with a card to other CPUs even if their create names no device node of the
    card. Otherwise they stay where they are: an older runc would take the card away with the update."""
    on_no_evidence: OnNoEvidence = "keep"
    """What criproxy does with a container that asks for cards while neither the kubelet nor its checkpoint shows
    whether they are allocated to it: keep them, treat them as if the pod itself had asked for them (hide), or refuse
    the container until that is known (fail)."""
    podresources: PodresourcesOptions = PodresourcesOptions()
    """How criproxy asks the kubelet for allocated devices."""
    checkpoint: HostPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    """The file of the kubelet's device manager. criproxy uses it where podresources gives no answer, and to tell pods
    with the same name apart; with "" criproxy does not read it."""
    classes: tuple[ClassOption, ...] = Field(default=tuple(ClassOptions(name=name) for name in BUILTIN))
    """The classes in force: names of built-in ones, mappings that change a built-in one, and mappings that describe
    one of your own. By default all built-in ones."""

    plugin: PluginOptions | None = None
    """Which cards criproxy's own device plugin (`criproxy device-plugin`) offers to the kubelet; without this section,
    none."""

    def rules(self) -> DeviceRules:
        """The same as plain values; resources that our own plugin makes of a class's are the class's, too."""
        kinds = (each.device_class() for each in self.classes)
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
        )

    def plan(self) -> PluginPlan | None:
        """What criproxy's own device plugin offers; None where there is no section for it."""
        return None if self.plugin is None else self.plugin.plan(self._classes())

    def contradictions(self) -> Iterator[Misfit]:
        """What cannot be meant so; paths lead from the section."""
        found = [*self._of_classes()]
        yield from found
        if self.plugin and not found:
            for path, text in self.plugin.contradictions(self._classes()):
                yield Misfit(("plugin", *path), text)

    def _classes(self) -> dict[str, DeviceClass]:
        """By name."""
        return {each.name: each.device_class() for each in self.classes}

    def _of_classes(self) -> Iterator[Misfit]:
        names: dict[str, str] = {}
        known: dict[str, DeviceClass] = {}
        variables: dict[str, str] = {}
        for number, options in enumerate(self.classes):
            path = ("classes", number)
            if options.name in names:
                yield Misfit((*path, "name"), f"the class {options.name!r} is given twice")
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
