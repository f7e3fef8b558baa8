"""The node's state on disk."""

from criproxy.store.database import Record
from criproxy.store.store import Store

__all__ = ["Record", "Store"]
