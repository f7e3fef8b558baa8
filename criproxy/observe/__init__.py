"""What people see of the daemon: logs, metrics, HTTP."""
