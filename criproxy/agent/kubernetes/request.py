"""A request to the API server, and what can come of it: an object, a refusal, or nothing that can be used."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.errors import CriproxyError

Object = dict[str, Any]
"""A Kubernetes object as JSON."""
MOST_CHARS = 300
"""Characters of a text of the server that an error repeats."""
JSON = "application/json"
NOT_SENT = ": not sent: "
"""Between a request and why none can be sent now, which is the same for all of them."""
_METADATA_LIST = "PartialObjectMetadataList"
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


class ApiError(CriproxyError):
    """An answer of the API server other than 2xx."""

    def __init__(self, text: str, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s

    @staticmethod
    def of(text: str, status: int, retry_after_s: float | None = None) -> "ApiError":
        """Return the error of the class for *status*."""
        return {404: NotFound, 409: Conflict}.get(status, ApiError)(text, status, retry_after_s)


class NotFound(ApiError):
    """There is no such object, or no such resource (404)."""


class Conflict(ApiError):
    """The object exists already, or has changed; or another manager has set a field (409)."""


class Unreachable(CriproxyError):
    """No usable answer: not in time, connection refused or lost, no credentials, not JSON, or too long."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    verb: str
    """As in RBAC."""
    plural: str
    path: str
    """With the leading slash."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return _METHODS.get(self.verb, "GET")

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    def read(self, text: bytes) -> Object:
        """Return the JSON object *text*, an answer or a part of it.

        Raises:
            Unreachable: it is none.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unreachable(f"{self}: the answer is not JSON: {str(error)[:MOST_CHARS]}") from error
        if not isinstance(found, dict):
            raise Unreachable(f"{self}: the answer is not an object but a {type(found).__name__}")
        return found

    def items(self, page: Object) -> list[Object]:
        """Return the objects of the list *page*.

        Raises:
            Unreachable: it is none, or something in it is not an object.
        """
        items = page.get("items")
        if page.get("kind") == _METADATA_LIST and page.get("items", ...) is None:
            return []  # so Kubernetes writes an empty list, where only metadata are asked for
        if not isinstance(items, list) or not all(is_object(item) for item in items):
            raise Unreachable(f"{self}: the answer is not a list of objects")
        return items


def is_object(found: object) -> bool:
    """Whether *found* is an object with a name."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def version_of(found: object) -> str:
    """Return the resource version of an object or list; empty if there is none."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""
