"""Our Kubernetes objects as values, and what is made of the daemon's answer; pure."""
