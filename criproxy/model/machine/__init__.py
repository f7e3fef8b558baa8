"""The machine: CPUs, caches, NUMA nodes, memory."""
