"""Addresses for servers that are told where to listen."""

import random
import socket
from pathlib import Path

_FIRST, _END = 10_081, 65_536
"""Browsers refuse some ports below, which belong to other protocols; the highest is 10080."""
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_address(host: str = "127.0.0.1") -> str:
    """An address that nobody listens on.

    The port is none that the kernel hands out, as far as there are such: one of those could be given to another program
    before the server listens.
    """
    usable = ports(*map(int, _HANDED_OUT.read_text().split()))
    while True:
        port = random.choice(usable)
        try:
            with socket.create_server((host, port)):
                return f"{host}:{port}"
        except OSError:
            continue  # somebody listens there


def ports(first: int, last: int) -> list[int]:
    """The ports that `free_address` tries where the kernel hands out those from *first* to *last*."""
    every = range(_FIRST, _END)
    return [port for port in every if not first <= port <= last] or [*every]
