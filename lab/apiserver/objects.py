"""The objects of the small API server: versions, conflicts, managers of fields, and what happened to them."""

import itertools
import uuid
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime

from criproxy.agent.kubernetes.client import Resource
from lab.apiserver.fields import Object, Owner, Path, leaves, managed_fields, put, remove

MOST_EVENTS = 20_000
"""Events that a watch may go on from; those before are gone (410)."""


class Refusal(Exception):
    """An answer other than 2xx, a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to an object."""

    version: int
    resource: Resource
    kind: str
    """ADDED, MODIFIED or DELETED."""
    obj: Object
    before: Object | None
    encoded: dict[bool, bytes] = field(default_factory=dict, compare=False)
    """The lines of watches, with all or with the metadata only; made once for all watches."""


@dataclass(slots=True)
class Stored:
    """An object, and who manages its fields."""

    obj: Object
    owners: dict[Owner, set[Path]]


Key = tuple[str, str]
"""Namespace and name."""


class Objects:
    """All objects; each change makes an event, which *notify* gets."""

    def __init__(self, notify: Callable[[Event], None]) -> None:
        self._notify = notify
        self._versions = itertools.count(1001)
        self.version = 1000
        self.oldest = 1000
        """The version before the first event that is kept."""
        self.events: deque[Event] = deque()
        self._stored: dict[Resource, dict[Key, Stored]] = {}

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Return the objects, by namespace and name."""
        found = self._stored.get(resource, {})
        return [found[key].obj for key in sorted(found) if not namespace or key[0] == namespace]

    def count(self, resource: Resource) -> int:
        """Return how many objects there are."""
        return len(self._stored.get(resource, {}))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object.

        Raises:
            Refusal: there is none.
        """
        return self._find(resource, (namespace, name)).obj

    def create(self, resource: Resource, obj: Object, manager: str = "test") -> Object:
        """Create an object."""
        obj = deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        key = _key(metadata)
        if not key[1]:
            raise Refusal(422, "Invalid", "metadata.name: Required value")
        if metadata.pop("resourceVersion", ""):
            raise Refusal(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if key in self._stored.get(resource, {}):
            raise Refusal(409, "AlreadyExists", f'{_qualified(resource)} "{key[1]}" already exists')
        if resource.group == "criproxy.io":
            obj.pop("status", None)
        stored = Stored(obj, {(manager, "Update", ""): set(leaves(obj))})
        return self._save(resource, key, stored, None)

    def update(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        change: Callable[[Object], Object],
        *,
        manager: str = "test",
        subresource: str = "",
    ) -> Object:
        """Replace an object, or its status, by what *change* makes of it; a version that it has must fit."""
        key = (namespace, name)
        stored = self._find(resource, key)
        before = stored.obj
        new = change(deepcopy(before))
        _check_version(resource, before, new)
        new = _scoped(before, new, subresource)
        owners = {owner: set(paths) for owner, paths in stored.owners.items()}
        was, now = leaves(before), leaves(new)
        changed = {path for path in now if path not in was or was[path] != now[path]}
        for paths in owners.values():
            paths.intersection_update(now.keys() - changed)
        owners.setdefault((manager, "Update", subresource), set()).update(changed)
        return self._save(resource, key, Stored(new, {each: paths for each, paths in owners.items() if paths}), stored)

    def apply(
        self, resource: Resource, config: Object, *, manager: str, force: bool = False, subresource: str = ""
    ) -> Object:
        """Apply *config* for *manager* (server-side apply).

        Raises:
            Refusal: another manager has another value in one of its fields (409), unless *force*.
        """
        key, owner = _key(config["metadata"]), (manager, "Apply", subresource)
        stored = self._stored.get(resource, {}).get(key)
        if stored is None and subresource:
            self._find(resource, key)
        _check_applied(resource, config, stored)
        old = stored or Stored({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}, {})
        wanted = leaves(_scoped({"metadata": {}}, config, subresource, whole=resource.group != "criproxy.io"))
        others = {each: set(paths) for each, paths in old.owners.items() if each != owner}
        live = leaves(old.obj)
        taken = {path for path, value in wanted.items() if path not in live or live[path] != value}
        conflicts = [(each[0], path) for each, paths in others.items() for path in sorted(paths & taken)]
        if conflicts and not force:
            texts = ", ".join(f'conflict with "{who}": .{".".join(s[2:] for s in path)}' for who, path in conflicts)
            raise Refusal(409, "Conflict", f"Apply failed with {len(conflicts)} conflicts: {texts}")
        owners = {owner: set(wanted)} | {each: paths - taken for each, paths in others.items()}
        new = deepcopy(old.obj)
        for path in old.owners.get(owner, set()).difference(wanted, *others.values()):
            remove(new, path)
        for path, value in wanted.items():
            put(new, path, value)
        names = {name: config["metadata"][name] for name in ("name", "namespace") if name in config["metadata"]}
        new["metadata"] |= names
        return self._save(resource, key, Stored(new, {each: paths for each, paths in owners.items() if paths}), stored)

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> Object:
        """Delete an object; with *uid*, only this one."""
        stored = self._find(resource, (namespace, name))
        if uid and stored.obj["metadata"]["uid"] != uid:
            raise Refusal(409, "Conflict", f'the UID in the precondition ({uid}) does not match that of "{name}"')
        del self._stored[resource][namespace, name]
        gone = deepcopy(stored.obj)
        gone["metadata"]["resourceVersion"] = str(self._next())
        self._happened("DELETED", resource, gone, stored.obj)
        return gone

    def compact(self) -> None:
        """Forget all events: no watch can go on from before now."""
        self.events.clear()
        self.oldest = self.version

    def wipe(self) -> None:
        """Delete all objects."""
        for resource, found in self._stored.items():
            for namespace, name in list(found):
                self.delete(resource, name, namespace)

    def _find(self, resource: Resource, key: Key) -> Stored:
        try:
            return self._stored[resource][key]
        except KeyError:
            raise Refusal(404, "NotFound", f'{_qualified(resource)} "{key[1]}" not found') from None

    def _next(self) -> int:
        self.version = next(self._versions)
        return self.version

    def _save(self, resource: Resource, key: Key, new: Stored, old: Stored | None) -> Object:
        obj, before = new.obj, old.obj if old else None
        metadata = obj["metadata"]
        metadata["managedFields"] = managed_fields(new.owners, resource.api_version)
        if before is not None and before == obj:
            return before
        if before is None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
            obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        if "." in resource.group and not resource.group.endswith("k8s.io"):
            metadata["generation"] = _generation(before, obj)
        metadata["resourceVersion"] = str(self._next())
        self._stored.setdefault(resource, {})[key] = new
        self._happened("ADDED" if before is None else "MODIFIED", resource, obj, before)
        return obj

    def _happened(self, kind: str, resource: Resource, obj: Object, before: Object | None) -> None:
        event = Event(self.version, resource, kind, obj, before)
        self.events.append(event)
        if len(self.events) > MOST_EVENTS:
            self.oldest = self.events.popleft().version
        self._notify(event)


def _check_version(resource: Resource, before: Object, new: Object) -> None:
    """Refuse a write that names another version than that of the object."""
    wanted = new.get("metadata", {}).get("resourceVersion")
    if wanted is not None and wanted != before["metadata"]["resourceVersion"]:
        name, text = before["metadata"]["name"], "the object has been modified; please apply your changes to the latest"
        message = f'Operation cannot be fulfilled on {_qualified(resource)} "{name}": {text} version and try again'
        raise Refusal(409, "Conflict", message)


def _check_applied(resource: Resource, config: Object, stored: Stored | None) -> None:
    """Refuse what cannot be applied, or is not meant for this object."""
    if config["metadata"].get("managedFields"):
        raise Refusal(400, "BadRequest", "metadata.managedFields must be nil")
    if stored is not None:
        _check_version(resource, stored.obj, config)
    uid = config["metadata"].get("uid")
    if uid and (stored is None or stored.obj["metadata"]["uid"] != uid):
        raise Refusal(409, "Conflict", f"uid mismatch: the provided object specified uid {uid}")


def _scoped(before: Object, new: Object, subresource: str, *, whole: bool = False) -> Object:
    """Return what a write of the object, or of its status, really changes: of the status nothing, or only that."""
    if subresource == "status":
        found = deepcopy(before)
        found.pop("status", None)
        return found | ({"status": new["status"]} if "status" in new else {})
    found = {key: value for key, value in new.items() if key != "status" or whole}
    system = ("uid", "resourceVersion", "generation", "creationTimestamp", "name", "namespace")
    metadata = {key: value for key, value in new.get("metadata", {}).items() if key not in system}
    kept = {key: before["metadata"][key] for key in system if key in before["metadata"]}
    found["metadata"] = kept | metadata
    return found | ({"status": before["status"]} if "status" in before and not whole else {})


def _generation(before: Object | None, obj: Object) -> int:
    if before is None:
        return 1
    ignored = {"metadata", "status"}
    same = {k: v for k, v in before.items() if k not in ignored} == {k: v for k, v in obj.items() if k not in ignored}
    return int(before["metadata"].get("generation", 1)) + (not same)


def _key(metadata: Object) -> Key:
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
