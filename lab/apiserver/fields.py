"""Patches of objects, and who manages which of their fields (server-side apply)."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
Owner = tuple[str, str, str]
"""Manager, operation (Apply or Update), subresource."""
_KEYS = {"conditions": "type", "addresses": "type", "taints": "key"}
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
    """Return *base* with a strategic merge patch, of what node conditions, addresses and taints need."""
    if isinstance(patch, list) and key in _KEYS and isinstance(base, list):
        return _merged_list(base, patch, _KEYS[key])
    if not isinstance(patch, dict):
        return deepcopy(patch)
    found = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            found.pop(name, None)
        else:
            found[name] = strategic(found.get(name), value, name)
    return found


def _merged_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in patch):
        return [deepcopy(each) for each in patch if "$patch" not in each]
    found = {each.get(key): each for each in base}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each.get(key), None)
        else:
            found[each.get(key)] = strategic(found.get(each.get(key)), each)
    return list(found.values())


def leaves(obj: Object) -> dict[Path, Any]:
    """Return the fields of an object that have managers, with their values; a list is one field, except conditions."""
    found: dict[Path, Any] = {}
    for key, value in obj.items():
        if key == "metadata":
            own = {name: each for name, each in value.items() if name not in _OF_SYSTEM}
            found |= dict(_leaves(("f:metadata",), own, "")) if own else {}
        elif key not in {"apiVersion", "kind"}:
            found |= dict(_leaves((f"f:{key}",), value, key))
    return found


def _leaves(path: Path, value: Any, name: str) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves((*path, f"f:{key}"), each, key)
    elif name == "conditions" and isinstance(value, list):
        for each in value:
            item = "k:" + json.dumps({"type": each.get("type")}, separators=(",", ":"))
            yield from _leaves((*path, item), each, "")
    else:
        yield path, value


def put(obj: Object, path: Path, value: Any) -> None:  # noqa: ANN401 (JSON)
    """Set the field at *path*; what is above it is made."""
    here: Any = obj
    for step, after in zip(path, (*path[1:], ""), strict=True):
        last = not after
        if step.startswith("k:"):
            wanted = json.loads(step[2:])
            item = next((each for each in here if wanted.items() <= each.items()), None)
            if item is None:
                here.append(item := dict(wanted))
            here = item
        elif last:
            here[step[2:]] = deepcopy(value)
        else:
            here = here.setdefault(step[2:], [] if after.startswith("k:") else {})


def remove(obj: Object, path: Path) -> None:
    """Remove the field at *path*, and what is empty above it."""
    above: list[tuple[Any, Any]] = []
    here: Any = obj
    for step in path:
        if step.startswith("k:"):
            wanted = json.loads(step[2:])
            key: Any = next((n for n, each in enumerate(here) if wanted.items() <= each.items()), None)
        else:
            key = step[2:] if isinstance(here, dict) and step[2:] in here else None
        if key is None:
            return
        above.append((here, key))
        here = here[key]
    if (
        len(path) > 1
        and path[-2].startswith("k:")
        and path[-1][2:] in json.loads(path[-2][2:])
        and not _only_key(above[-1][0], path[-2])
    ):
        return  # the key of an item goes with the last of its other fields
    for depth, (parent, key) in enumerate(reversed(above)):
        if depth and parent[key] and not _only_key(parent[key], path[len(above) - depth - 1]):
            return
        del parent[key]


def _only_key(item: object, step: str) -> bool:
    return step.startswith("k:") and item == json.loads(step[2:])


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
