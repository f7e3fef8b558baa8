"""What every process of criproxy needs: logs, supervised tasks, child processes, systemd, HTTP."""
