"""Commands that need no daemon: check, simulate, topology, schema, completion."""
