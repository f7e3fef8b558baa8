"""``criproxy agent``: connects a node with the Kubernetes API; the daemon never waits for it."""
