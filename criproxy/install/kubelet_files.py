"""The files that say where the kubelet calls: what has to change in them so that it calls criproxy, or the runtime."""

from collections.abc import Container, Iterator
from dataclasses import replace

from criproxy.install import paths, texts
from criproxy.install.kubelet import Kubelet
from criproxy.install.steps import KUBELET, File
from criproxy.install.texts import ENDPOINT_KEY, FLAG, CannotEdit

_EXTRA = "KUBELET_EXTRA_ARGS"
_CALLS_US, _CALLS_RUNTIME = "the kubelet calls criproxy", "the kubelet calls the runtime"
_COMMAND = """# Written by `criproxy install`: the command line of the other files, with the endpoint of criproxy.
[Service]
ExecStart=
ExecStart={}
"""
_EMBEDDED = """# The kubelet calls criproxy, in addition to what other files set. Written by `criproxy install`.
kubelet-arg+:
  - container-runtime-endpoint=unix://{}
"""
_HEADER = frozenset(("apiVersion", "kind"))
"""What every configuration file of the kubelet has."""


def to_criproxy(kubelet: Kubelet, socket: str) -> list[File]:
    """Return the changes after which the kubelet calls *socket* when it starts; none if it does already.

    Raises:
        CannotEdit: this has to be done by hand.
    """
    if paths.socket_of(kubelet.endpoint) == socket:
        return []
    return [_in_k3s(kubelet, socket) if kubelet.is_embedded else next(_by_file(kubelet, f"unix://{socket}"))]


def drop_in(kubelet: Kubelet) -> list[File]:
    """Return the drop-in with which a kubelet that is a service of its own starts after criproxy's socket."""
    path = drop_in_path(kubelet, paths.KUBELET_DROP_IN)
    if kubelet.is_embedded or kubelet.host.read(path) == paths.KUBELET_DROP_IN_TEXT:
        return []
    return [File(path, paths.KUBELET_DROP_IN_TEXT, "the kubelet starts after criproxy", KUBELET)]


def drop_in_path(kubelet: Kubelet, name: str) -> str:
    """Return the path of a drop-in of the kubelet's unit."""
    return f"{paths.UNIT_FOLDER}/{kubelet.unit}.d/{name}"


def _file_in_k3s(kubelet: Kubelet) -> str:
    """Return the file with our setting for k3s or RKE2, which reads this directory after its main file."""
    return f"{kubelet.configs[0]}.d/99-criproxy.yaml"


def _in_k3s(kubelet: Kubelet, socket: str) -> File:
    path, main = _file_in_k3s(kubelet), kubelet.configs[0]
    if texts.flags(kubelet.words, "kubelet-arg"):
        raise CannotEdit(
            f"{kubelet.unit} has --kubelet-arg on its command line, which replaces kubelet-arg in all files: move the "
            f"arguments to {main}"
        )
    if later := [other for other in kubelet.configs if other > path and "kubelet-arg" in kubelet.data(other)]:
        raise CannotEdit(f"{later[0]} is read after {path} and replaces kubelet-arg: write kubelet-arg+ in it")
    return File(path, _EMBEDDED.format(socket), _CALLS_US, KUBELET)


def _by_file(kubelet: Kubelet, endpoint: str) -> Iterator[File]:
    """Yield the possible changes, the best first."""
    environment_files = kubelet.service.environment_files
    of_users = [path for path in environment_files if path.startswith("/etc/")]  # programs such as kubeadm write others
    if of_users and kubelet.service.exec_start.split()[-1:] in ([f"${_EXTRA}"], [f"${{{_EXTRA}}}"]):
        setting = [path for path in of_users if _EXTRA in kubelet.environment(path)]
        yield _in_environment(kubelet, (setting or of_users)[-1], _EXTRA, endpoint)
    for path in environment_files:
        for name, value in kubelet.environment(path).items():
            if texts.flag(value.split(), FLAG) is not None:
                yield _in_environment(kubelet, path, name, endpoint)
    having = [path for path in kubelet.configs if ENDPOINT_KEY in kubelet.data(path)]
    if having and texts.flag(kubelet.words, FLAG) is None:  # kubelets before 1.27 do not know the key
        yield from _in_configuration(kubelet, having[-1], endpoint)
    yield _in_command(kubelet, endpoint)


def _in_environment(kubelet: Kubelet, path: str, variable: str, endpoint: str) -> File:
    try:
        text = texts.with_flag(kubelet.host.read(path) or "", variable, FLAG, endpoint)
    except CannotEdit as error:
        raise CannotEdit(f"{path}: {error}: add --{FLAG}={endpoint} by hand") from error
    return File(path, text, _CALLS_US, KUBELET, f"{variable} --{FLAG}")


def _in_configuration(kubelet: Kubelet, path: str, endpoint: str) -> Iterator[File]:
    try:
        text = texts.with_key(kubelet.host.read(path) or "", ENDPOINT_KEY, endpoint)
    except CannotEdit:
        return  # such as JSON; the flag overrides it
    yield File(path, text, _CALLS_US, KUBELET, ENDPOINT_KEY)


def _in_command(kubelet: Kubelet, endpoint: str) -> File:
    if not kubelet.service.exec_start:
        raise CannotEdit(f"{kubelet.unit} has no ExecStart: name the kind of node with --node-kind")
    command = texts.command_with_flag(kubelet.service.exec_start, FLAG, endpoint)
    return File(drop_in_path(kubelet, paths.COMMAND_DROP_IN), _COMMAND.format(command), _CALLS_US, KUBELET)


def to_runtime(kubelet: Kubelet, runtime: str, settled: Container[str] = ()) -> list[File]:
    """Return the changes after which the kubelet does not call criproxy, but *runtime*; none of the files *settled*.

    Raises:
        CannotEdit: something has to be done by hand; it names the files that say so.
    """
    changes = [change for change in _to_runtime(kubelet, runtime) if change.path not in settled]
    after = kubelet.with_texts({change.path: change.text for change in changes})
    if paths.is_ours(after.endpoint):
        files = (*after.unit_files, *after.service.environment_files, *after.configs, *after.embedded_configs)
        naming = [path for path in files if paths.socket_of(after.endpoint) in (after.host.read(path) or "")]
        where = ", ".join(naming) or f"the configuration of {kubelet.unit}"
        raise CannotEdit(f"remove the kubelet's endpoint {after.endpoint} from {where} by hand")
    return changes


def _to_runtime(kubelet: Kubelet, runtime: str) -> Iterator[File]:
    for name in (paths.COMMAND_DROP_IN, paths.KUBELET_DROP_IN):
        path = drop_in_path(kubelet, name)
        if kubelet.host.read(path) is not None:
            yield File(path, None, "the kubelet no longer needs criproxy", KUBELET)
    for path in kubelet.service.environment_files:
        before = after = kubelet.host.read(path) or ""
        setting = ""
        for variable, value in texts.environment_of(before).items():
            if paths.is_ours(texts.flag(value.split(), FLAG) or ""):
                after, setting = texts.with_flag(after, variable, FLAG, None), f"{variable} --{FLAG}"
        if after != before:
            yield File(path, after, _CALLS_RUNTIME, KUBELET, setting)
    for path in (*kubelet.configs, *kubelet.embedded_configs):
        if kubelet.is_embedded and path in kubelet.configs:
            yield from _without_lines(kubelet, path)
        elif paths.is_ours(str(kubelet.data(path).get(ENDPOINT_KEY, ""))):
            yield _without_key(kubelet, path, runtime)


def _without_key(kubelet: Kubelet, path: str, runtime: str) -> File:
    """Return the change of a configuration file of the kubelet that names our socket.

    In k3s or RKE2, a file with our name is removed if nothing else is in it; but not the last one of a directory, which
    would go with it, and which the kubelet may have been told to read.
    """
    text, value = kubelet.host.read(path) or "", None if kubelet.is_embedded else f"unix://{runtime}"
    try:
        change = File(path, texts.with_key(text, ENDPOINT_KEY, value), _CALLS_RUNTIME, KUBELET, ENDPOINT_KEY)
    except CannotEdit as error:
        raise CannotEdit(f"{path}: {error}: remove the kubelet's endpoint from it by hand") from error
    folder, _, name = path.rpartition("/")
    has_others = any(other != path and other.startswith(f"{folder}/") for other in kubelet.embedded_configs)
    if name == "99-criproxy.conf" and has_others and texts.mapping(change.text or "").keys() <= _HEADER:
        return replace(change, text=None)
    return change


def _without_lines(kubelet: Kubelet, path: str) -> Iterator[File]:
    """Yield the change of a file of k3s or RKE2, if it has our socket among the kubelet's arguments."""
    lines = (kubelet.host.read(path) or "").splitlines(keepends=True)
    ours = [line for line in lines if "/run/criproxy/" in line and FLAG in line]
    rest = "".join(line for line in lines if line not in ours)
    if path == _file_in_k3s(kubelet):
        yield from [File(path, None, _CALLS_RUNTIME, KUBELET)] * bool(ours)
    elif ours:
        if any(value is None for value in texts.mapping(rest).values()):
            raise CannotEdit(f"{path}: remove this line by hand, and its key if nothing is left: {ours[0].strip()}")
        yield File(path, rest, _CALLS_RUNTIME, KUBELET)
