"""Pure: which files have to say what, so that the kubelet calls criproxy's socket."""

from collections.abc import Iterator

from criproxy.install.planning import edits, paths
from criproxy.install.planning.facts import Facts
from criproxy.install.planning.steps import Write
from criproxy.install.planning.unit_file import environment_of, flag, flags

_EXTRA = "KUBELET_EXTRA_ARGS"
_WHY = "the kubelet calls criproxy"
_COMMAND = """# Written by `criproxy install`: the command line of the other files, with the endpoint of criproxy.
[Service]
ExecStart=
ExecStart={}
"""
_EMBEDDED = """# The kubelet calls criproxy, in addition to what other files set. Written by `criproxy install`.
kubelet-arg+:
  - container-runtime-endpoint=unix://{}
"""


def writes(facts: Facts, socket: str) -> list[Write]:
    """Return the changes of files after which the kubelet calls *socket* when it starts; none if it does already.

    Raises:
        CannotEdit: this has to be done by hand.
    """
    if paths.socket_of(facts.endpoint) == socket:
        return []
    if facts.kind.embeds_kubelet:
        return [_embedded(facts, socket)]
    return [next(_by_file(facts, f"unix://{socket}"))]


def drop_in(facts: Facts) -> list[Write]:
    """Return the drop-in with which a kubelet that is a service of its own starts after criproxy's socket."""
    path = drop_in_path(facts, paths.KUBELET_DROP_IN)
    if facts.kind.embeds_kubelet or facts.texts.get(path) == paths.KUBELET_DROP_IN_TEXT:
        return []
    return [Write(path, paths.KUBELET_DROP_IN_TEXT, "the kubelet starts after criproxy")]


def drop_in_path(facts: Facts, name: str) -> str:
    """Return the path of a drop-in of the kubelet's unit."""
    return f"{paths.UNIT_FOLDER}/{facts.kubelet}.d/{name}"


def embedded_file(facts: Facts) -> str:
    """Return the file with our setting for k3s or RKE2, which reads this directory after its main file."""
    return f"{facts.configs[0]}.d/99-criproxy.yaml"


def _embedded(facts: Facts, socket: str) -> Write:
    unit = facts.kubelet
    if flags(facts.words, "kubelet-arg"):
        raise edits.CannotEdit(
            f"{unit} has --kubelet-arg on its command line, which replaces kubelet-arg in all files: move the "
            f"arguments to {facts.configs[0]}"
        )
    path = embedded_file(facts)
    later = [other for other in facts.configs if other > path and "kubelet-arg" in facts.data(other)]
    if later:
        raise edits.CannotEdit(f"{later[0]} is read after {path} and replaces kubelet-arg: write kubelet-arg+ in it")
    return Write(path, _EMBEDDED.format(socket), _WHY)


def _by_file(facts: Facts, endpoint: str) -> Iterator[Write]:
    """Yield the possible changes, the best first."""
    words = facts.service.exec_start.split()
    if words and words[-1] in (f"${_EXTRA}", f"${{{_EXTRA}}}") and (files := _files_of_user(facts)):
        setting = [path for path in files if _EXTRA in environment_of(facts.texts.get(path, ""))]
        path = (setting or files)[-1]
        yield _in_environment(facts, path, _EXTRA, endpoint)
    for path in facts.service.environment_files:
        for name, value in environment_of(facts.texts.get(path, "")).items():
            if flag(value.split(), edits.FLAG) is not None:
                yield _in_environment(facts, path, name, endpoint)
    if flag(facts.words, edits.FLAG) is None:
        yield from _in_configuration(facts, endpoint)
    yield _in_command(facts, endpoint)


def _files_of_user(facts: Facts) -> list[str]:
    """Return the environment files that are for users; others, such as that of kubeadm, are written by programs."""
    return [path for path in facts.service.environment_files if path.startswith("/etc/")]


def _in_environment(facts: Facts, path: str, variable: str, endpoint: str) -> Write:
    try:
        text = edits.with_flag(facts.texts.get(path, ""), variable, edits.FLAG, endpoint)
    except edits.CannotEdit as error:
        raise edits.CannotEdit(f"{path}: {error}: add --{edits.FLAG}={endpoint} by hand") from error
    return Write(path, text, _WHY, f"{variable} --{edits.FLAG}")


def _in_configuration(facts: Facts, endpoint: str) -> Iterator[Write]:
    """Yield a change of the last configuration file that has the key; kubelets before 1.27 do not know it."""
    for path in reversed(facts.configs):
        if edits.ENDPOINT_KEY in facts.data(path):
            try:
                text = edits.with_key(facts.texts[path], edits.ENDPOINT_KEY, endpoint)
            except edits.CannotEdit:
                return  # such as JSON; the flag overrides it
            yield Write(path, text, _WHY, edits.ENDPOINT_KEY)
            return


def _in_command(facts: Facts, endpoint: str) -> Write:
    if not facts.service.exec_start:
        raise edits.CannotEdit(f"{facts.kubelet} has no ExecStart: name the kind of node with --node-kind")
    command = edits.command_with_flag(facts.service.exec_start, edits.FLAG, endpoint)
    return Write(drop_in_path(facts, paths.COMMAND_DROP_IN), _COMMAND.format(command), _WHY)
