"""Parts of a bundle about criproxy itself: policy files, state on disk, log, units, metrics."""

import os
import shlex
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from criproxy.cli.bundle.machine import ERROR, Files, why
from criproxy.cli.bundle.settings import Settings
from criproxy.cli.bundle.unit_options import VARIABLES, regular_text, unit_option
from criproxy.cli.daemon.client import ask
from criproxy.errors import CriproxyError, reason_of

MAX_LOG_BYTES = 6 << 20
MAX_METRICS_BYTES = 4 << 20
LOG_LINES, LOG_TIME = 20_000, "-1h"
_MOST_FILES = 50
_HTTP_S = 3.0
_DAEMON_S = 5.0
_UNITS = ("criproxy.service", "criproxy.socket", "criproxy-device-plugin.service")
_PROPERTIES = (
    "Id,ActiveState,SubState,Result,NRestarts,ActiveEnterTimestamp,ExecMainStatus,MemoryCurrent,CPUUsageNSec,"
    "TasksCurrent"
)
_POLICY = "/etc/criproxy/policy.yaml"


def policy_files(settings: Settings) -> Files:
    """The policy file that this node uses, and the environment files of the units."""
    used = list[Path]()
    for place in _policy_places(settings):
        try:
            path = _policy_file(place)
        except CriproxyError as error:
            yield ERROR, str(error)
            continue
        if path not in used:
            used.append(path)
            yield from _policy_text(path, f"{len(used)}-" if len(used) > 1 else "")
    for path in map(settings.path, VARIABLES):
        try:
            yield f"policy/{path.name}.env", regular_text(path)
        except FileNotFoundError:  # the node has no such unit, or it is installed by hand
            continue
        except OSError as error:
            yield ERROR, f"{path}: {reason_of(error)}"


def _policy_text(path: Path, prefix: str) -> Files:
    """Yield a policy file, or why it cannot be read; *prefix*: distinguishes files of the same name."""
    try:
        yield f"policy/{prefix}{path.name}{'' if path.suffix in ('.yaml', '.yml') else '.yaml'}", regular_text(path)
    except OSError as error:
        yield ERROR, f"{path}: {reason_of(error)}"


def _policy_places(settings: Settings) -> list[Path]:
    """Return the policy files or directories to collect: the named one, or that of the daemon and that of the unit.

    They differ while another file is tried, or if the daemon was not started by the unit.
    """
    if settings.config:
        return [Path(settings.config)]
    in_effect, of_unit = _in_effect(settings), unit_option(settings, "config")
    places = [settings.path(place) for place in (in_effect, of_unit) if place]
    default = settings.path(_POLICY)
    if not places or (not of_unit and os.path.lexists(default)):
        places.append(default)
    return places


def _in_effect(settings: Settings) -> str:
    """Return the policy file that the daemon has in effect; empty if it has none, or does not answer."""
    try:
        status = ask(settings.control_socket, "status", {}, _DAEMON_S, tells=False)
        return str(status["configuration"]["file"])
    except (CriproxyError, LookupError, TypeError):  # the part with its status says why
        return ""


def _policy_file(place: Path) -> Path:
    """Return the file that this node uses."""
    from criproxy.config.choice import choose

    return choose(place, os.uname().nodename).file


def state(settings: Settings) -> Files:
    """The files in the state directory, whether the database is intact, and its content if it is wanted."""
    from criproxy.store.reader import contents, integrity

    folder = Path(settings.state_dir)
    for path in sorted(folder.rglob("*"))[: 20 * _MOST_FILES]:
        found = path.lstat()
        mode = stat.filemode(found.st_mode)
        yield "state/files.txt", f"{mode} {found.st_uid} {found.st_size:>10} {path.relative_to(folder)}\n"
    yield "state/integrity.json", integrity(folder)
    if settings.with_state:
        yield "state/content.json", contents(folder)


def log(settings: Settings) -> Files:
    """The last hour of criproxy's log in the journal."""
    units = [word for unit in _UNITS for word in ("-u", unit)]
    what = ("--since", LOG_TIME, "--lines", str(LOG_LINES), "-o", "short-iso", "--no-hostname", "--no-pager")
    shown = shlex.join(["journalctl", *units, *what])
    yield "log.txt", _output(settings, ["sh", "-c", f"{shown} | tail -c {MAX_LOG_BYTES}"])


def units(settings: Settings) -> Files:
    """The state of criproxy's units, of the kubelet and of the runtime, and criproxy's unit files."""
    others = ("kubelet.service", "containerd.service", "crio.service", "k3s.service", "k3s-agent.service")
    yield "units.txt", _output(settings, ["systemctl", "show", "-p", _PROPERTIES, *_UNITS, *others])
    yield "units.txt", "\n" + _output(settings, ["systemctl", "cat", *_UNITS[:2]])
    yield "units.txt", "\n" + _output(settings, ["systemctl", "--version"])


def _output(settings: Settings, command: list[str]) -> str:
    from criproxy.install.host import Host

    status, output, errors = Host(settings.path("/")).run(command)
    if not output and (status or errors.strip()):
        raise CriproxyError(f"'{command[0]} {command[1]}' exited with status {status}: {errors.strip()[:500]}")
    return output


def metrics(settings: Settings) -> Files:
    """What ``/metrics``, ``/healthz`` and ``/readyz`` answer, of the daemon and of the device plugin."""
    named = settings.http or tuple(filter(None, (unit_option(settings, "http", file) for file in VARIABLES)))
    if not named:
        yield ERROR, "metrics: --http is not among the options of the units; name it with --http"
    for number, address in enumerate(named):
        for path in ("metrics", "healthz", "readyz"):
            try:
                yield f"http/{number}-{path}.txt", _get(address, f"/{path}")
            except (OSError, CriproxyError) as error:
                yield ERROR, f"{address} /{path}: {why(error)}"
                break  # it would be the same again


def _get(text: str, path: str) -> str:
    """Return the answer to a GET, without its headers."""
    from criproxy.process.http.address import Address

    address = Address.parse(text)
    if address.path is not None:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(_HTTP_S)
        target: str | tuple[str, int] = address.path
    else:
        sock = socket.create_connection((address.host, address.port), _HTTP_S)
        target = ""
    with sock:
        if target:
            sock.connect(target)
        sock.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = b"".join(_chunks(sock))
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0]
    said = body.decode(errors="replace")
    return said if b" 200 " in status + b" " else f"{status.decode(errors='replace')}\n{said}"


def _chunks(sock: socket.socket) -> Iterator[bytes]:
    size = 0
    while size < MAX_METRICS_BYTES and (chunk := sock.recv(1 << 16)):
        size += len(chunk)
        yield chunk
