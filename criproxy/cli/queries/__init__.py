"""Commands that ask the daemon: status, explain, who, fit and their like."""
