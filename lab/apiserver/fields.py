"""Patches of objects, and who manages which of their fields (server-side apply)."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
Owner = tuple[str, str, str]
"""Manager, operation (Apply or Update), subresource."""
_KEYS = {"conditions": "type", "taints": "key"}
"""Lists of Kubernetes' own objects that a strategic merge takes as maps, with their keys."""
_OF_SYSTEM = {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}


def merged(base: Any, patch: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return *base* with a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def strategic(base: Any, patch: Any, key: str = "") -> Any:  # noqa: ANN401 (JSON)
    """Return *base* with a strategic merge patch, of what node conditions and taints need."""
    if isinstance(patch, list) and key in _KEYS and isinstance(base, list):
        found = {each[_KEYS[key]]: each for each in base}
        found |= {each[_KEYS[key]]: strategic(found.get(each[_KEYS[key]]), each) for each in patch}
        return list(found.values())
    if not isinstance(patch, dict):
        return deepcopy(patch)
    known = base if isinstance(base, dict) else {}
    values = {name: strategic(known.get(name), value, name) for name, value in patch.items()}
    return {name: value for name, value in (known | values).items() if value is not None}


def leaves(obj: Object) -> dict[Path, Any]:
    """Return the fields of an object that have managers, with their values; a list is one field."""
    found: dict[Path, Any] = {}
    for key, value in obj.items():
        if key == "metadata":
            own = {name: each for name, each in value.items() if name not in _OF_SYSTEM}
            found |= dict(_leaves(("f:metadata",), own)) if own else {}
        elif key not in {"apiVersion", "kind"}:
            found |= dict(_leaves((f"f:{key}",), value))
    return found


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves((*path, f"f:{key}"), each)
    else:
        yield path, value


def put(obj: Object, path: Path, value: Any) -> None:  # noqa: ANN401 (JSON)
    """Set the field at *path*; what is above it is made."""
    here = obj
    for step in path[:-1]:
        here = here.setdefault(step[2:], {})
    here[path[-1][2:]] = deepcopy(value)


def remove(obj: Object, path: Path) -> None:
    """Remove the field at *path*, and what is empty above it."""
    above: list[tuple[Object, str]] = []
    here: Any = obj
    for step in path:
        if not isinstance(here, dict) or step[2:] not in here:
            return
        above.append((here, step[2:]))
        here = here[step[2:]]
    for parent, key in reversed(above):
        del parent[key]
        if parent:
            return


def managed_fields(owners: Mapping[Owner, set[Path]], api_version: str) -> list[Object]:
    """Return the managers of an object as it shows them."""
    found = []
    for (manager, operation, subresource), paths in sorted(owners.items()):
        tree: Object = {}
        for path in sorted(paths):
            here = tree
            for step in path:
                here = here.setdefault(step, {})
        entry: Object = {"manager": manager, "operation": operation, "apiVersion": api_version}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
        found.append(entry | ({"subresource": subresource} if subresource else {}))
    return found
