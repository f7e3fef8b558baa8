"""Pure: what `look` has found on a node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from criproxy.install.planning import edits, paths
from criproxy.install.planning.unit_file import Service, environment_of, flag, flags, service_of


class NodeKind(StrEnum):
    """Who starts the kubelet, and so how it is configured."""

    KUBEADM = "kubeadm"
    K3S = "k3s"
    RKE2 = "rke2"
    PLAIN = "plain"

    @property
    def embeds_kubelet(self) -> bool:
        """Whether the kubelet is a part of another program, with a configuration file of that program."""
        return self in (NodeKind.K3S, NodeKind.RKE2)


@dataclass(frozen=True, slots=True)
class Brought:
    """What this program has with it, for a node that has no package of criproxy."""

    version: str = ""
    home: str = ""
    """The virtual environment that can be copied to the node; empty: there is none."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Texts of the unit files by name."""
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A node. All paths are the node's."""

    kind: NodeKind
    kubelet: str
    """The unit that runs the kubelet."""
    service: Service = field(default_factory=Service)
    """Of that unit."""
    unit_files: Sequence[str] = ()
    """The files of that unit, in the order in which systemd reads them."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files that may say something about the kubelet or criproxy, if they exist."""
    unit_texts: Mapping[str, str] = field(default_factory=dict)
    """criproxy's unit files as the node has them, by name."""
    configs: Sequence[str] = ()
    """The kubelet's or k3s's configuration files, in the order in which they are read; not all need to exist."""
    embedded_configs: Sequence[str] = ()
    """The configuration files of the kubelet within k3s or RKE2, in the order in which they are read."""
    absent: Sequence[str] = ()
    """What command lines tell the kubelet, k3s or RKE2 to read, but does not exist: path and reason."""
    linked: frozenset[str] = frozenset()
    """Those of `texts` that have several names (hard links)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Setting → the text with which the last installation wrote it, whatever the file has now."""
    sockets: frozenset[str] = frozenset()
    """The sockets that exist, of those that are asked for."""
    active: frozenset[str] = frozenset()
    """Units of criproxy that are both enabled and active."""
    rivals: Sequence[str] = ()
    """Sentences about other programs that place containers."""
    program: str = ""
    """Version of the program on the node; empty if it is missing."""
    is_package: bool = False
    """Whether the node's package manager has installed it."""
    has_state: bool = False
    brought: Brought = field(default_factory=Brought)

    @property
    def words(self) -> list[str]:
        """The command line of the kubelet's unit."""
        return self.service.words(self.texts)

    def kubelet_value(self, flag_name: str, key: str) -> str | None:
        """Return the kubelet's setting: the flag, else the last configuration file that has it; None without both."""
        given = flag(self.kubelet_words, flag_name)
        if given is not None:
            return given
        values = [self.data(path).get(key) for path in self._kubelet_files]
        return next((str(value) for value in reversed(values) if value is not None), None)

    def kubelet_mapping(self, flag_name: str, key: str) -> dict[str, str]:
        """Return the kubelet's setting with named parts: the flag, such as ``cpu=1,memory=1Gi``, else all files'."""
        given = flag(self.kubelet_words, flag_name)
        if given is not None:
            return {name: value for name, _, value in (part.partition("=") for part in given.split(","))}
        found = dict[str, str]()
        for path in self._kubelet_files:
            value = self.data(path).get(key)
            found |= {str(name): str(part) for name, part in value.items()} if isinstance(value, dict) else {}
        return found

    @property
    def _kubelet_files(self) -> Sequence[str]:
        return self.embedded_configs if self.kind.embeds_kubelet else self.configs

    @property
    def kubelet_words(self) -> list[str]:
        """The flags of the kubelet, also of one within k3s or RKE2."""
        if not self.kind.embeds_kubelet:
            return self.words
        return [f"--{argument.lstrip('-')}" for argument in self._kubelet_arguments]

    @property
    def _kubelet_arguments(self) -> list[str]:
        """The arguments that k3s or RKE2 passes to its kubelet, each with or without dashes before it."""
        if given := flags(self.words, "kubelet-arg"):
            return given
        found = list[str]()
        for path in self.configs:
            data = self.data(path)
            if "kubelet-arg" in data:
                found = _listed(data["kubelet-arg"])
            found += _listed(data.get("kubelet-arg+", []))
        return found

    def own_value(self, name: str) -> str | None:
        """Return the option *name* of k3s or RKE2 itself."""
        given = flag(self.words, name)
        values = [self.data(path).get(name) for path in self.configs]
        return given or next((str(value) for value in reversed(values) if value is not None), None)

    @property
    def endpoint(self) -> str:
        """The kubelet's runtime endpoint; empty if it uses a default."""
        named = self.kubelet_value(edits.FLAG, edits.ENDPOINT_KEY) or ""
        if self.kind.embeds_kubelet and not paths.is_ours(named):  # k3s itself writes a file with its own socket
            return flag(self.kubelet_words, edits.FLAG) or self.own_value(edits.FLAG) or ""
        return named

    def with_texts(self, texts: Mapping[str, str | None]) -> "Facts":
        """Return the node as it is when files have other texts; None: a file does not exist."""
        found = {path: text for path, text in {**self.texts, **texts}.items() if text is not None}
        service = service_of(self.kubelet, [found[path] for path in self.unit_files if path in found])
        return replace(self, texts=found, service=service)

    def data(self, path: str) -> dict[str, Any]:
        """Return what a YAML file says; nothing if it is missing, or one of those that are `unread`."""
        try:
            return edits.mapping(self.texts.get(path, ""))
        except edits.CannotEdit:
            return {}

    @property
    def unread(self) -> Iterator[str]:
        """The configuration files that may say something about the kubelet, but cannot be read: path and reason."""
        yield from self.absent
        for path in (*self.configs, *self.embedded_configs):
            try:
                edits.mapping(self.texts.get(path, ""))
            except edits.CannotEdit as error:
                yield f"{path}: {error}"

    @property
    def configured_runtime(self) -> str:
        """The socket that criproxy's own options name, or its default one; of a node that already has criproxy."""
        return paths.socket_of(self.option("runtime-endpoint") or paths.CONTAINERD)

    def option(self, name: str) -> str | None:
        """Return the value of the option ``--name`` of criproxy's unit; None without it."""
        return _option(self.texts.get(paths.DEFAULTS, ""), name)

    def has_written(self, name: str) -> bool:
        """Whether an installation has set the option ``--name`` of criproxy's unit, and none has removed it since."""
        return _option(self.written.get(paths.setting_of(name), ""), name) is not None


def _option(text: str, name: str) -> str | None:
    options = Service("$O", {"O": environment_of(text).get(paths.OPTIONS, "")})
    return flag(options.words({}), name)


def _listed(value: Any) -> list[str]:  # noqa: ANN401 - YAML
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]
