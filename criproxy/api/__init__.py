"""What others ask the daemon: the answers of the control socket, and recordings."""
