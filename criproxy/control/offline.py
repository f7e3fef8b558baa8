"""Letting everybody go while no daemon runs: a controller of its own, on the state directory, without any proxy."""

from pathlib import Path
from typing import Any

from criproxy.control.controller import Controller
from criproxy.control.modes import asked_for
from criproxy.control.settings import Log, Settings
from criproxy.cri.runtime import RuntimeClient
from criproxy.discovery.machine import discover
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import Options
from criproxy.store.store import Store


async def release(
    state_dir: Path, runtime_endpoint: str, host_root: Path, log: Log, *, undo: bool = False
) -> dict[str, Any]:
    """Do what the daemon would; returns the same answer. Undone, everybody is placed as soon as a daemon starts.

    Raises:
        StoreError: a daemon has the state directory, or it cannot be used.
        CriproxyError: the machine cannot be read.
    """
    topology = discover(host_root)
    store = Store(state_dir)
    try:
        settings, policy = Settings(host_root=host_root), NonePolicy(Options())
        controller = Controller(settings, topology, policy, store, RuntimeClient(runtime_endpoint), log)
        try:
            return await (controller.modes.undo_later() if undo else controller.modes.release(asked_for()))
        finally:
            await controller.stop()
    finally:
        store.close()
