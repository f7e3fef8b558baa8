"""The verbs of the Kubernetes API that the agent uses, on plain JSON objects."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.agent.kubernetes.request import NotFound, Object, Request, Unreachable, version_of
from criproxy.agent.kubernetes.transport import Transport

FIELD_MANAGER = "criproxy-agent"
_MANAGER = {"fieldManager": FIELD_MANAGER}
_NAME = re.compile(r"[A-Za-z0-9]([-.:_A-Za-z0-9]{0,252})")
"""What a name of an object is part of."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API."""

    group: str
    """Empty: core."""
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def owner(self, name: str, uid: object) -> Object:
        """Return the reference to an object of it that owns another one."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": name, "uid": uid}

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all (of a namespace)."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [base, *(["namespaces", namespace] if self.namespaced and namespace else []), self.plural]
        return "/".join(part for part in (*parts, name, subresource) if part)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
NODE_POLICIES = Resource("criproxy.io", "v1alpha1", "nodepolicies", "NodePolicy", namespaced=False)
NODE_PLACEMENTS = Resource("criproxy.io", "v1alpha1", "nodeplacements", "NodePlacement", namespaced=False)
NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)


class ApiClient(Transport):
    """A client of one API server. All methods raise `ApiError` and `Unreachable`."""

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, metadata_only: bool = False
    ) -> Object | None:
        """Return one object; None if there is none (404), which holds for all that is no name of an object.

        Names come from what others write, such as the holder of a Lease: they lead to no other path.
        """
        if not _NAME.fullmatch(name):
            return None
        request = Request("get", resource.plural, resource.path(namespace, name), accept=accept("", metadata_only))
        try:
            return await self._sent(request)
        except NotFound:
            return None

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        limit: int = 500,
    ) -> tuple[list[Object], str]:
        """Return all objects, read in pages of *limit*, and the resource version from which a watch goes on.

        Raises:
            ApiError: among others 404: the server does not have the resource.
            Unreachable: also if all pages together have more than `Limits.list_bytes`.
        """
        query = {"labelSelector": label_selector} if label_selector else {}
        query |= {"fieldSelector": field_selector} if field_selector else {}
        found, version, left_bytes = list[Object](), "", self.limits.list_bytes
        async for page, size_bytes in self._pages(resource, namespace, query, metadata_only, limit):
            found += page["items"]
            version, left_bytes = version_of(page), left_bytes - size_bytes
            if left_bytes < 0:
                raise Unreachable(f"list {resource.plural}: the list has more than {self.limits.list_bytes} bytes")
        return found, version

    async def count(self, resource: Resource, *, label_selector: str = "", limit: int = 500) -> int:
        """Return how many objects a list has, without keeping them."""
        query = {"labelSelector": label_selector} if label_selector else {}
        return sum([len(page["items"]) async for page, _ in self._pages(resource, "", query, True, limit)])

    async def _pages(
        self, resource: Resource, namespace: str, query: dict[str, str], metadata_only: bool, limit: int
    ) -> AsyncIterator[tuple[Object, int]]:
        """Yield the pages of a list, in each of which ``items`` are objects, with their sizes in bytes."""
        query = {"limit": str(limit), **query}
        wanted = accept("List", metadata_only)
        request = Request("list", resource.plural, resource.path(namespace), query, accept=wanted)
        while True:
            page, size_bytes = await self.ask(request)
            yield page | {"items": request.items(page)}, size_bytes
            metadata = page.get("metadata")
            if not (token := metadata.get("continue") if isinstance(metadata, dict) else None):
                return
            request = replace(request, query=query | {"continue": str(token)})

    async def apply(self, resource: Resource, obj: Object, *, subresource: str = "", force: bool = True) -> Object:
        """Apply *obj* on the server, which creates or changes the object; return what it has now.

        Fields that were applied before and are missing now are removed. Without *force*, a field of another manager
        with another value is a conflict (409).
        """
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower()}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        path = resource.path(_namespace(obj), _name(obj), subresource)
        return await self._sent(Request("patch", resource.plural, path, query, body, "application/apply-patch+yaml"))

    async def merge_patch(
        self, resource: Resource, name: str, body: Object, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        """Merge *body* into the object (null removes); with its ``metadata.resourceVersion``, 409 if that is old."""
        path = resource.path(namespace, name, subresource)
        return await self._sent(Request("patch", resource.plural, path, _MANAGER, body, "application/merge-patch+json"))

    async def strategic_patch(self, resource: Resource, name: str, body: Object, *, subresource: str = "") -> Object:
        """Merge *body* into an object of Kubernetes itself; lists such as conditions are merged by their key."""
        path, kind = resource.path("", name, subresource), "application/strategic-merge-patch+json"
        return await self._sent(Request("patch", resource.plural, path, _MANAGER, body, kind))

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create *obj*; 409 if there is one with its name."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._sent(Request("create", resource.plural, resource.path(_namespace(obj)), _MANAGER, body))

    async def replace(self, resource: Resource, obj: Object) -> Object:
        """Replace the whole object; 409 if its ``metadata.resourceVersion`` is old."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        path = resource.path(_namespace(obj), _name(obj))
        return await self._sent(Request("update", resource.plural, path, _MANAGER, body))

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object; one that does not exist is fine. With *uid*, only this one (409 for another)."""
        body = {"preconditions": {"uid": uid}} if uid else None
        with suppress(NotFound):
            await self._sent(Request("delete", resource.plural, resource.path(namespace, name), body=body))

    async def _sent(self, request: Request) -> Object:
        return (await self.ask(request))[0]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


def accept(suffix: str, metadata_only: bool) -> str:
    """Return the Accept header; *suffix* is ``List`` for lists."""
    return _METADATA.format(suffix) if metadata_only else "application/json"
