"""What follows for the attributes of a container beside its cpuset: its CFS quota, and what its classes set."""
