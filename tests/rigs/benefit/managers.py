"""Puts a manager between the kubelet and the runtime: criproxy with a policy, nothing, or a peer that runs already."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.bench.processes import Serve, running
from tests.rigs.bench.ways import DIRECT, Way
from tests.rigs.benefit.cases import Manager


@contextmanager
def managed(manager: Manager, runtime: Path, peers: dict[str, Path]) -> Iterator[Way]:
    """The way to the runtime under *manager* while the block lasts; criproxy starts without anything remembered."""
    if peer := peers.get(manager.name):
        with Way(manager.name, peer) as way:
            yield way
    elif not manager.policy:
        with Way(DIRECT, runtime) as way:
            yield way
    else:
        with (
            tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder,
            _criproxy(manager, runtime, folder) as way,
        ):
            yield way


@contextmanager
def _criproxy(manager: Manager, runtime: Path, folder: str) -> Iterator[Way]:
    directory = Path(folder)
    policy = directory / "policy.yaml"
    policy.write_text(manager.policy)
    serve = Serve(runtime, directory, policy)
    with running(serve.command(), directory / "log") as process, Way(manager.name, serve.listen, process.pid) as way:
        yield way
