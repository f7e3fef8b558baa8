"""Releasing all containers while no daemon runs: a controller of its own, on the state directory, without any proxy."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from criproxy.cri.runtime import RuntimeClient
from criproxy.errors import StoreError
from criproxy.host.machine import discover
from criproxy.host.patience import Hangs, Patience
from criproxy.model.node import LastConfiguration
from criproxy.node.configuration.policy_switch import reason_now
from criproxy.node.controller import Controller
from criproxy.node.settings import Settings
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.process.logger import Log
from criproxy.store.configurations import is_new
from criproxy.store.database import NAME
from criproxy.store.store import Store

OPEN_S = 5.0
"""How long the disk of the state directory may take to answer."""
NOT_PUT_BACK = (
    "no criproxy runs that could tell criproxy controls: start it, or run "
    "'systemctl stop criproxy-controls' and 'criproxy controls --put-back'"
)
"""Why what classes have set outside of CRI stays."""
_RUN = "/run"
"""A file system in memory, on every node."""


async def release(
    state_dir: Path, runtime_endpoint: str, host_root: Path, log: Log, *, undo: bool = False, may_create: bool = False
) -> dict[str, Any]:
    """Do what the daemon would; returns the same answer. Undone, all containers are placed as soon as a daemon starts.

    Where the state directory cannot be used, such as on a full disk or one that hangs, all containers that the runtime
    knows are released all the same, and the answer says why that is not remembered.

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
    try:
        store = await _opened(state_dir, undo=undo, may_create=may_create)
    except Hangs as error:
        if undo:
            raise StoreError(str(error)) from error
        unknown = str(error)
    else:
        if store is not None:
            return await _released(store, runtime_endpoint, host_root, log, undo=undo)
        unknown = f"there is no state database {state_dir / NAME}: criproxy has not run with this state directory"
        unknown = f"{unknown}; name the daemon's with --state-dir"
        if undo:
            raise StoreError(unknown)
    in_memory = _RUN if os.access(_RUN, os.W_OK) else None  # the disk that hangs may be that of other directories, too
    with TemporaryDirectory(prefix="criproxy-", dir=in_memory) as folder:
        store = Store(Path(folder), may_fail=True)
        answer = await _released(store, runtime_endpoint, host_root, log, undo=False)
    return answer | {"not_remembered": unknown}


async def _opened(state_dir: Path, *, undo: bool, may_create: bool) -> Store | None:
    """Open the state directory; None if it may not be made and there is none.

    Raises:
        Hangs: its disk does not answer.
        StoreError: a daemon has it, or with *undo*, it cannot be used.
    """

    def opened() -> Store | None:
        if not may_create and is_new(state_dir):
            return None
        return Store(state_dir, may_fail=not undo, for_release=True)

    return await Patience().wait(f"the disk of the state directory {state_dir}", opened, OPEN_S)


async def _released(store: Store, runtime_endpoint: str, host_root: Path, log: Log, *, undo: bool) -> dict[str, Any]:
    with closing(store):
        topology = discover(host_root)
        # No file is read, so the release is one of the node's configuration; that the last one was undone is over.
        before = LastConfiguration.parse(store.load(topology).configuration)
        settings = Settings(host_root=host_root, configuration=before.digest_of_release)
        policy, runtime = NonePolicy(Options()), RuntimeClient(runtime_endpoint, reads_specs=True)
        controller = Controller(settings, topology, policy, store, runtime, log)
        try:
            switch = controller.policy_switch
            answer = await (switch.undo_later() if undo else switch.release(reason_now()))
            left = not undo and await asyncio.to_thread(controller.controls.mark.exists)
            return answer | {"not_put_back": NOT_PUT_BACK if left else ""}
        finally:
            await controller.stop()
