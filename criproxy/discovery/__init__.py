"""Reads the machine: CPUs, caches, NUMA nodes, memory, devices."""

from criproxy.discovery.machine import discover

__all__ = ["discover"]
