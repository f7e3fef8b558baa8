"""Addresses for servers that are told where to listen."""

import random
import socket
from pathlib import Path

_FIRST = 1024
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_address(host: str = "127.0.0.1") -> str:
    """An address that nobody listens on.

    The port is below those that the kernel hands out, as far as there are such: one of those could be given to another
    program before the server listens.
    """
    end = int(_HANDED_OUT.read_text().split()[0])
    while True:
        port = random.randrange(_FIRST, end)
        try:
            with socket.create_server((host, port)):
                return f"{host}:{port}"
        except OSError:
            continue  # somebody listens there
