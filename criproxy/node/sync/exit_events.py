"""Detects containers that end without a call of the kubelet, from the runtime's event stream or lists of exited ones.

`ends` decides how far events and lists are believed. `drift`, which reads the cgroups, detects those that are gone.
"""

import asyncio
from dataclasses import dataclass

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from criproxy.model.workload import MAY_RUN, ContainerState
from criproxy.node.context import Context
from criproxy.node.sync.ends import Evidence, ended, judge_each
from criproxy.node.sync.outcomes import Outcomes
from criproxy.process.heartbeat import joint_s

_SETTLED_S = 1.0
"""When an event stream counts as open; containers that exited before it began are listed then."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_NO_EVENTS_PAUSE_S = 300.0
"""Pause before a runtime without events is asked for them again: it may have been replaced by a newer one."""


@dataclass(slots=True)
class ExitEvents:
    """Finds containers that have ended, and releases their places."""

    context: Context
    outcomes: Outcomes
    has_events: bool = False
    """Whether the runtime's event stream is open."""

    async def follow(self) -> None:
        """Apply the events of the runtime in order, for ever; without a stream, only `list_regularly` finds exits."""
        clock, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        while True:
            began_s = clock.time()
            wanted = await self._stream()
            lasted = clock.time() - began_s > _SETTLED_S
            pause_s = _FIRST_PAUSE_S if lasted else min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s if wanted else _NO_EVENTS_PAUSE_S)

    async def list_regularly(self) -> None:
        """List the exited containers periodically: often if there are no events."""
        settings, waited_s = self.context.settings, 0.0
        while True:
            await asyncio.sleep(joint_s(settings.exit_list_s))
            waited_s += settings.exit_list_s
            if not self.has_events or waited_s >= settings.exit_list_beside_events_s:
                waited_s = 0.0
                await self.list_once()

    async def list_once(self) -> None:
        """List the exited containers, and apply their ends unless they have changed meanwhile."""
        before = self.context.state.node
        running = [before.containers[key] for key in before.grants if before.containers[key].state in MAY_RUN]
        if not running and not before.kept:
            return
        try:
            listed = {item.id for item in await self.context.runtime.list_exited()}
            exited = [container for container in running if container.key in listed]
            await judge_each(self.context, [(container, Evidence.LISTED) for container in exited])
            await self.outcomes.release_kept()
        except RuntimeCallError as error:
            self.context.log.warning("cannot ask which containers have exited", error=str(error))

    async def _stream(self) -> bool:
        """Read one stream to its end; False if the runtime has no stream that criproxy can use."""
        opened = asyncio.get_running_loop().call_later(_SETTLED_S, self._open)
        try:
            version = await self.context.runtime.call("Version", api.VersionRequest(), api.VersionResponse)
            if version.runtime_name == "containerd" and version.runtime_version.lstrip("v").startswith("1."):
                return False  # it sends each event to one subscriber only: the kubelet would miss ours
            async for event in self.context.runtime.container_events():
                await self._apply(event)
            # CRI-O ends the stream at once and without an error if its option for events is off.
            return self.has_events
        except RuntimeCallError as error:
            if self.has_events:
                self.context.log.warning("the runtime's events have ended", error=str(error))
            return error.code is not StatusCode.UNIMPLEMENTED
        finally:
            opened.cancel()
            self.has_events = False

    def _open(self) -> None:
        self.has_events = True
        self.context.tasks.spawn("list exited containers", self.list_once())

    async def _apply(self, event: api.ContainerEventResponse) -> None:
        key = event.container_id
        if (container := self.context.state.node.containers.get(key)) is None:
            return
        if event.container_event_type == api.CONTAINER_DELETED_EVENT:
            await ended(self.context, container, Evidence.DELETED)
        elif event.container_event_type == api.CONTAINER_STOPPED_EVENT:
            states = [translate.state(status) for status in event.containers_statuses if status.id == key]
            if states != [ContainerState.EXITED] or not await ended(self.context, container, Evidence.STOPPED):
                self.outcomes.ask(key)  # in the background: events of other containers wait behind this one
