"""The HTTP side of the small API server."""

import asyncio
import itertools
import json
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import ClientConnectionError, ClientPayloadError, ClientSession, web

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes import client as api
from criproxy.agent.kubernetes.client import Resource
from lab.apiserver.faults import Faults
from lab.apiserver.fields import Object, merged, strategic
from lab.apiserver.objects import Event, Objects, Refusal
from lab.apiserver.selectors import matcher, only_name
from lab.apiserver.watches import Watch, Watches, metadata_of, since

SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVED = (
    api.NODES, api.PODS, api.EVENTS, api.CONFIG_MAPS, SECRETS, NAMESPACES, api.LEASES,
    api.NODE_POLICIES, api.NODE_PLACEMENTS, api.NODE_RESOURCE_TOPOLOGIES,
)  # fmt: skip
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
WATCH_S = 1800.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    verb: str
    """As in RBAC."""
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


class ApiServer(Changes):
    """A small API server on a port of the loopback interface; its event loop is that of the caller.

    `objects` may be changed directly; `faults` and the methods below make it misbehave.
    """

    def __init__(self, *, bookmark_s: float | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.faults = Faults()
        self.watches = Watches(self.faults, self._count_sent, self.notify)
        self.objects = Objects(self._publish)
        self.served = set(SERVED)
        """Resources that exist; take one away as if its CRD were not installed."""
        self.requests: Counter[tuple[str, str]] = Counter()
        """Requests by verb and plural."""
        self.asked: deque[Asked] = deque(maxlen=10_000)
        """The last requests."""
        self.sent_bytes = self.received_bytes = 0
        """Of bodies."""
        self.port = 0
        self._bookmark_s, self._tls = bookmark_s, tls
        self._continues = itertools.count()
        self._pages: dict[str, list[Object]] = {}
        self._runner: web.AppRunner | None = None
        self._bookmarks: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after `stop`, on the same port again."""
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=self._tls)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        if self._bookmark_s is not None:
            self._bookmarks = asyncio.create_task(self._send_bookmarks(self._bookmark_s))

    async def stop(self) -> None:
        """Refuse connections, and break those that are open; objects stay."""
        if self._bookmarks is not None:
            self._bookmarks.cancel()
        if self._runner is not None:
            for connection in list(self._runner.server.connections if self._runner.server else []):
                if connection.transport is not None:
                    connection.transport.abort()
            await self._runner.cleanup()
        self._runner = self._bookmarks = None

    def bookmark(self) -> None:
        """Send a bookmark in all watches."""
        self.watches.bookmark(self.objects.version)

    def lose_disk(self) -> None:
        """Begin anew without objects, with the first version."""
        self.objects = Objects(self._publish)

    async def until(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Return once *holds*, asked after each request and change of an object or of the open watches."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                await self.changed(self.version)

    async def _send_bookmarks(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.bookmark()

    def _count_sent(self, count_bytes: int) -> None:
        self.sent_bytes += count_bytes

    def _publish(self, event: Event) -> None:
        self.watches.publish(event)
        self.notify()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received_bytes += len(body)
        asked = self._parse(request, body)
        if isinstance(asked, web.Response):
            return asked
        self.requests[asked.verb, asked.resource.plural] += 1
        self.asked.append(asked)
        self.notify()
        await self.faults.delay()
        if (refused := self._fault(asked)) is not None:
            return refused
        try:
            return await (self._forward if asked.subresource == "proxy" else self._verb)(request, asked)
        except Refusal as error:
            return self._status(error.code, error.reason, error.message)
        finally:
            self.notify()

    def _parse(self, request: web.Request, body: bytes) -> Asked | web.Response:
        """Return what is asked, or 404 for a path that is not served."""
        parts = [part for part in request.path.split("/") if part]
        group, parts = ("", parts[1:]) if parts[:1] == ["api"] else ("".join(parts[1:2]), parts[2:])
        version, parts = "".join(parts[:1]), parts[1:]
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource = (*parts, "", "", "")[:3]
        found = (each for each in self.served if (each.group, each.version, each.plural) == (group, version, plural))
        if (resource := next(found, None)) is None:
            return self._status(404, "NotFound", "the server could not find the requested resource")
        query = dict(request.query)
        watches = query.get("watch", "") in {"1", "true"}
        verb = _VERBS.get(request.method, "get" if name else "watch" if watches else "list")
        return Asked(verb, resource, namespace, name, subresource, query, dict(request.headers), body)

    def _fault(self, asked: Asked) -> web.Response | None:
        token = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.faults.tokens is not None and token not in self.faults.tokens:
            return self._status(401, "Unauthorized", "Unauthorized")
        what = f"{asked.resource.plural}/proxy" if asked.subresource == "proxy" else asked.resource.plural
        if (refuses := self.faults.refusal(asked.verb, what)) is not None:
            return self._status(refuses.status, refuses.reason, refuses.message, refuses.retry_after)
        if (body := self.faults.body(asked.verb, what)) is not None:
            return web.Response(body=body, content_type="application/json")
        return None

    async def _forward(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        """Pass a request on to a port of a pod, without the client's credentials, and its answer back."""
        scheme, name, port = asked.name.split(":")
        pod = self.objects.get(asked.resource, name, asked.namespace)
        url = f"{scheme}://{pod['status']['podIP']}:{port}{request.path.partition('/proxy')[2]}"
        own = {"authorization", "connection", "content-length", "host"}
        headers = {key: value for key, value in request.headers.items() if key.lower() not in own}
        response: web.StreamResponse | None = None
        try:
            async with (
                ClientSession() as session,
                session.request(request.method, url, headers=headers, data=asked.body) as answer,
            ):
                kept = {key: value for key, value in answer.headers.items() if key.lower() != "transfer-encoding"}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                return response
        except (ClientConnectionError, ClientPayloadError) as error:
            if response is None:
                raise Refusal(503, "ServiceUnavailable", f"error trying to reach service: {error}") from error
            if request.transport is not None:  # in the middle: the client must see that the end is missing
                request.transport.abort()
            return response

    async def _verb(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        match asked.verb:
            case "watch":
                return await self._watch(request, asked)
            case "list":
                return self._list(asked)
            case "get":
                return self._object(asked, self.objects.get(asked.resource, asked.name, asked.namespace))
            case "create":
                obj = json.loads(asked.body)
                if asked.namespace:
                    obj.setdefault("metadata", {})["namespace"] = asked.namespace
                return self._object(asked, self.objects.create(asked.resource, obj, _manager(asked)), 201)
            case "delete":
                uid = (json.loads(asked.body or b"{}").get("preconditions") or {}).get("uid", "")
                gone = self.objects.delete(asked.resource, asked.name, asked.namespace, uid=uid)
                return self._json({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {},
                                   "details": {"name": asked.name, "uid": gone["metadata"]["uid"]}})  # fmt: skip
            case _:
                return self._write(asked)

    def _write(self, asked: Asked) -> web.Response:
        body = json.loads(asked.body)
        if body.get("metadata", {}).get("name", asked.name) != asked.name:
            raise Refusal(400, "BadRequest", "the name of the object does not match the name on the URL")
        kind = asked.headers.get("Content-Type", "").partition(";")[0]
        if kind == "application/apply-patch+yaml":
            manager, force = asked.query.get("fieldManager", ""), asked.query.get("force") == "true"
            if not manager:
                raise Refusal(422, "Invalid", "fieldManager: Required value: is required for apply patch")
            body["metadata"] |= {"namespace": asked.namespace} if asked.namespace else {}
            applied = self.objects.apply(
                asked.resource, body, manager=manager, force=force, subresource=asked.subresource
            )
            return self._object(asked, applied)
        changes: dict[str, Callable[[Object], Object]] = {
            "application/merge-patch+json": lambda old: merged(old, body),
            "application/strategic-merge-patch+json": lambda old: strategic(old, body),
            "application/json": lambda _: body,
        }
        custom = asked.resource.group == "criproxy.io" or asked.resource == api.NODE_RESOURCE_TOPOLOGIES
        if kind not in changes or (custom and "strategic" in kind):
            raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")
        if asked.verb == "update" and asked.resource.group and not body["metadata"].get("resourceVersion"):
            raise Refusal(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        return self._object(
            asked,
            self.objects.update(
                asked.resource,
                asked.name,
                asked.namespace,
                changes[kind],
                manager=_manager(asked),
                subresource=asked.subresource,
            ),
        )

    def _list(self, asked: Asked) -> web.Response:
        token, limit = asked.query.get("continue", ""), int(asked.query.get("limit", "0"))
        if token and token not in self._pages:
            raise Refusal(410, "Expired", "The provided continue parameter is too old")
        matches = matcher(asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        found = (
            self._pages.pop(token)
            if token
            else [each for each in self.objects.all(asked.resource, asked.namespace) if matches(each)]
        )
        metadata = {"resourceVersion": str(self.objects.version)}
        if limit and len(found) > limit:
            token = f"page-{next(self._continues)}"
            found, self._pages[token] = found[:limit], found[limit:]
            metadata |= {"continue": token, "remainingItemCount": str(len(self._pages[token]))}
        kind = f"{asked.resource.kind}List"
        if wants_metadata := _wants_metadata(asked):
            found, kind = [metadata_of(each) for each in found], "PartialObjectMetadataList"
        api_version = "meta.k8s.io/v1" if wants_metadata else asked.resource.api_version
        items = None if wants_metadata and not found else found  # Kubernetes says null there
        return self._json({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        fields = asked.query.get("fieldSelector", "")
        watch = Watch(
            asked.resource,
            asked.namespace,
            only_name(fields),
            matcher(asked.query.get("labelSelector", ""), fields),
            metadata_only=_wants_metadata(asked),
            bookmarks=asked.query.get("allowWatchBookmarks") in {"1", "true"},
        )
        timeout_s = float(asked.query.get("timeoutSeconds", WATCH_S))
        first = since(self.objects, watch, asked.query.get("resourceVersion", ""))
        if first is None:
            version = asked.query["resourceVersion"]
            message = f"too old resource version: {version} ({self.objects.oldest})"
            if not self.faults.expires_by_event:
                raise Refusal(410, "Expired", message)
            status = _status(410, "Expired", message)
            body = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            return web.Response(body=body, content_type="application/json")
        return await self.watches.serve(request, watch, first, timeout_s)

    def _object(self, asked: Asked, obj: Object, status: int = 200) -> web.Response:
        return self._json(metadata_of(obj) if _wants_metadata(asked) else obj, status)

    def _status(self, code: int, reason: str, message: str, retry_after: str = "") -> web.Response:
        headers = {"Retry-After": retry_after} if retry_after else {}
        return self._json(_status(code, reason, message), code, headers)

    def _json(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:  # noqa: ANN401
        text = json.dumps(body).encode()
        self.sent_bytes += len(text)
        return web.Response(body=text, status=status, content_type="application/json", headers=headers)


def _status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def _wants_metadata(asked: Asked) -> bool:
    return "as=PartialObjectMetadata" in asked.headers.get("Accept", "")


def _manager(asked: Asked) -> str:
    return asked.query.get("fieldManager") or asked.headers.get("User-Agent", "unknown").partition("/")[0]
