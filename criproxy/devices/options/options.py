"""The section ``devices`` of a policy file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from criproxy.devices import device_rules
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.classes.device_class import DeviceClass, IdFormat, is_among
from criproxy.devices.options import option_types
from criproxy.devices.options.plugin_options import PluginOptions
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.placement.options.policy_options import Misfit, NamespacePattern, Path

NEEDED = (
    *("PATH", "HOME", "USER", "SHELL", "PWD", "HOSTNAME", "LANG", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "GOMAXPROCS", "OMP_NUM_THREADS"),
)
"""Variables that do not belong to a vendor."""
NOT_SHARED = ("/dev/mem", "/dev/kmsg", "/dev/port", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/dm-0")
"""Device nodes that give a container access to the host, or to its disks."""
RESERVED = frozenset({"container"})
"""Names that findings use for something other than classes."""
BuiltinName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(BUILTIN)})]


class NodeOptions(option_types.Section):
    """The device nodes of a class."""

    per_device: tuple[option_types.CardNodePath, ...] = ()
    """Paths of a card's device nodes, such as /dev/npu{index}; {index} is the number of the card."""
    shared: tuple[option_types.NodePath, ...] = ()
    """Paths of the device nodes that every container with a card needs; * and ? are wildcards that do not match '/'."""
    permissions: Literal["r", "rw", "rwm"] = "rw"
    """The access of containers to these device nodes: read (r), write (w), mknod (m)."""


class ClassOptions(option_types.NamedSection):
    """A class of devices: one of your own, or changes to a built-in one."""

    name: option_types.ClassName
    """The name of a built-in class (nvidia, ascend, amd, intel-gpu, intel-npu, habana, cambricon), whose values are the
    defaults for the other options, or a name of your own for a new class, which also needs the option resources."""
    resources: tuple[option_types.ResourcePattern, ...] = ()
    """The extended resources that the device plugins of this class offer; * and ? are wildcards."""
    visible_env: option_types.EnvName = ""
    """The environment variable that tells the vendor's hook which cards to show. Leave it empty if there is no
    such hook."""
    hide_value: option_types.HideValue = ""
    """The value of visibleEnv that makes the hook expose no cards. If it is empty, criproxy does not write
    visibleEnv to hide cards."""
    write_env: bool = True
    """Whether criproxy writes the allocated cards to visibleEnv. Set it to false if the device plugin passes only
    device nodes: criproxy then writes hideValue for containers with a card, too, so that the hook adds no others."""
    strip_env: tuple[option_types.EnvPattern, ...] = ()
    """Additional environment variables that criproxy removes; a * at the end is a wildcard."""
    strip_mount_prefix: tuple[option_types.MountPrefix, ...] = ()
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
    cdi_kinds: tuple[option_types.CdiKind, ...] = ()
    """The kinds of CDI devices that represent cards of this class."""

    def device_class(self) -> DeviceClass:
        """Return the class, with the built-in values as defaults."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"nodes"}}
        if "nodes" in self.model_fields_set:
            given |= {name: getattr(self.nodes, name) for name in self.nodes.model_fields_set}
        known = BUILTIN.get(self.name)
        return replace(known, **given) if known else DeviceClass(**given)


ClassOption = Annotated[ClassOptions, option_types.or_word("name", ClassOptions | BuiltinName)]


class ExemptOptions(option_types.Section):
    """Containers that keep every device that they ask for."""

    namespaces: tuple[NamespacePattern, ...] = ("kube-system", "gpu-operator")
    """Namespaces whose containers keep every device that they ask for, for example because they are device plugins or
    exporters; * and ? are wildcards."""
    images: tuple[str, ...] = ()
    """Images, written as in pods, whose containers keep every device that they ask for; * and ? are wildcards."""


class PodresourcesOptions(option_types.Section):
    """The kubelet's socket that reports allocated devices."""

    socket: option_types.HostPath = "/var/lib/kubelet/pod-resources/kubelet.sock"
    """The socket of the kubelet's podresources API. If it is "", criproxy does not use this API."""
    timeout: option_types.Wait = "1s"
    """How long a CreateContainer request may wait for evidence from the kubelet (podresources and checkpoint together):
    at most 1s."""


class DeviceOptions(option_types.Section):
    """Which containers see which accelerators; without this section criproxy leaves devices alone."""

    hide_unallocated: device_rules.HideUnallocated = "enforce"
    """Whether criproxy hides all cards from containers to which none is allocated, no matter what their image requests.
    enforce: hide them. report: only report them. off: do neither."""
    user_override: device_rules.UserOverride = "strip"
    """What criproxy does if a pod uses environment variables or mounts to ask for cards that are not allocated to it.
    keep: keep them, and record them in the container's history. report: also log a warning. strip: remove them."""
    privileged: device_rules.Privileged = "report"
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
    on_no_evidence: device_rules.OnNoEvidence = "keep"
    """What criproxy does if a container asks for cards, and neither the kubelet nor its checkpoint shows whether they
    are allocated to it. keep: keep the cards. hide: treat the cards as not allocated (see userOverride). fail: refuse
    the container until the allocation is known."""
    podresources: PodresourcesOptions = PodresourcesOptions()
    """How criproxy asks the kubelet for allocated devices."""
    checkpoint: option_types.HostPath = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    """The checkpoint file of the kubelet's device manager. criproxy uses it if podresources gives no answer, and to
    distinguish pods with the same name. If it is "", criproxy does not read the file."""
    classes: tuple[ClassOption, ...] = Field(default=tuple(ClassOptions(name=name) for name in BUILTIN))
    """The device classes that criproxy uses: names of built-in classes, mappings that change a built-in class, and
    mappings that define a class of your own. By default, all built-in classes."""

    plugin: PluginOptions | None = None
    """Which cards criproxy's own device plugin (`criproxy device-plugin`) offers to the kubelet. Without this section,
    it offers none."""

    def rules(self) -> device_rules.DeviceRules:
        """Convert to plain values; classes include the resources that our own plugin derives from theirs."""
        kinds = (each.device_class() for each in self.classes)
        plan = self.plan()
        return self.plain(
            device_rules.DeviceRules,
            classes=tuple(self.plugin.extended(kind) if self.plugin else kind for kind in kinds),
            exempt_namespaces=self.exempt.namespaces,
            exempt_images=self.exempt.images,
            kubelet=device_rules.KubeletFiles(
                socket=self.podresources.socket,
                checkpoint=self.checkpoint,
                timeout_s=option_types.seconds(self.podresources.timeout),
            ),
            offered=tuple(dict.fromkeys(each.kind.name for each in plan.advertised)) if plan else (),
            watched=plan.watched if plan else (),
            without_usage=plan.unwatched if plan else (),
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
        known: dict[str, DeviceClass] = {}
        variables: dict[str, str] = {}
        names = set[str]()
        for number, options in enumerate(self.classes):
            path: Path = ("classes", number)
            if options.name in names:
                yield Misfit((*path, "name"), f"the class {options.name!r} is listed twice")
            names.add(options.name)
            if options.name not in BUILTIN and not options.resources:
                yield Misfit((*path, "name"), _unknown(options.name))
                continue
            kind = options.device_class()
            yield from [*_class_contradictions(path, kind)] or _mistakes(path, kind, known)
            known.setdefault(options.name, kind)
            variable = kind.visible_env
            if variable and (other := variables.setdefault(variable, options.name)) != options.name:
                yield Misfit((*path, "visibleEnv"), f"{variable} already belongs to the class {other!r}")


def _class_contradictions(path: Path, kind: DeviceClass) -> Iterator[Misfit]:
    if kind.hide_value and not kind.visible_env:
        yield Misfit((*path, "hideValue"), "has no effect without visibleEnv, the variable that gets it")
    if kind.id_format == "minor" and not kind.per_device:
        yield Misfit((*path, "idFormat"), "minor needs nodes.perDevice, the source of a card's number")


def _unknown(name: str) -> str:
    meant = f" ({hint})" if (hint := option_types.near(name, BUILTIN).removeprefix("; ")) else ""
    own = "a class of your own needs resources"
    return f"there is no class {name!r}{meant}; built-in classes are: {', '.join(BUILTIN)}; {own}"


def _mistakes(path: Path, kind: DeviceClass, others: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
    """Yield the mistakes in *kind*, which includes its built-in values; *others* are the previous classes, by name."""
    if kind.name in RESERVED:
        yield Misfit((*path, "name"), f"{kind.name!r} is reserved in criproxy's device records: choose another name")
    elif not any((kind.visible_env, kind.per_device, kind.cdi_kinds, kind.strip_env, kind.strip_mount_prefix)):
        needs = "visibleEnv, nodes.perDevice, cdiKinds, stripEnv or stripMountPrefix"
        yield Misfit((*path, "name"), f"the class {kind.name!r} does nothing: it needs {needs}")
    text = "is a variable that programs need, and criproxy would remove it from every container"
    if kind.visible_env in NEEDED:
        yield Misfit((*path, "visibleEnv"), f"{kind.visible_env} {text}")
    for number, pattern in enumerate(kind.strip_env):
        if name := next((name for name in sorted(NEEDED) if is_among(name, [pattern])), ""):
            yield Misfit((*path, "stripEnv", number), f"{name} {text}")
    for number, pattern in enumerate(kind.shared):
        if node := next((node for node in NOT_SHARED if fnmatchcase(node, pattern)), ""):
            text = f"would give {node} to every container with a card: list only the vendor's device nodes"
            yield Misfit((*path, "nodes", "shared", number), text)
    rest = [other for other in others.values() if other.name != kind.name]
    for number, resource in enumerate(kind.resources):
        if other := next((each.name for each in rest if _overlap(resource, each.resources)), ""):
            yield Misfit((*path, "resources", number), f"{resource} already belongs to the class {other!r}")


def _overlap(resource: str, patterns: Sequence[str]) -> bool:
    """Whether one resource may match both."""
    return any(_means(resource, pattern) or _means(pattern, resource) for pattern in patterns)


def _means(one: str, pattern: str) -> bool:
    """Whether *pattern* matches a string that *one*, itself a pattern, matches, with any or no text for its ``*``."""
    return any(fnmatchcase(one.replace("*", some).replace("?", "x"), pattern) for some in ("", "x"))
