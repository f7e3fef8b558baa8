"""``python -m criproxy.cli.bundle.worker PART SETTINGS``: prints one part, which no command of criproxy has."""

import asyncio
import json
import os
import platform
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.errors import CriproxyError, reason_of
from criproxy.install import paths
from criproxy.install.host import Host
from criproxy.install.texts import environment_of, flag
from criproxy.model.text.sources import node_policy_of

MAX_METRICS_BYTES = 4 << 20
ANSWER_S = 5.0
_MANAGERS = (
    *("cpuManager", "cpuCFS", "topologyManager", "memoryManager", "reserved", "kubeReserved", "systemReserved"),
    *("enforceNodeAllocatable", "eviction", "cgroup", "kubeletCgroups", "systemCgroups", "featureGates"),
    *("containerRuntimeEndpoint", "imageServiceEndpoint", "runtimeRequestTimeout", "maxPods", "podPidsLimit"),
)
"""The beginnings of the keys of the kubelet's configuration that are shown: others may name secrets and clusters."""
_MANAGER_FLAGS = ("cpu-", "topology-manager", "memory-manager", "reserved-", "kube-reserved", "system-reserved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The paths on the node; absolute, since the parts run in another directory."""

    control_socket: str
    state_dir: str
    host_root: str = "/"
    config: str = ""
    """The policy file or directory; empty: that of the daemon, and that of the installed unit."""
    runtime_endpoint: str = ""
    """Empty: that of the installed unit."""
    http: tuple[str, ...] = ()
    """The addresses of metrics; empty: those of the installed units."""
    with_state: bool = False

    def path(self, name: str) -> Path:
        """Return where the node's path *name* is for this process."""
        return Path(self.host_root) / name.lstrip("/")

    def unit_option(self, name: str, file: str = paths.DEFAULTS) -> str:
        """Return the value of the option ``--name`` in the environment file of a unit; empty without it."""
        with suppress(OSError, ValueError):
            options = environment_of(Host(self.path("/")).read(file) or "").get(paths.UNIT_OPTIONS[file], "")
            return flag(shlex.split(options), name) or ""
        return ""


def versions(settings: Settings) -> Iterator[str]:
    """Yield the versions of criproxy and its libraries, of Python, the kernel and the distribution."""
    kernel = os.uname()
    yield f"criproxy {__version__}\nPython {platform.python_version()} ({platform.python_implementation()})"
    with suppress(OSError):
        release = settings.path("/etc/os-release").read_text(errors="replace").splitlines()
        yield from (line.partition("=")[2].strip('"') for line in release if line.startswith("PRETTY_NAME="))
    yield f"kernel {kernel.sysname} {kernel.release} {kernel.version} {kernel.machine}"
    for line in requires("criproxy") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        with suppress(ImportError):  # of an extra
            yield f"{name} {version(name)}"


def policy_files(settings: Settings) -> Iterator[str]:
    """Yield the paths of the policy files: the named one, or that of the daemon and that of the unit.

    They differ while another file is tried, or if the daemon was not started by the unit.
    """
    from criproxy.cli.client import ask
    from criproxy.config.files import choose

    places = [Path(settings.config)] if settings.config else []
    if not places:
        with suppress(CriproxyError, LookupError, TypeError):  # the part with its status says why
            status = ask(settings.control_socket, "status", {}, ANSWER_S, notes_delay=False)
            file = str(status["configuration"]["file"])
            if file and not node_policy_of(file):
                places.append(settings.path(file))
        of_unit = settings.path(settings.unit_option("config") or "/etc/criproxy/policy.yaml")
        if not places or os.path.lexists(of_unit):
            places.append(of_unit)
    for place in dict.fromkeys(places):
        try:
            yield str(choose(place, os.uname().nodename).file)
        except CriproxyError as error:
            print(error, file=sys.stderr)  # noqa: T201 - what the parent reads


def runtime(settings: Settings) -> Iterator[str]:
    """Yield the runtime's answer to Version on its own socket."""
    from criproxy.cri.runtime import RuntimeClient
    from criproxy.wire.sockets import unix_path

    of_unit = settings.unit_option("runtime-endpoint") or paths.CONTAINERD
    named = settings.runtime_endpoint
    path = unix_path(named, "--runtime-endpoint") if named else str(settings.path(paths.socket_of(of_unit)))

    async def ask() -> Any:  # noqa: ANN401 - a message of the API
        client = RuntimeClient(f"unix://{path}", ANSWER_S)
        try:
            return await client.version()
        finally:
            await client.close()

    answer = asyncio.run(ask())
    yield f"{answer.runtime_name} {answer.runtime_version}, CRI {answer.runtime_api_version} on {path}"


def kubelet(settings: Settings) -> Iterator[str]:
    """Yield how the kubelet is started, and its settings of CPUs, memory and topology."""
    from criproxy.install.kubelet import find_kubelet
    from criproxy.install.plan import configured_runtime, rivals

    host = Host(settings.path("/"))
    found = find_kubelet(host, None)
    yield f"{found.kind}, unit {found.unit}\n{' '.join(found.words)}\nendpoint: {found.endpoint or 'the default'}"
    sockets = {*paths.RUNTIMES, configured_runtime(host), paths.socket_of(found.endpoint)} - {""}
    yield f"sockets: {' '.join(sorted(filter(host.is_socket, sockets))) or 'none'}"
    yield from rivals(found)
    for path in found.configs:
        yield f"{path}: {json.dumps(managers(found.data(path)), indent=1)}"


def managers(data: dict[str, Any]) -> dict[str, Any]:
    """Return those keys of a configuration of the kubelet, or of k3s, that are about CPUs, memory and topology."""
    chosen = {key: value for key, value in data.items() if key.startswith(_MANAGERS)}
    for key in ("kubelet-arg", "kubelet-arg+"):
        arguments = data.get(key, [])
        listed = map(str, arguments if isinstance(arguments, list) else [arguments])
        if found := [each for each in listed if each.startswith((*_MANAGER_FLAGS, "cgroup"))]:
            chosen[key] = found
    return chosen


def integrity(settings: Settings) -> Iterator[str]:
    """Yield whether the state database is intact."""
    from criproxy.store import reader

    yield json.dumps(reader.integrity(Path(settings.state_dir)))


def content(settings: Settings) -> Iterator[str]:
    """Yield the content of the state database."""
    from criproxy.store import reader

    yield json.dumps(reader.contents(Path(settings.state_dir)))


def metrics(settings: Settings) -> Iterator[str]:
    """Yield what ``/metrics``, ``/healthz`` and ``/readyz`` answer, of the daemon and of the device plugin."""
    named = settings.http or tuple(_http_of_units(settings))
    if not named:
        raise CriproxyError("--http is not among the options of the units; name it with --http")
    for address in named:
        for path in ("/metrics", "/healthz", "/readyz"):
            try:
                yield f"{address} {path}: {_get(address, path)}"
            except (OSError, HTTPException, CriproxyError) as error:
                print(f"{address} {path}: {_why(error)}", file=sys.stderr)  # noqa: T201 - what the parent reads
                break  # it would be the same again


def _http_of_units(settings: Settings) -> Iterator[str]:
    for file in paths.UNIT_OPTIONS:
        if address := settings.unit_option("http", file):
            is_socket = address.startswith(("unix:", "/"))
            yield f"unix://{settings.path(paths.socket_of(address))}" if is_socket else address


def _get(text: str, path: str) -> str:
    from criproxy.process.http.address import Address

    address = Address.parse(text)
    connection = HTTPConnection(address.host or "localhost", address.port or 80, timeout=ANSWER_S)
    with closing(connection):
        if address.path is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(ANSWER_S)
            connection.sock.connect(address.path)
        connection.request("GET", path)
        answer = connection.getresponse()
        return f"{answer.status}\n{answer.read(MAX_METRICS_BYTES).decode(errors='replace')}"


WORKERS: dict[str, Callable[[Settings], Iterator[str]]] = {
    each.__name__: each for each in (versions, policy_files, runtime, kubelet, integrity, content, metrics)
}


def main(part: str, settings: str) -> int:
    """Print a part, each piece as soon as it is known; return the exit status."""
    try:
        values = json.loads(settings)
        for piece in WORKERS[part](Settings(**{**values, "http": tuple(values["http"])})):
            print(piece, flush=True)  # noqa: T201
    except Exception as error:  # noqa: BLE001 (any error costs only this part, and is printed)
        print(_why(error), file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _why(error: Exception) -> str:
    return reason_of(error) if isinstance(error, CriproxyError | OSError) else repr(error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
