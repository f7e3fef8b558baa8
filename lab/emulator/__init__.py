"""The embedded container runtime."""
