"""Random machines, lives of containers and changes: what must always be true, for every policy."""
