"""A small API server for tests and rigs: objects, watches, server-side apply, and faults that a test turns on."""
