"""The open watches of the small API server: each event is encoded once, and sent to those that it matches."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from criproxy.agent.kubernetes.client import Resource
from lab.apiserver.faults import Faults
from lab.apiserver.fields import Object
from lab.apiserver.objects import Event, Objects


def metadata_of(obj: Object) -> Object:
    """Return the object as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


@dataclass(eq=False, slots=True)
class Watch:
    """One open watch."""

    resource: Resource
    namespace: str
    name: str
    """The one object; empty: all."""
    matches: Callable[[Object], bool]
    metadata_only: bool
    bookmarks: bool
    lines: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    """What is to be sent; None: the end."""
    response: web.StreamResponse | None = None
    transport: asyncio.Transport | None = None

    def line(self, event: Event) -> bytes | None:
        """Return the line of an event; None if it does not match."""
        if self.namespace and event.obj["metadata"].get("namespace", "") != self.namespace:
            return None
        now = event.kind != "DELETED" and self.matches(event.obj)
        was = event.before is not None and self.matches(event.before)
        if not now and not was:
            return None
        kind = "DELETED" if not now else event.kind if was or event.kind == "ADDED" else "ADDED"
        if kind != event.kind:
            return encode(kind, event.obj, self.metadata_only)
        if self.metadata_only not in event.encoded:
            event.encoded[self.metadata_only] = encode(kind, event.obj, self.metadata_only)
        return event.encoded[self.metadata_only]


def encode(kind: str, obj: Object, metadata_only: bool = False) -> bytes:
    """Return one line of a watch."""
    shown = metadata_of(obj) if metadata_only else obj
    return json.dumps({"type": kind, "object": shown}, separators=(",", ":")).encode() + b"\n"


class Watches:
    """The open watches.

    Args:
        faults: hold them up.
        sent: counts bytes that are sent.
        changed: called when one is opened or has ended.
    """

    def __init__(self, faults: Faults, sent: Callable[[int], None], changed: Callable[[], None]) -> None:
        self._faults, self._sent, self._changed = faults, sent, changed
        self._open: defaultdict[tuple[Resource, str], set[Watch]] = defaultdict(set)

    def __iter__(self) -> Iterator[Watch]:
        return iter([watch for found in self._open.values() for watch in found])

    def __len__(self) -> int:
        return sum(len(found) for found in self._open.values())

    def publish(self, event: Event) -> None:
        """Send an event to all that it matches."""
        name = event.obj["metadata"]["name"]
        for watch in (*self._open[event.resource, ""], *self._open[event.resource, name]):
            if (line := watch.line(event)) is not None:
                watch.lines.put_nowait(line)

    def bookmark(self, version: int) -> None:
        """Send a bookmark to all that want them."""
        for watch in self:
            if watch.bookmarks:
                metadata = {"resourceVersion": str(version), "creationTimestamp": None}
                kind, api_version = watch.resource.kind, watch.resource.api_version
                watch.lines.put_nowait(
                    encode("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": metadata})
                )

    def send(self, plural: str, line: bytes) -> None:
        """Send *line* to all watches of a resource, whatever it is."""
        for watch in self:
            if watch.resource.plural == plural:
                watch.lines.put_nowait(line)

    def end(self) -> None:
        """End all watches as a server does whose time for them is over."""
        for watch in self:
            watch.lines.put_nowait(None)

    def reset(self) -> None:
        """Break all connections of watches, each in the middle of an event."""
        for watch in self:
            if watch.response is not None and watch.transport is not None:
                watch.transport.write(b'30\r\n{"type":"MODIFIED","object":{"metadata":{"na')
                watch.transport.abort()

    async def serve(
        self, request: web.Request, watch: Watch, first: list[bytes], timeout_s: float
    ) -> web.StreamResponse:
        """Serve one watch: *first* what has happened, then what happens, until its time is over."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        for each in first:
            watch.lines.put_nowait(each)
        mine = self._open[watch.resource, watch.name]
        mine.add(watch)
        try:
            await response.prepare(request)
            watch.response, watch.transport = response, request.transport
            self._changed()
            async with asyncio.timeout(None if self._faults.ignores_timeout else timeout_s):
                while (line := await watch.lines.get()) is not None:
                    await self._faults.spoken()
                    self._sent(len(line))
                    await response.write(line)
        except TimeoutError:
            pass
        except ConnectionError:
            return response
        finally:
            mine.discard(watch)
            self._changed()
        await response.write_eof()
        return response


def since(objects: Objects, watch: Watch, version: str) -> list[bytes] | None:
    """Return the lines of what has happened since *version*; None if that is too long ago."""
    if version in {"", "0"}:
        found = [obj for obj in objects.all(watch.resource, watch.namespace) if watch.matches(obj)]
        return [encode("ADDED", obj, watch.metadata_only) for obj in found]
    if int(version) < objects.oldest:
        return None
    lines = (
        watch.line(each) for each in objects.events if each.version > int(version) and each.resource == watch.resource
    )
    return [line for line in lines if line is not None]
