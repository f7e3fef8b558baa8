"""Device plugin servers beside the proxy."""
