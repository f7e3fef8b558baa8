"""Sentences about a policy that fails: authors of policies try them in simulations."""

import traceback
from dataclasses import fields

from criproxy.errors import CriproxyError
from criproxy.model.node import Node
from criproxy.placement.events import ContainerCreating, Event


class PolicyAtFault(CriproxyError):
    """A policy that raised something else than a refusal, or broke a rule; the text says which, when and at what."""


def raised(error: Exception) -> str:
    """The exception and where it was raised in the code, such as ``KeyError in policy.py:12: 'web'``."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {last.filename}:{last.lineno}: {error}"


def about(event: Event, node: Node) -> str:
    """An event and whom it is about, by the name that people know: ``ContainerCreating of default/web/main``."""
    kind = type(event).__name__
    if isinstance(event, ContainerCreating):
        return f"{kind} of {event.container.title}"
    key = next((getattr(event, field.name) for field in fields(event) if field.name in ("key", "reservation")), "")
    known = node.containers.get(key) or node.pods.get(key)
    return f"{kind} of {known.title if known else key}" if key else kind
