"""The node's state on disk."""
