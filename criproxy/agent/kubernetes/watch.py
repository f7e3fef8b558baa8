"""Objects of the API server that are followed: one, or all of a resource."""

import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import ApiClient, Resource, accept
from criproxy.agent.kubernetes.request import MOST_CHARS, ApiError, Object, Request, Unreachable, is_object, version_of
from criproxy.errors import CriproxyError
from criproxy.process.tasks import Backoff


class _Expired(CriproxyError):
    """The server no longer has what happened since our resource version."""


@dataclass(slots=True, repr=False, eq=False)
class Watched(Changes):
    """Follows objects; what was known stays when the server is gone.

    Args:
        client: the client.
        resource: what to follow.
        name: the one object to follow; empty: all.
        namespace: their namespace, if they have one.
        metadata_only: whether only their metadata is wanted, such as of a Node, whose status changes often.
    """

    client: ApiClient
    resource: Resource
    _: KW_ONLY
    name: str = ""
    namespace: str = ""
    metadata_only: bool = False
    known: bool = False
    """Whether they were read since the start: what is not known is never "none"."""
    served: bool = True
    """Whether the server has the resource: without its CRD it has not, and there are no objects."""
    problem: str = ""
    """Why they are not current now; empty if they are."""
    _objects: dict[str, Object] = field(default_factory=dict)
    _version: str = ""
    """The resource version from which a watch goes on; empty: all is read first."""
    _opened_s: float = math.inf
    """When the watch was opened, on the clock of the event loop; infinity: it was not."""
    _was_served: bool = False
    """Whether the server has had the resource: a CRD that is lost with everything else is soon made anew."""

    @property
    def _field_selector(self) -> str:
        return f"metadata.name={self.name}" if self.name else ""

    @property
    def objects(self) -> Mapping[str, Object]:
        """The objects by name, without managedFields."""
        return MappingProxyType(self._objects)

    async def run(self) -> None:
        """Follow for ever."""
        limits = self.client.limits
        pauses = Backoff(limits.first_pause_s, limits.longest_pause_s, least=0.0)
        while True:
            reason = await self._follow()
            self.client.counters.watch_restarts[self.resource.plural, reason] += 1
            if self._has_lasted():
                pauses.reset()
                pause_s = random.uniform(0, limits.reopen_s)
            elif reason == "absent" and not self._was_served:
                pause_s = limits.absent_s * random.uniform(0.75, 1.25)
            else:
                pause_s = pauses.pause_s()
            await asyncio.sleep(pause_s)

    async def _follow(self) -> str:
        """Read if needed, and watch until the watch ends; return why it has."""
        self._opened_s = math.inf
        try:
            if not self._version:
                await self._read()
            await self._watch()
        except _Expired:
            self._version = ""
            return "expired"
        except ApiError as error:
            return self._refused(error)
        except Unreachable as error:
            if not self._has_lasted():  # else it goes on at once, or fails again
                self._set_problem(str(error))
            if self._opened_s == math.inf:
                self._version = ""  # it may come back with an older or an empty disk, and a watch would not show that
            return "unreachable"
        return "ended"

    def _has_lasted(self) -> bool:
        """Whether the watch was open for a while."""
        return asyncio.get_running_loop().time() - self._opened_s >= self.client.limits.healthy_s

    def _refused(self, error: ApiError) -> str:
        if error.status < 500 and error.status not in {403, 429}:  # else the version is not what is wrong
            self._version = ""
        if error.status == 410:
            return "expired"
        if error.status == 404:
            text = f"the API server has no {self.resource.plural} of {self.resource.api_version}; is the CRD installed?"
            self._replace({}, served=False, problem=text)
            return "absent"
        self._set_problem(str(error))
        return "refused"

    async def _read(self) -> None:
        found, self._version = await self.client.list(
            self.resource, self.namespace, field_selector=self._field_selector, metadata_only=self.metadata_only
        )
        self._was_served = True
        self._replace({str(each["metadata"]["name"]): _slim(each) for each in found}, served=True, problem="")

    async def _watch(self) -> None:
        limits, loop = self.client.limits, asyncio.get_running_loop()
        watch_s = random.uniform(*limits.watch_s)
        deadline_s = loop.time() + watch_s + limits.grace_s
        request, has_bookmarks = self._request(watch_s), False
        try:
            async with self.client.stream(request) as lines:
                self._opened_s = loop.time()
                self._set_problem("")
                async with asyncio.timeout_at(deadline_s) as bound:
                    async for line in lines:
                        has_bookmarks |= self._event(request, line)
                        if has_bookmarks:
                            bound.reschedule(min(deadline_s, loop.time() + limits.silence_s))
        except TimeoutError as error:
            raise Unreachable(f"{request}: the API server has been silent for too long") from error

    def _request(self, watch_s: float) -> Request:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(int(watch_s), 1)),
            "resourceVersion": self._version,
        }
        query |= {"fieldSelector": self._field_selector} if self._field_selector else {}
        path = self.resource.path(self.namespace)
        return Request("watch", self.resource.plural, path, query, accept=accept("", self.metadata_only))

    def _event(self, request: Request, line: bytes) -> bool:
        """Take in one event; return whether it is a bookmark.

        Raises:
            _Expired: what happened since our resource version is gone.
            Unreachable: it is no event; all is read again then.
        """
        version, self._version = self._version, ""  # unless it is understood
        event = request.read(line)
        kind, found = str(event.get("type")), event.get("object")
        if kind == "ERROR":
            if isinstance(found, dict) and found.get("code") == 410:
                raise _Expired
            raise Unreachable(f"{request}: {str(found)[:MOST_CHARS]}")
        if kind == "BOOKMARK":
            self._version = version_of(found) or version
            if _is_before(self._version, version):  # the server's disk was restored from an older copy
                raise _Expired
            return True
        if kind not in {"ADDED", "MODIFIED", "DELETED"} or not isinstance(found, dict) or not is_object(found):
            raise Unreachable(f"{request}: an event of type {kind[:20]} without an object")
        self._version = version_of(found)
        key = str(found["metadata"]["name"])
        before, after = self._objects.get(key), None if kind == "DELETED" else _slim(found)
        self._objects = {name: each for name, each in self._objects.items() if name != key}
        if after is not None:
            self._objects[key] = after
        if not _is_same(before, after):
            self.notify()
        return False

    def _replace(self, objects: dict[str, Object], *, served: bool, problem: str) -> None:
        before, self._objects = self._objects, objects
        same = before.keys() == objects.keys() and all(_is_same(before[key], objects[key]) for key in objects)
        if not same or (self.known, self.served, self.problem) != (True, served, problem):
            self.known, self.served, self.problem = True, served, problem
            self.notify()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.notify()


def _is_before(version: str, other: str) -> bool:
    """Whether a resource version is older than another one; False where they cannot be compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _slim(obj: Object) -> Object:
    """Leave out who manages which fields: it is long, and nobody who follows needs it."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _is_same(one: Object | None, other: Object | None) -> bool:
    """Whether nothing has changed but the resource version, which changes with a status that is not asked for."""
    return _without_version(one) == _without_version(other)


def _without_version(obj: Object | None) -> Object | None:
    if obj is None:
        return None
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}}
