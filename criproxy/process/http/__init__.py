"""HTTP: addresses, the server, its limits, and tokens."""
