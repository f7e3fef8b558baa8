"""Pure: the steps that remove a criproxy of which no journal tells how it was installed."""

from collections.abc import Iterator

from criproxy.install import edits, endpoint, paths
from criproxy.install.facts import Facts
from criproxy.install.plan import RELOAD, RESTART_KUBELET, SYSTEMCTL
from criproxy.install.steps import Remove, Run, Step, Write
from criproxy.install.unit_file import environment_of, flag

_WHY = "the kubelet calls the runtime"


def removal(facts: Facts) -> Iterator[Step]:
    """Yield the steps after the release of all containers; none if criproxy does not run and no kubelet calls it.

    Raises:
        CannotEdit: something has to be done by hand.
    """
    kubelet = [*_kubelet_files(facts)]
    if not kubelet and paths.is_ours(facts.endpoint):
        raise edits.CannotEdit(f"the endpoint {facts.endpoint} of {facts.kubelet} has to be removed by hand")
    units = [] if facts.is_package else [*_units(facts)]
    if not (kubelet or units or facts.active):
        return
    yield from kubelet
    yield Run("let systemd read the kubelet's unit", do=(RELOAD,))
    yield Run(RESTART_KUBELET, do=((SYSTEMCTL, "restart", facts.kubelet),))
    if facts.unit_texts:
        yield Run("stop criproxy", do=((SYSTEMCTL, "disable", "--now", *paths.ACTIVE),))
    yield from units
    if units:
        yield Run("let systemd forget the units", do=(RELOAD,))


def _kubelet_files(facts: Facts) -> Iterator[Step]:
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
            yield Write(path, edits.with_key(facts.texts[path], edits.ENDPOINT_KEY, runtime), _WHY)


def _embedded(facts: Facts, path: str) -> Iterator[Step]:
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
