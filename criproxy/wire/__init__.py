"""Bytes: HTTP/2 frames and gRPC messages. Knows nothing of CRI; the method table is an argument."""
