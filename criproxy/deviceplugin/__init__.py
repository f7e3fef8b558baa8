"""The node's device plugin: one server for each resource, beside the proxy."""
