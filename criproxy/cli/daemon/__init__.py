"""The only client of the daemon's control socket, and the answers of the store while no daemon runs."""
