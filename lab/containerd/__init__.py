"""A private containerd."""
