"""Observability of the daemon: logs, metrics, HTTP; the control socket, background tasks, child processes."""
