"""criproxy: a CRI proxy resource manager between the kubelet and the container runtime."""

__version__ = "0.1.0"
