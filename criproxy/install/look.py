"""Reads what a node has: who starts its kubelet and how, which runtime runs, who else places containers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.install.host import Host
from criproxy.install.planning import paths
from criproxy.install.planning.facts import Brought, Facts, NodeKind
from criproxy.install.planning.unit_file import Service, flag, service_of

_UNITS = {
    NodeKind.K3S: ("k3s.service", "k3s-agent.service"),
    NodeKind.RKE2: ("rke2-server.service", "rke2-agent.service"),
    NodeKind.PLAIN: ("kubelet.service",),
}
_DEFAULT_CONFIGS = ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d")
_OF_KUBEADM = "/var/lib/kubelet/kubeadm-flags.env"
_RIVAL = re.compile(
    r"cri-resmgr|nri-resource-policy-.*|nri-resmgr-.*|koordlet|koord-runtime-proxy|katalyst-agent|dracpu"
    r"|cpusetter|cpu-pooler"  # the last two are CPU-Pooler's
)
_RIVAL_PLUGIN = re.compile(r"\d\d-.*(topology-aware|balloons|resource-policy).*")
_RIVAL_SOCKETS = {
    "CRI Resource Manager": "/run/cri-resmgr/cri-resmgr.sock",
    "Koordinator's runtime proxy": "/run/koord-runtimeproxy/runtimeproxy.sock",
}


def look(host: Host, kind: NodeKind | None, brought: Brought, runtime: str = "") -> Facts:
    """Return what the node has.

    Args:
        host: the node.
        kind: None: found out.
        brought: what this program has with it.
        runtime: the runtime's socket if the user has named it.

    Raises:
        CriproxyError: no kubelet was found.
    """
    facts = _of_unit(host, *_kubelet(host, kind))
    own = {name: text for name in (*paths.UNITS, *paths.OPTIONAL_UNITS) if (text := _unit_text(host, name)) is not None}
    others = (paths.POLICY, paths.DEFAULTS, paths.PAGE_TOKEN, paths.CRIO_DROP_IN, "/etc/containerd/config.toml")
    texts = dict(_texts(host, [*others, *(f"{paths.UNIT_FOLDER}/{name}" for name in own)]))
    facts = replace(facts, texts={**facts.texts, **texts})
    sockets = {runtime, *paths.RUNTIMES, facts.configured_runtime, paths.socket_of(facts.endpoint)} - {""}
    return replace(
        facts,
        unit_texts=own,
        linked=frozenset(path for path in facts.texts if host.has_other_names(path)),
        sockets=frozenset(path for path in sockets if host.path(path).is_socket()),
        active=_active(host) if own else frozenset(),
        rivals=tuple(_rivals(host, facts.endpoint)),
        program=_version(host, paths.HOME) if host.exists(paths.PROGRAM) else "",
        is_package=host.exists(paths.PACKAGE_LIST),
        has_state=host.exists(f"{paths.STATE_DIR}/criproxy.db"),
        brought=brought,
    )


def look_at_kubelet(host: Host) -> Facts:
    """Return what files say about the kubelet of a node, without running a program.

    Without a unit, as on a copy of a machine's files, the kubelet has the files that kubeadm and nodeadm give it.

    Raises:
        OSError: a file cannot be read.
    """
    found = [candidate for candidate in _candidates(host, None) if _is_wanted(host, candidate[1])]
    if candidates := found or _candidates(host, None):
        return _of_unit(host, *candidates[0])
    configs = [path for path in _kubelet_configs(host, *_DEFAULT_CONFIGS) if host.exists(path)]
    return Facts(kind=NodeKind.PLAIN, kubelet="", configs=configs, texts=dict(_texts(host, configs)))


def _of_unit(host: Host, kind: NodeKind, unit: str) -> Facts:
    """Return what the files of a kubelet's unit say, and those that they name."""
    names = _unit_files(host, unit)
    unit_texts = {name: host.read(name) or "" for name in names}
    service = service_of(unit, unit_texts.values())
    texts = {**unit_texts, **dict(_texts(host, service.environment_files))}
    if kind is NodeKind.PLAIN and _is_kubeadm(host, service):
        kind = NodeKind.KUBEADM
    configs = _configs(host, kind, service, texts)
    texts |= dict(_texts(host, configs))
    facts = Facts(kind=kind, kubelet=unit, service=service, unit_files=names, texts=texts, configs=configs)
    facts = _with_embedded(host, facts)
    return replace(facts, absent=tuple(_absent(host, facts)))


def _candidates(host: Host, kind: NodeKind | None) -> list[tuple[NodeKind, str]]:
    """Return the units that may run the kubelet, with their kinds; *kind*: only those of this kind."""
    return [
        (each, unit)
        for each, units in _UNITS.items()
        for unit in units
        if kind in (None, each) and _unit_text(host, unit) is not None
    ]


def _is_wanted(host: Host, unit: str) -> bool:
    """Whether the unit starts at boot."""
    return any(host.exists(f"{folder}/multi-user.target.wants/{unit}") for folder in paths.UNIT_FOLDERS)


def _kubelet(host: Host, kind: NodeKind | None) -> tuple[NodeKind, str]:
    """Return the kind of node, and the unit of its kubelet: the active one, else the enabled one, else any."""
    wanted = NodeKind.PLAIN if kind is NodeKind.KUBEADM else kind
    candidates = _candidates(host, wanted)
    if not candidates:
        units = ", ".join(unit for each, units in _UNITS.items() if wanted in (None, each) for unit in units)
        raise CriproxyError(f"there is no kubelet on this node: none of the units {units} exists")
    for word in ("is-active", "is-enabled"):
        for each, unit in candidates:
            if len(candidates) == 1 or host.run(["systemctl", word, unit])[0] == 0:
                return (kind or each), unit
    return (kind or candidates[0][0]), candidates[0][1]


def _unit_text(host: Host, unit: str) -> str | None:
    """Return the text of a unit file, from the first directory that has it."""
    texts = (host.read(f"{folder}/{unit}") for folder in paths.UNIT_FOLDERS)
    return next((text for text in texts if text is not None), None)


def _unit_files(host: Host, unit: str) -> list[str]:
    """Return the paths of a unit and its drop-ins in systemd's order; a drop-in hides those of the same name."""
    main = next(path for folder in paths.UNIT_FOLDERS if host.read(path := f"{folder}/{unit}") is not None)
    drop_ins = dict[str, str]()
    for folder in paths.UNIT_FOLDERS:
        for path in host.entries(f"{folder}/{unit}.d"):
            if path.endswith(".conf"):
                drop_ins.setdefault(path.rpartition("/")[2], path)
    return [main, *(drop_ins[name] for name in sorted(drop_ins))]


def _is_kubeadm(host: Host, service: Service) -> bool:
    return host.exists(_OF_KUBEADM) or _OF_KUBEADM in service.environment_files


def _configs(host: Host, kind: NodeKind, service: Service, texts: Mapping[str, str]) -> list[str]:
    """Return the kubelet's or k3s's configuration files, in the order in which they are read."""
    words = service.words(texts)
    if kind.embeds_kubelet:
        variables = service.variables(texts)
        named = flag(words, "config") or variables.get(f"{kind.upper()}_CONFIG_FILE")
        main = named or f"/etc/rancher/{kind}/config.yaml"
        return [main, *(path for path in host.entries(f"{main}.d") if path.endswith((".yaml", ".yml")))]
    return _kubelet_configs(host, flag(words, "config"), flag(words, "config-dir"))


def _kubelet_configs(host: Host, file: str | None, folder: str | None) -> list[str]:
    """Return the configuration files of a kubelet, in the order in which it reads them."""
    dropped = [path for path in host.entries(folder) if path.endswith(".conf")] if folder else []
    return [*filter(None, [file]), *dropped]


def _with_embedded(host: Host, facts: Facts) -> Facts:
    """Return *facts* with the configuration files of a kubelet within k3s or RKE2: its own, and those it is told."""
    if not facts.kind.embeds_kubelet:
        return facts
    kind, words = facts.kind, facts.kubelet_words
    data = facts.own_value("data-dir") or facts.service.variables(facts.texts).get(f"{kind.upper()}_DATA_DIR")
    folder = f"{data or f'/var/lib/rancher/{kind}'}/agent/etc/kubelet.conf.d"
    told = _kubelet_configs(host, flag(words, "config"), flag(words, "config-dir"))
    found = list(dict.fromkeys((*told, *_kubelet_configs(host, None, folder))))
    return replace(facts, texts={**facts.texts, **dict(_texts(host, found))}, embedded_configs=found)


def _absent(host: Host, facts: Facts) -> Iterator[str]:
    """Yield what command lines tell the kubelet, k3s or RKE2 to read, but does not exist."""
    files = (flag(words, "config") for words in (facts.words, facts.kubelet_words))
    for file in dict.fromkeys(filter(None, files)):
        if file not in facts.texts:
            yield f"{file}: there is no such file"
    folder = flag(facts.kubelet_words, "config-dir")
    if folder and not host.path(folder).is_dir():
        yield f"{folder}: there is no such directory"


def _texts(host: Host, names: list[str] | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        if (text := host.read(name)) is not None:
            yield name, text


def _active(host: Host) -> frozenset[str]:
    """Return those of criproxy's units that are enabled and active."""
    words = ("is-enabled", "is-active")
    return frozenset(
        unit for unit in paths.ACTIVE if all(host.run(["systemctl", word, unit])[0] == 0 for word in words)
    )


def _version(host: Host, home: str) -> str:
    """Return the version of the program in a virtual environment of the node; a word if it has none."""
    for folder in host.entries(f"{home}/lib"):
        text = host.read(f"{folder}/site-packages/criproxy/__init__.py") or ""
        if found := re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE):
            return found[1]
    return "unknown version"


def _rivals(host: Host, endpoint_now: str) -> Iterator[str]:
    """Yield a sentence about each other program that pins containers."""
    remove = "two programs that pin the same containers undo each other's changes; remove it first"
    for name in sorted(set(_programs(host))):
        yield f"{name} runs on this node: {remove}"
    for path in host.entries("/opt/nri/plugins"):
        if _RIVAL_PLUGIN.fullmatch(path.rpartition("/")[2]):
            yield f"the runtime starts the NRI plugin {path}: {remove}"
    for name, socket in _RIVAL_SOCKETS.items():
        if host.path(socket).is_socket() or Path(socket).parent.name in endpoint_now:
            yield f"{name} has the socket {socket}: {remove}, and undo its change of the kubelet's endpoint"


def _programs(host: Host) -> Iterator[str]:
    """Yield the names of running programs that place containers."""
    for folder in host.entries("/proc"):
        if folder.removeprefix("/proc/").isdecimal():
            try:
                command = host.content(f"{folder}/cmdline") or b""
            except OSError:  # the process has ended
                continue
            name = Path(command.partition(b"\0")[0].decode(errors="replace")).name
            if _RIVAL.fullmatch(name):
                yield name
