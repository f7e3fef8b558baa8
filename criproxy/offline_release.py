"""Releasing all containers while no daemon runs: a controller of its own, on the state directory, without any proxy."""

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from criproxy.control.configuration.policy_switch import reason_now
from criproxy.control.controller import Controller
from criproxy.control.settings import Settings
from criproxy.cri.runtime import RuntimeClient
from criproxy.discovery.machine import discover
from criproxy.errors import StoreError
from criproxy.model.last_configuration import LastConfiguration
from criproxy.observe.logger import Log
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options
from criproxy.store.database import NAME
from criproxy.store.last_good import is_new
from criproxy.store.store import Store


async def release(
    state_dir: Path, runtime_endpoint: str, host_root: Path, log: Log, *, undo: bool = False, may_create: bool = False
) -> dict[str, Any]:
    """Do what the daemon would; returns the same answer. Undone, all containers are placed as soon as a daemon starts.

    Where the state directory cannot be used, such as on a full disk, all containers that the runtime knows are released
    all the same, and the answer says why that is not remembered.

    Args:
        state_dir: the daemon's.
        runtime_endpoint: of the form ``unix:///PATH``.
        host_root: prefix of /sys and the cgroup tree.
        log: a structlog logger.
        undo: end a release.
        may_create: make *state_dir* where criproxy has not run with it. Otherwise all that run are released,
            since the state may be lost, and the answer says that nothing is remembered: no daemon may ever read it.

    Raises:
        StoreError: a daemon has the state directory, or nothing there could be undone, or that could not be stored.
        CriproxyError: the machine cannot be read.
    """
    if may_create or not is_new(state_dir):
        return await _released(state_dir, runtime_endpoint, host_root, log, undo=undo)
    unknown = f"there is no state database {state_dir / NAME}: criproxy has not run with this state directory"
    unknown = f"{unknown}; name the daemon's with --state-dir"
    if undo:
        raise StoreError(unknown)
    with TemporaryDirectory(prefix="criproxy-") as folder:
        answer = await _released(Path(folder), runtime_endpoint, host_root, log, undo=False)
    return answer | {"not_remembered": unknown}


async def _released(state_dir: Path, runtime_endpoint: str, host_root: Path, log: Log, *, undo: bool) -> dict[str, Any]:
    topology = discover(host_root)
    with closing(Store(state_dir, may_fail=not undo)) as store:
        # No file is read, so the release is one of the node's configuration; that the last one was undone is over.
        before = LastConfiguration.parse(store.load(topology).configuration)
        settings = Settings(host_root=host_root, configuration=before.digest_of_release)
        policy = NonePolicy(Options())
        controller = Controller(settings, topology, policy, store, RuntimeClient(runtime_endpoint), log)
        try:
            switch = controller.policy_switch
            return await (switch.undo_later() if undo else switch.release(reason_now()))
        finally:
            await controller.stop()
