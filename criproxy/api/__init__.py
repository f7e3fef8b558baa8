"""The commands of the control socket: the replies of the daemon to its clients, and recordings."""
