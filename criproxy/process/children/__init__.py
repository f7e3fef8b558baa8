"""Child processes, which end with their parent."""
