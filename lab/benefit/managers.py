"""Puts a manager between the kubelet and the runtime: criproxy with a policy, nothing, or a peer that runs already."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.bench.processes import Serve, StartError, running
from lab.bench.ways import DIRECT, Way
from lab.benefit.cases import Manager

_PEERS_S = 300.0


@contextmanager
def managed(manager: Manager, runtime: Path, peers: Mapping[str, Path]) -> Iterator[Way]:
    """The way to the runtime under *manager* while the block lasts; criproxy starts without anything remembered."""
    if peer := peers.get(manager.name):
        with Way(manager.name, peer) as way:
            yield way
    elif not manager.policy:
        with Way(DIRECT, runtime) as way:
            yield way
    else:
        with _criproxy(manager, runtime) as way:
            yield way


@contextmanager
def _criproxy(manager: Manager, runtime: Path) -> Iterator[Way]:
    with tempfile.TemporaryDirectory(prefix="criproxy-benefit-") as folder:
        directory = Path(folder)
        policy = directory / "policy.yaml"
        policy.write_text(manager.policy)
        serve = Serve(runtime, directory, policy)
        command, log = serve.command(), directory / "log"
        with running(command, log) as process, Way(manager.name, serve.listen, process.pid) as way:
            yield way


def wait_for_peers(runtime: Path, peers: Mapping[str, Path], link: Path, say: Callable[[str], None]) -> None:
    """Name the runtime's socket *link*, and return when all peers listen.

    Raises:
        StartError: a peer does not listen within five minutes.
    """
    if not peers:
        return
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(runtime)
    end = time.monotonic() + _PEERS_S
    for name, path in peers.items():
        say(f"waiting for {name}: start it now in front of {link}, listening at {path}")
        while not path.is_socket():
            if time.monotonic() > end:
                raise StartError(f"{name} does not listen at {path}")
            time.sleep(0.1)  # it is none of our processes, and tells us nothing
