"""Scenario files: a machine, a policy, pods that come and go, and where they are expected; read, run and judged."""
