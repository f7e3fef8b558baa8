"""A real control plane and nodes: Kubernetes' own programs, criproxy and its agents, and checks of all together."""
