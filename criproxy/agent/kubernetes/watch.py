"""Objects of the API server that are followed: one, or all of a resource."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import ApiClient, Resource, is_object
from criproxy.agent.kubernetes.transport import ApiError, Object, Request, Unreachable, as_object
from criproxy.errors import CriproxyError


class _Expired(CriproxyError):
    """The server no longer has the events since our resource version."""


class _Ended(CriproxyError):
    """The watch has ended, and goes on from the same resource version."""


@dataclass(slots=True)
class FullJitter:
    """Pauses between retries: between 0 and a bound that doubles up to the longest."""

    first_s: float
    longest_s: float
    _bound_s: float = 0.0

    def pause_s(self) -> float:
        """Return the next pause."""
        bound_s = self._bound_s or self.first_s
        self._bound_s = min(2 * bound_s, self.longest_s)
        return random.uniform(0, bound_s)  # noqa: S311 (no secret)

    def reset(self) -> None:
        """Begin again with the first bound."""
        self._bound_s = 0.0


class Watched(Changes):
    """Follows one object or all objects of a resource; what was known stays when the server is gone.

    Args:
        client: the client.
        resource: what to follow.
        name: the one object to follow; empty: all.
        namespace: their namespace; empty: all namespaces.
        metadata_only: whether only their metadata is wanted, such as of a Node, whose status changes often.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        *,
        name: str = "",
        namespace: str = "",
        metadata_only: bool = False,
    ) -> None:
        super().__init__()
        self._client, self.resource = client, resource
        self._name, self._namespace, self._metadata_only = name, namespace, metadata_only
        self._objects: dict[str, Object] = {}
        self._resource_version = ""
        self.known = False
        """Whether they were read since the start: what is not known is never "none"."""
        self.served = True
        """Whether the server has the resource: without its CRD it has not, and there are no objects."""
        self.problem = ""
        """Why they are not current now; empty if they are."""

    @property
    def objects(self) -> Mapping[str, Object]:
        """The objects by name, or by ``namespace/name`` if they are of all namespaces; without managedFields."""
        return MappingProxyType(self._objects)

    async def run(self) -> None:
        """Follow for ever."""
        limits, loop = self._client.limits, asyncio.get_running_loop()
        pauses = FullJitter(limits.first_pause_s, limits.longest_pause_s)
        while True:
            begun_s, pause_s = loop.time(), None
            reason = await self._follow()
            if loop.time() - begun_s >= limits.healthy_s:
                pauses.reset()
            if reason == "absent":
                pause_s = limits.absent_s * random.uniform(0.75, 1.25)  # noqa: S311 (no secret)
            self._client.counters.watch_restarts[self.resource.plural, reason] += 1
            await asyncio.sleep(pauses.pause_s() if pause_s is None else pause_s)

    async def _follow(self) -> str:
        """Read if needed, and watch until the watch ends; return why it has."""
        try:
            if not self._resource_version:
                await self._read()
            await self._watch()
        except _Expired:
            self._resource_version = ""
            return "expired"
        except _Ended:
            return "ended"
        except ApiError as error:
            return self._refused(error)
        except CriproxyError as error:
            self._set_problem(str(error))
            return "unreachable"
        return "ended"

    def _refused(self, error: ApiError) -> str:
        self._resource_version = ""
        if error.status == 404:
            self._update({}, served=False, problem=f"the API server has no {self.resource.plural}: {error}")
            return "absent"
        if error.status == 410:
            return "expired"
        self._set_problem(str(error))
        return "refused"

    async def _read(self) -> None:
        selector = f"metadata.name={self._name}" if self._name else ""
        found, version = await self._client.list(
            self.resource, self._namespace, field_selector=selector, metadata_only=self._metadata_only
        )
        self._resource_version = version
        self._update({self._key(each): _slim(each) for each in found})

    async def _watch(self) -> None:
        limits, loop = self._client.limits, asyncio.get_running_loop()
        watch_s = random.uniform(*limits.watch_s)  # noqa: S311 (no secret)
        deadline_s = loop.time() + watch_s + limits.grace_s
        request = self._request(watch_s)
        try:
            async with self._client.transport.stream(request) as lines:
                self._set_problem("")
                async with asyncio.timeout_at(deadline_s) as bound:
                    async for line in lines:
                        if self._event(request, line):
                            bound.reschedule(min(deadline_s, loop.time() + limits.silence_s))
        except TimeoutError as error:
            raise Unreachable(f"{request}: the API server was silent for too long") from error

    def _request(self, watch_s: float) -> Request:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(int(watch_s), 1)),
            "resourceVersion": self._resource_version,
        }
        query |= {"fieldSelector": f"metadata.name={self._name}"} if self._name else {}
        accept = "application/json"
        if self._metadata_only:
            accept = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{accept}"
        return Request("watch", self.resource.plural, self.resource.path(self._namespace), query, accept=accept)

    def _event(self, request: Request, line: bytes) -> bool:
        """Take in one event; return whether it is a bookmark.

        Raises:
            _Expired: the events since our resource version are gone.
            Unreachable: it is no event.
        """
        event = as_object(request, line)
        kind, found = event.get("type"), event.get("object")
        if kind == "ERROR":
            if isinstance(found, dict) and found.get("code") == 410:
                raise _Expired
            raise Unreachable(f"{request}: {str(found)[:300]}")
        if kind == "BOOKMARK" and isinstance(found, dict):
            self._resource_version = str((found.get("metadata") or {}).get("resourceVersion", ""))
            return True
        if not is_object(found):
            self._resource_version = ""
            raise Unreachable(f"{request}: an event has no object")
        assert isinstance(found, dict)
        self._resource_version = str(found["metadata"].get("resourceVersion", ""))
        objects = {**self._objects}
        if kind == "DELETED":
            objects.pop(self._key(found), None)
        else:
            objects[self._key(found)] = _slim(found)
        self._update(objects)
        return False

    def _key(self, obj: Object) -> str:
        metadata = obj["metadata"]
        whole = self.resource.namespaced and not self._namespace
        return f"{metadata.get('namespace', '')}/{metadata['name']}" if whole else str(metadata["name"])

    def _update(self, objects: dict[str, Object], *, served: bool = True, problem: str = "") -> None:
        before = (self.known, self.served, self.problem, _essence(self._objects))
        self._objects, self.known, self.served, self.problem = objects, True, served, problem
        if before != (self.known, self.served, self.problem, _essence(objects)):
            self.notify()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.notify()


def _slim(obj: Object) -> Object:
    """Leave out who manages which fields: it is long, and nobody who follows needs it."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _essence(objects: Mapping[str, Object]) -> list[tuple[str, Object]]:
    """What makes a change of objects one: not the resource version, which changes with a status we do not read."""
    return [
        (key, {**each, "metadata": {k: v for k, v in each["metadata"].items() if k != "resourceVersion"}})
        for key, each in objects.items()
    ]
