"""The node's state on disk."""

from criproxy.model.record import Kind, Record
from criproxy.store.store import Store

__all__ = ["Kind", "Record", "Store"]
