"""HTTP on --http: addresses, limits, the server."""
