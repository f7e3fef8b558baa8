"""Pure: the steps that remove a criproxy of which no journal tells how it was installed."""

from collections.abc import Iterator, Mapping, Sequence

from criproxy.install.planning import edits, endpoint, paths
from criproxy.install.planning.facts import Facts
from criproxy.install.planning.plan import RELOAD, RESTART_KUBELET, SYSTEMCTL
from criproxy.install.planning.steps import Remove, Run, Step, Write
from criproxy.install.planning.unit_file import environment_of, flag

STOP = (SYSTEMCTL, "disable", "--now", *paths.ACTIVE)
_WHY = "the kubelet calls the runtime"
_HEADER = frozenset(("apiVersion", "kind"))
"""What every configuration file of the kubelet has."""


def removal(facts: Facts) -> Iterator[Step]:
    """Yield the steps after the release of all containers; none if criproxy does not run and no kubelet calls it.

    Raises:
        CannotEdit: something has to be done by hand.
    """
    kubelet = [*_kubelet_files(facts)]
    _check_enough(facts, kubelet)
    units = [] if facts.is_package else [*_units(facts)]
    if not (kubelet or units or facts.active):
        return
    yield from kubelet
    yield Run("let systemd read the kubelet's unit", do=(RELOAD,))
    yield Run(RESTART_KUBELET, do=((SYSTEMCTL, "restart", facts.kubelet),))
    if facts.unit_texts:
        yield Run("stop criproxy", do=(STOP,))
    yield from units
    if units:
        yield Run("let systemd forget the units", do=(RELOAD,))


def left(facts: Facts, texts: Mapping[str, str | None]) -> list[Write | Remove]:
    """Return the changes that are needed so that the kubelet does not call criproxy, if it still would with *texts*.

    Args:
        facts: the node now.
        texts: what files will have before that; None: the file will not exist.

    Raises:
        CannotEdit: something has to be done by hand.
    """
    after = facts.with_texts(texts)
    if not paths.is_ours(after.endpoint):
        return []
    steps = [step for step in _kubelet_files(after) if step.path not in texts]
    _check_enough(after, steps)
    return steps


def _check_enough(facts: Facts, steps: Sequence[Write | Remove]) -> None:
    """Raise CannotEdit if the kubelet still calls criproxy after *steps*; it names the files that say so."""
    after = facts.with_texts({step.path: step.text if isinstance(step, Write) else None for step in steps})
    if paths.is_ours(after.endpoint):
        files = (*after.unit_files, *after.service.environment_files, *after.configs, *after.embedded_configs)
        naming = [path for path in files if paths.socket_of(after.endpoint) in after.texts.get(path, "")]
        where = ", ".join(naming) or f"the configuration of {facts.kubelet}"
        raise edits.CannotEdit(f"remove the kubelet's endpoint {after.endpoint} from {where} by hand")


def _kubelet_files(facts: Facts) -> Iterator[Write | Remove]:
    for name in (paths.COMMAND_DROP_IN, paths.KUBELET_DROP_IN):
        if (path := endpoint.drop_in_path(facts, name)) in facts.texts:
            yield Remove(path, "the kubelet no longer needs criproxy")
    for path in facts.service.environment_files:
        text = facts.texts.get(path, "")
        for variable, value in environment_of(text).items():
            if paths.is_ours(flag(value.split(), edits.FLAG) or ""):
                yield Write(path, edits.with_flag(text, variable, edits.FLAG, None), _WHY)
    for path in facts.configs:
        if facts.kind.embeds_kubelet:
            yield from _embedded(facts, path)
        elif paths.is_ours(str(facts.data(path).get(edits.ENDPOINT_KEY, ""))):
            runtime = f"unix://{facts.configured_runtime}"
            yield Write(path, _with_endpoint(facts, path, runtime), _WHY)
    for path in facts.embedded_configs:
        if paths.is_ours(str(facts.data(path).get(edits.ENDPOINT_KEY, ""))):
            yield _of_embedded_kubelet(facts, path)


def _of_embedded_kubelet(facts: Facts, path: str) -> Write | Remove:
    """Return the change of a configuration file of the kubelet in k3s or RKE2 that names our socket.

    A file with our name is removed if nothing else is in it; but not the last one of a directory, which would go with
    it, and which the kubelet may have been told to read.
    """
    text = _with_endpoint(facts, path, None)
    folder, _, name = path.rpartition("/")
    has_others = any(other != path and other.startswith(f"{folder}/") for other in facts.embedded_configs)
    if name == "99-criproxy.conf" and has_others and edits.mapping(text).keys() <= _HEADER:
        return Remove(path, _WHY)
    return Write(path, text, _WHY)


def _with_endpoint(facts: Facts, path: str, value: str | None) -> str:
    try:
        return edits.with_key(facts.texts[path], edits.ENDPOINT_KEY, value)
    except edits.CannotEdit as error:
        raise edits.CannotEdit(f"{path}: {error}: remove the kubelet's endpoint from it by hand") from error


def _embedded(facts: Facts, path: str) -> Iterator[Write | Remove]:
    """Yield the change of a file of k3s or RKE2, if it has our socket among the kubelet's arguments."""
    text = facts.texts.get(path, "")
    ours = [line for line in text.splitlines(keepends=True) if "/run/criproxy/" in line and edits.FLAG in line]
    if not ours:
        return
    if path == endpoint.embedded_file(facts):
        yield Remove(path, _WHY)
        return
    rest = "".join(line for line in text.splitlines(keepends=True) if line not in ours)
    if any(value is None for value in edits.mapping(rest).values()):
        raise edits.CannotEdit(f"{path}: remove this line by hand, and its key if nothing is left: {ours[0].strip()}")
    yield Write(path, rest, _WHY)


def _units(facts: Facts) -> Iterator[Step]:
    for path in (paths.CRIO_DROP_IN, *(f"{paths.UNIT_FOLDER}/{name}" for name in sorted(facts.unit_texts))):
        if path in facts.texts:
            yield Remove(path, "a unit of criproxy")
