"""Starts the parts that detect changes without a call of the kubelet: exits, drift, ended cold starts, room."""

import asyncio
from collections.abc import Callable
from importlib import import_module

from criproxy.node.containers.refused_resizes import RefusedResizes
from criproxy.node.context import Context
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.hotplug import Hotplug
from criproxy.node.sync.outcomes import Outcomes

_PARTS = ("sync.exit_events", "sync.drift", "sync.cold_starts", "reconcile.promotion")
"""Modules that are imported in the background: they are not needed for the first calls."""


async def start_watchers(
    context: Context,
    reconciler: Reconciler,
    outcomes: Outcomes,
    refused: RefusedResizes,
    hotplug: Hotplug,
    is_ready: Callable[[], bool],
) -> None:
    """Start the parts, which run until the controller's tasks are stopped."""
    for part in _PARTS:
        await asyncio.to_thread(import_module, f"criproxy.node.{part}")
    from criproxy.node.reconcile.promotion import Promotions
    from criproxy.node.sync.cold_starts import ColdStarts
    from criproxy.node.sync.drift import Drift
    from criproxy.node.sync.exit_events import ExitEvents

    exits = ExitEvents(context, outcomes)
    context.tasks.forever("follow events", exits.follow)
    context.tasks.forever("list exited containers", exits.list_regularly)
    context.tasks.forever("watch cgroups", Drift(context, reconciler, hotplug).watch)
    context.tasks.forever("end cold starts", ColdStarts(context).watch)
    context.tasks.forever("promote containers", Promotions(context, refused, is_ready).watch)
