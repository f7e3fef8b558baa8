"""The embedded container runtime, a private containerd and a small kubelet."""
