"""Reads the machine: CPUs, caches, NUMA nodes, memory, devices.

`discover` reads what placement needs, at every start. `host.hardware.inspect` reads what users ask for.
"""

from criproxy.host.machine import discover

__all__ = ["discover"]
