"""The options of `criproxy serve`, and the addresses in them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.errors import UsageError
from criproxy.process.http.address import Address
from criproxy.wire.sockets import unix_path

MAIN, IMAGE = "criproxy", "criproxy-image"
"""The names of the sockets for the kubelet, of `systemd.SOCKET_NAMES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `criproxy serve`."""

    config: Path | None
    listen: str
    runtime_endpoint: str
    image_listen: str | None
    image_endpoint: str | None
    state_dir: Path
    host_root: Path
    http: str | None
    http_token_file: Path | None = None
    control_socket: str
    trace_calls: tuple[str, ...]
    nri: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses in `Options`, as paths."""

    pairs: Mapping[str, tuple[str, str]]
    """Name of the socket (`MAIN`, `IMAGE`) → where we listen, and the runtime behind it; empty with NRI."""
    runtime: str
    """The runtime's socket for CRI."""
    control: str
    http: Address | None
    nri: str = ""
    """The runtime's socket for NRI; empty: the kubelet's calls come through `pairs`."""

    @classmethod
    def of(cls, options: Options) -> "Endpoints":
        """Check the addresses.

        Raises:
            UsageError: an address is malformed, missing or used twice.
        """
        runtime = unix_path(options.runtime_endpoint, "--runtime-endpoint")
        pairs = {MAIN: (unix_path(options.listen, "--listen"), runtime)} if options.nri is None else {}
        nri = "" if options.nri is None else unix_path(options.nri, "--nri")
        if (options.image_listen is None) != (options.image_endpoint is None):
            raise UsageError(
                "--image-listen and --image-endpoint go together: "
                "a separate image service needs a socket of its own, and that socket a service behind it"
            )
        if options.nri is not None and options.image_listen is not None:
            raise UsageError("--image-listen has no effect with --nri: the kubelet calls the runtime itself")
        if options.image_listen is not None and options.image_endpoint is not None:
            image = unix_path(options.image_endpoint, "--image-endpoint")
            pairs[IMAGE] = (unix_path(options.image_listen, "--image-listen"), image)
        control = unix_path(options.control_socket, "--control-socket")
        unix_path(read_only(control), "--control-socket (the socket for queries)")
        unix_path(agent(control), "--control-socket (the socket for the agent)")
        http = Address.parse(options.http) if options.http is not None else None
        beside, behind = pairs.get(IMAGE, ("", ""))
        named = {"--listen": pairs.get(MAIN, ("",))[0], "--image-listen": beside, "--control-socket": control}
        named |= {"--http": http.path or "" if http else "", "--nri": nri}
        _check_distinct(named, {"--runtime-endpoint": runtime, "--image-endpoint": behind})
        return cls(pairs, runtime, control, http, nri)


def read_only(control: str) -> str:
    """Return the path of the socket that answers only queries: alone in a directory, below that of the control socket.

    Its name is that of the control socket, so that a container that has this directory in place of the other one finds
    it where commands look for the control socket.
    """
    folder, name = os.path.split(control)
    return f"{folder}/read-only/pod/{name}"


def agent(control: str) -> str:
    """Return the path of the agent's socket, which is as that of `read_only`."""
    folder, name = os.path.split(control)
    return f"{folder}/agent/pod/{name}"


def _check_distinct(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Check that all sockets of *ours* differ from each other and from *theirs*. Empty paths are ignored.

    Raises:
        UsageError: two sockets have the same path after links are resolved.
    """
    taken: dict[str, str] = {}
    for option, path in [*ours.items(), *theirs.items()]:
        if not path:
            continue
        real = os.path.realpath(path)
        if (other := taken.get(real)) is not None:
            raise UsageError(f"{other} and {option} are both {real}, but each needs a socket of its own")
        if option in ours:
            taken[real] = option
