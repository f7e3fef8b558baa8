"""Reads the machine: CPUs, caches, NUMA nodes, memory, devices."""
