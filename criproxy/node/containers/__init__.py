"""What is known of each container beside the node's state: its cgroup, its lock, what is in flight."""
