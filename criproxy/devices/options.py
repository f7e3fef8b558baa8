"""The section ``devices`` of a policy file."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from posixpath import normpath
from re import fullmatch
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from criproxy.devices.builtin import BUILTIN
from criproxy.devices.classes import PLACEHOLDER, DeviceClass, IdFormat
from criproxy.devices.mistakes import mistakes
from criproxy.devices.rules import DeviceRules, HideUnallocated, KubeletFiles, OnNoEvidence, Privileged, UserOverride
from criproxy.policy.options import Misfit, NamespacePattern


@dataclass(frozen=True, slots=True)
class _Text:
    """Makes a text of which all has to match a pattern."""

    pattern: str
    meaning: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        """The text, checked."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The text with the pattern."""
        return handler(schema) | {"pattern": f"^({self.pattern})$"}

    def _check(self, value: str) -> str:
        if not fullmatch(self.pattern, value):
            raise ValueError(f"must be {self.meaning}, not {value!r:.60}")
        return value


def _card_node(path: str) -> str:
    if len(PLACEHOLDER.findall(path)) != 1:
        raise ValueError(f"must say once where a card's number stands, as in /dev/npu{{index}}, not {path!r:.60}")
    return path


def _plain_path(path: str) -> str:
    if normpath(path) != path:
        raise ValueError(f"must be a path below /dev/ without '.', '..' and '//', not {path!r:.60}")
    return path


_WORD = "[A-Za-z0-9][A-Za-z0-9_.-]*"
ClassName = Annotated[str, _Text("[a-z0-9][a-z0-9.-]{0,62}", "a name of a-z, 0-9, '-' and '.'")]
ResourcePattern = Annotated[
    str, _Text(r"[a-z0-9.*?-]+/[A-Za-z0-9._*?-]+", "a resource such as vendor.com/gpu, in which * and ? may stand")
]
EnvName = Annotated[str, _Text("([A-Za-z_][A-Za-z0-9_]*)?", "the name of an environment variable")]
EnvPattern = Annotated[
    str, _Text(r"[A-Za-z_][A-Za-z0-9_]*\*?", "the name of an environment variable, or its beginning and *")
]
HideValue = Annotated[str, _Text("[!-~]*", "a word without blanks")]
NodePath = Annotated[
    str,
    _Text(r"/dev/[^/\s][^\s]*", "a path below /dev/"),
    AfterValidator(_plain_path),
]
CardNodePath = Annotated[NodePath, AfterValidator(_card_node)]
MountPrefix = Annotated[str, _Text(r"/[^\s]*[^/\s]", "an absolute path without '/' at its end")]
HostPath = Annotated[str, _Text(r"(/[^\s]*[^/\s])?", 'an absolute path, or "" where it is not to be looked at')]
Wait = Annotated[
    str, _Text(r"1s|0?\.[0-9]{1,3}s|[1-9][0-9]{0,2}ms|1000ms", "a time of at most one second, such as 1s or 500ms")
]
CdiKind = Annotated[str, _Text(f"{_WORD}/{_WORD}", "a kind of CDI devices, such as vendor.com/gpu")]


class NodeOptions(BaseModel):
    """Where a class's device nodes are."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    per_device: tuple[CardNodePath, ...] = ()
    """Paths of a card's nodes, such as /dev/npu{index}: there stands its number."""
    shared: tuple[NodePath, ...] = ()
    """Paths of nodes that every container with a card needs; * and ? stand for anything but '/'."""
    permissions: Literal["r", "rw", "rwm"] = "rw"
    """What a container may do with them: read, write, mknod."""


class ClassOptions(BaseModel):
    """A class of devices: one of your own, or what is different about one that is built in."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: ClassName
    """Of a class that is built in (nvidia, ascend, amd, intel-gpu, intel-npu, habana, cambricon), which counts where
    nothing is said; else of one of your own, which needs resources."""
    resources: tuple[ResourcePattern, ...] = ()
    """The extended resources of its device plugins; * and ? stand for anything."""
    visible_env: EnvName = ""
    """The variable by which the vendor's hook learns which cards to show; none where there is no such hook."""
    hide_value: HideValue = ""
    """The value of that variable with which the hook shows none; without one, nothing is written to hide."""
    write_env: bool = True
    """Whether the variable says what was allocated; false where the device plugin passes nodes only."""
    strip_env: tuple[EnvPattern, ...] = ()
    """More variables that do not get in; a * at the end stands for anything."""
    strip_mount_prefix: tuple[MountPrefix, ...] = ()
    """What the path of a mount in the container begins with whose rest asks the hook for a card."""
    runtimes: tuple[str, ...] = ("*",)
    """Runtime handlers (of RuntimeClass) whose hook knows hideValue; * is all, "" the node's default one."""
    id_format: IdFormat = "as-is"
    """What visibleEnv says of the ids that the kubelet knows: the same (uuid, as-is), the number at their end (index),
    the number of the card's node (minor), or what only the device plugin knows and has set itself (plugin)."""
    replica_separator: str = "::"
    """What follows it in an id is the number of a share and not of the card."""
    nodes: NodeOptions = NodeOptions()
    """Its device nodes."""
    cdi_kinds: tuple[CdiKind, ...] = ()
    """Kinds of CDI devices that are its cards."""

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
    """Who is left alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    namespaces: tuple[NamespacePattern, ...] = ("kube-system", "gpu-operator")
    """Namespaces whose containers keep what they ask for, such as those of device plugins and exporters; * and ? stand
    for anything."""
    images: tuple[str, ...] = ()
    """Images for which the same holds, as pods name them; * and ? stand for anything."""


class PodresourcesOptions(BaseModel):
    """The kubelet's socket that tells what it has allocated."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    socket: HostPath = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """The socket of the kubelet's podresources; with "" it is not asked."""
    timeout: Wait = "1s"
    """How long a create may wait for the kubelet's evidence, podresources and checkpoint together: at most 1s."""

    def timeout_s(self) -> float:
        """The same as a number."""
        text = self.timeout
        return int(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


class DeviceOptions(BaseModel):
    """Which containers see which accelerators; where the section is absent, devices are left alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    hide_unallocated: HideUnallocated = "enforce"
    """Whether containers to which no card was allocated see none, whatever their image says: enforced, only reported,
    or off."""
    user_override: UserOverride = "strip"
    """What becomes of variables and mounts by which a pod asks for other cards than were allocated to it: they stay
    and are told in its history, are also logged as a warning (report), or are taken out (strip)."""
    privileged: Privileged = "report"
    """Privileged containers see every device node of the host, whatever is done here: they are left alone (allow),
    treated like all others and reported, or refused (deny)."""
    exempt: ExemptOptions = ExemptOptions()
    """Who is left alone."""
    keep_access_on_update: bool = True
    """Whether the device nodes of allocated cards are added to a container's create, so that no later update of its
    CPUs takes them away."""
    update_without_nodes: bool = False
    """Whether containers with a card are moved to other CPUs although no device node of it is in their create.
    Otherwise they stay where they are: an older runc would take the card away with the update."""
    on_no_evidence: OnNoEvidence = "keep"
    """What becomes of a container that asks for cards while nobody can tell whether they were allocated to it: that
    stays, is treated as asked for by the pod itself (hide), or the container is refused until somebody can (fail)."""
    podresources: PodresourcesOptions = PodresourcesOptions()
    """How the kubelet is asked what it has allocated."""
    checkpoint: HostPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    """The file of the kubelet's device manager: it counts where podresources does not tell, and tells pods of one name
    apart; with "" it is not read."""
    classes: tuple[ClassOption, ...] = Field(default=tuple(ClassOptions(name=name) for name in BUILTIN))
    """The classes in force: names of those that are built in, groups that change something about one, and groups that
    describe one of your own. Where nothing is said: all that are built in."""

    def rules(self) -> DeviceRules:
        """The same as plain values."""
        return DeviceRules(
            classes=tuple(each.device_class() for each in self.classes),
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

    def contradictions(self) -> Iterator[Misfit]:
        """What cannot be meant so; paths lead from the section."""
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
                yield Misfit((*path, "visibleEnv"), f"{variable} is already that of the class {other!r}")


def _class_contradictions(path: tuple[str | int, ...], options: ClassOptions) -> Iterator[Misfit]:
    kind = options.device_class()
    if kind.hide_value and not kind.visible_env:
        yield Misfit((*path, "hideValue"), "has no effect without visibleEnv, the variable that gets it")
    if kind.id_format == "minor" and not kind.per_device:
        yield Misfit((*path, "idFormat"), "minor needs nodes.perDevice, where the number of a card is read")


def _unknown(name: str) -> str:
    near = get_close_matches(name, BUILTIN, n=1)
    mean = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no class {name!r}; built in are {', '.join(BUILTIN)}{mean}; one of your own needs resources"
