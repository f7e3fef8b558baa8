"""A small kubelet with a device manager."""
