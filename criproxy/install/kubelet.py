"""A node's kubelet, as its unit and its files configure it: who starts it, what it is told, and where it calls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from criproxy.errors import CriproxyError
from criproxy.install import paths, texts
from criproxy.install.host import Host
from criproxy.install.texts import ENDPOINT_KEY, FLAG, CannotEdit


class NodeKind(StrEnum):
    """Who starts the kubelet, and so how it is configured."""

    KUBEADM = "kubeadm"
    K3S = "k3s"
    RKE2 = "rke2"
    PLAIN = "plain"


_UNITS = {
    "k3s.service": NodeKind.K3S,
    "k3s-agent.service": NodeKind.K3S,
    "rke2-server.service": NodeKind.RKE2,
    "rke2-agent.service": NodeKind.RKE2,
    "kubelet.service": NodeKind.PLAIN,
}
_DEFAULT_CONFIG, _DEFAULT_CONFIG_DIR = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"
_OF_KUBEADM = "/var/lib/kubelet/kubeadm-flags.env"


@dataclass(frozen=True)
class Kubelet:
    """What its files say; each is read when it is asked for, and once. All paths are the node's.

    Raises:
        OSError: by each of the properties: a file cannot be read.
    """

    host: Host
    kind: NodeKind
    unit: str
    """The unit that runs it; empty: there is none."""

    @property
    def is_embedded(self) -> bool:
        """Whether it is a part of another program, with a configuration file of that program."""
        return self.kind in (NodeKind.K3S, NodeKind.RKE2)

    def with_texts(self, changed: Mapping[str, str | None]) -> "Kubelet":
        """Return it as it is when files have other texts; None: a file does not exist."""
        return replace(self, host=replace(self.host, overlay={**self.host.overlay, **changed}))

    @cached_property
    def unit_files(self) -> list[str]:
        """The unit and its drop-ins in systemd's order; a drop-in hides those of the same name."""
        names = (f"{folder}/{self.unit}" for folder in paths.UNIT_FOLDERS)
        units = [path for path in names if self.host.read(path) is not None]
        drop_ins = [path for folder in paths.UNIT_FOLDERS for path in self.host.entries(f"{folder}/{self.unit}.d")]
        by_name = {path.rpartition("/")[2]: path for path in reversed(drop_ins) if path.endswith(".conf")}
        return [*units[:1], *(by_name[name] for name in sorted(by_name))]

    @cached_property
    def service(self) -> texts.Service:
        """What these files say."""
        return texts.service_of(self.unit, [self.host.read(path) or "" for path in self.unit_files])

    def environment(self, file: str) -> dict[str, str]:
        """Return the variables in an environment file; none if it is missing."""
        return texts.environment_of(self.host.read(file) or "")

    @cached_property
    def _variables(self) -> dict[str, str]:
        variables = dict(self.service.environment)
        for file in self.service.environment_files:
            variables |= self.environment(file)
        return variables

    @cached_property
    def words(self) -> list[str]:
        """The command line of the unit."""
        return texts.command_words(self.service.exec_start, self._variables)

    @cached_property
    def configs(self) -> list[str]:
        """The configuration files of the kubelet, k3s or RKE2, as they are read in turn; not all need to exist."""
        if not self.unit:
            return [path for path in self._files(_DEFAULT_CONFIG, _DEFAULT_CONFIG_DIR) if self.host.exists(path)]
        if not self.is_embedded:
            return self._files(texts.flag(self.words, "config"), texts.flag(self.words, "config-dir"))
        named = texts.flag(self.words, "config") or self._variables.get(f"{self.kind.upper()}_CONFIG_FILE")
        main = named or f"/etc/rancher/{self.kind}/config.yaml"
        return [main, *(path for path in self.host.entries(f"{main}.d") if path.endswith((".yaml", ".yml")))]

    @cached_property
    def embedded_configs(self) -> list[str]:
        """The same of the kubelet within k3s or RKE2: those that it is told, and those that these have for it."""
        if not self.is_embedded:
            return []
        data = self.own_value("data-dir") or self._variables.get(f"{self.kind.upper()}_DATA_DIR")
        words, folder = self.kubelet_words, f"{data or f'/var/lib/rancher/{self.kind}'}/agent/etc/kubelet.conf.d"
        files = self._files(texts.flag(words, "config"), texts.flag(words, "config-dir"))
        return [*dict.fromkeys((*files, *self._files(None, folder)))]

    def _files(self, file: str | None, folder: str | None) -> list[str]:
        dropped = [path for path in self.host.entries(folder) if path.endswith(".conf")] if folder else []
        return [*filter(None, [file]), *dropped]

    @cached_property
    def kubelet_words(self) -> list[str]:
        """The flags of the kubelet, also of one within k3s or RKE2, which pass on arguments with or without dashes."""
        if not self.is_embedded:
            return self.words
        arguments = texts.flags(self.words, "kubelet-arg")
        if not arguments:
            for data in map(self.data, self.configs):
                arguments = _listed(data["kubelet-arg"]) if "kubelet-arg" in data else arguments
                arguments = [*arguments, *_listed(data.get("kubelet-arg+", []))]
        return [f"--{argument.lstrip('-')}" for argument in arguments]

    def value(self, flag_name: str, key: str) -> str | None:
        """Return the kubelet's setting: the flag, else the last configuration file that has it; None without both."""
        given = texts.flag(self.kubelet_words, flag_name)
        return self._last(self._kubelet_files, key) if given is None else given

    def values(self, flag_name: str, key: str) -> dict[str, str]:
        """Return the kubelet's setting with named parts: the flag, such as ``cpu=1,memory=1Gi``, else all files'."""
        given = texts.flag(self.kubelet_words, flag_name)
        if given is not None:
            return {name: value for name, _, value in (part.partition("=") for part in given.split(","))}
        settings = [self.data(path).get(key) for path in self._kubelet_files]
        parts = [part for setting in settings if isinstance(setting, dict) for part in setting.items()]
        return {str(name): str(value) for name, value in parts}

    def own_value(self, name: str) -> str | None:
        """Return the option *name* of k3s or RKE2 itself."""
        return texts.flag(self.words, name) or self._last(self.configs, name)

    def _last(self, files: Sequence[str], key: str) -> str | None:
        values = [self.data(path).get(key) for path in reversed(files)]
        return next((str(value) for value in values if value is not None), None)

    @property
    def _kubelet_files(self) -> Sequence[str]:
        return self.embedded_configs if self.is_embedded else self.configs

    @cached_property
    def endpoint(self) -> str:
        """The kubelet's runtime endpoint; empty if it uses a default."""
        named = self.value(FLAG, ENDPOINT_KEY) or ""
        if self.is_embedded and not paths.is_ours(named):  # k3s itself writes a file with its own socket
            return texts.flag(self.kubelet_words, FLAG) or self.own_value(FLAG) or ""
        return named

    @cached_property
    def node_name(self) -> str:
        """The name under which the kubelet registers the node."""
        named = self.value("hostname-override", "") or self.own_value("node-name")
        return named or (self.host.read("/etc/hostname") or "").strip().lower()

    def data(self, path: str) -> dict[str, Any]:
        """Return what a YAML file says; nothing if it is missing, or one of those that are `unread`."""
        try:
            return texts.mapping(self.host.read(path) or "")
        except CannotEdit:
            return {}

    @property
    def unread(self) -> Iterator[str]:
        """The configuration files that may say something about the kubelet, but cannot be read: path and reason."""
        for file in dict.fromkeys(texts.flag(words, "config") for words in (self.words, self.kubelet_words)):
            if file and self.host.read(file) is None:
                yield f"{file}: there is no such file"
        folder = texts.flag(self.kubelet_words, "config-dir")
        if folder and not self.host.path(folder).is_dir():
            yield f"{folder}: there is no such directory"
        for path in (*self.configs, *self.embedded_configs):
            try:
                texts.mapping(self.host.read(path) or "")
            except CannotEdit as error:
                yield f"{path}: {error}"


def find_kubelet(host: Host, kind: NodeKind | None) -> Kubelet:
    """Return the kubelet whose unit is active, else enabled, else any; *kind*: None: found out.

    Raises:
        CriproxyError: no kubelet was found.
    """
    wanted = NodeKind.PLAIN if kind is NodeKind.KUBEADM else kind
    names = [unit for unit, each in _UNITS.items() if wanted in (None, each)]
    units = [unit for unit in names if unit_text(host, unit) is not None]
    if not units:
        raise CriproxyError(f"there is no kubelet on this node: none of the units {', '.join(names)} exists")
    asked = ((word, unit) for word in ("is-active", "is-enabled") for unit in units if len(units) > 1)
    unit = next((unit for word, unit in asked if host.run(["systemctl", word, unit])[0] == 0), units[0])
    return _kubelet(host, unit, kind)


def read_kubelet(host: Host) -> Kubelet:
    """Return the kubelet whose unit starts at boot, else any, without running a program.

    Without a unit, as on a copy of a machine's files, the kubelet has the files that kubeadm and nodeadm give it.
    """
    units = [unit for unit in _UNITS if unit_text(host, unit) is not None]
    wants = [f"{folder}/multi-user.target.wants" for folder in paths.UNIT_FOLDERS]
    wanted = [unit for unit in units if any(host.exists(f"{folder}/{unit}") for folder in wants)]
    return _kubelet(host, [*wanted, *units][0], None) if units else Kubelet(host, NodeKind.PLAIN, "")


def unit_text(host: Host, unit: str) -> str | None:
    """Return the text of a unit file, from the first directory that has it."""
    found = (host.read(f"{folder}/{unit}") for folder in paths.UNIT_FOLDERS)
    return next((text for text in found if text is not None), None)


def _kubelet(host: Host, unit: str, kind: NodeKind | None) -> Kubelet:
    kubelet = Kubelet(host, kind or _UNITS[unit], unit)
    is_plain = kubelet.kind is NodeKind.PLAIN
    if is_plain and (host.exists(_OF_KUBEADM) or _OF_KUBEADM in kubelet.service.environment_files):
        return replace(kubelet, kind=NodeKind.KUBEADM)
    return kubelet


def _listed(value: Any) -> list[str]:  # noqa: ANN401 - YAML
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]
