"""``kubectl proxy`` as a child process, and requests through it: kubectl knows the cluster, credentials and logins."""

import http.client
import json
import os
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import click

from criproxy.errors import CriproxyError, reason_of
from criproxy.process.tether import tethered

START_S = 30.0
"""How long kubectl may take until it serves; somebody may have to log in."""
END_S = 2.0
"""How long it may take to end before it is killed."""
MOST_BYTES = 64 << 20
"""The largest answer that is read; that of a full node has a few megabytes."""
_PART_BYTES = 1 << 16
_LOG_LINE = re.compile(rb"(?m)^(?:[IWEF]\d{4} \d\d:\d\d:|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d httputil: )[^\n]*\n?")
"""What kubectl logs about failed requests, which are reported here in a sentence of their own."""
_NO_KUBECTL = "kubectl is not in PATH: this command reaches the cluster through it, so install kubectl first"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the object in the body; empty if it is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def text(self) -> str:
        """What it says about an error: the message of a Kubernetes Status, an ``error``, or the body's first line."""
        found = self.json()
        said = found.get("message") or found.get("error") or self.body.decode(errors="replace").strip()
        return str(said).partition("\n")[0][:1000] or http.client.responses.get(self.status, str(self.status))


class ApiServer:
    """The API server, behind a `kubectl proxy`.

    Args:
        path: of the Unix socket on which kubectl serves.
        timeout_s: how long a request may take.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s

    def ask(self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to a GET request, or with *body* to a POST request, whatever its status.

        Raises:
            CriproxyError: there is no answer in time, it is too long, or kubectl cannot reach the API server.
            click.ClickException: kubectl has ended.
        """
        # Go's reverse proxy, which kubectl and the API server are, drops an answer now and then that comes before it is
        # done with the request's body. Asking once more is safe: all requests only read.
        with suppress(http.client.IncompleteRead):
            return self._ask(path, body, headers)
        try:
            return self._ask(path, body, headers)
        except http.client.IncompleteRead as error:
            raise CriproxyError("the answer was cut off: the agent, or the API server, has ended it") from error

    def _ask(self, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> Answer:
        connection = http.client.HTTPConnection("localhost")  # else kubectl does not answer
        ends_s = time.monotonic() + self._timeout_s
        sent = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.sock = sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(self._timeout_s)
            sock.connect(self._path)
            connection.request("GET" if sent is None else "POST", path, sent, {**kind, **(headers or {})})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, named, _read(response, sock, ends_s))
        except TimeoutError as error:
            raise CriproxyError(f"the API server did not answer within {self._timeout_s:g} s") from error
        except http.client.IncompleteRead:  # see `ask`
            raise
        except (ConnectionRefusedError, FileNotFoundError) as error:  # no `CriproxyError`: nothing is tried again
            raise click.ClickException("kubectl proxy has ended, and with it this command") from error
        except (OSError, http.client.HTTPException) as error:
            raise CriproxyError(f"kubectl proxy does not answer: {reason_of(error)}") from error
        finally:
            connection.close()
        if answer.status == http.client.INTERNAL_SERVER_ERROR and not answer.json():  # of kubectl itself
            raise CriproxyError(f"kubectl cannot reach the API server: {answer.text}")
        return answer


def _read(response: http.client.HTTPResponse, sock: socket.socket, ends_s: float) -> bytes:
    """Read the whole body; raise TimeoutError when it is late, CriproxyError when it is too long."""
    parts, size = list[bytes](), 0
    while True:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        with suppress(OSError):  # it is closed, and what is left is in the buffer
            sock.settimeout(left_s)
        part = response.read1(_PART_BYTES)
        if not part:
            if response.length:  # `read1` takes an early end for the end
                raise http.client.IncompleteRead(b"", response.length)
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise CriproxyError(f"the answer is larger than {MOST_BYTES >> 20} MiB")


@contextmanager
def api_server(options: Sequence[str], timeout_s: float) -> Iterator[ApiServer]:
    """Run ``kubectl proxy`` with the global *options*, and yield the API server behind it.

    kubectl ends with this context, and with this process, also if that is killed. Its Unix socket is in a directory
    that only this user can enter.

    Raises:
        CriproxyError: kubectl is missing, or does not start.
    """
    with TemporaryDirectory(prefix="criproxy-", ignore_cleanup_errors=True) as directory:
        path = str(Path(directory) / "api.sock")
        with _child(["kubectl", *options, "proxy", "--unix-socket", path]) as child:
            _wait_until_it_serves(child)
            yield ApiServer(path, timeout_s)


@contextmanager
def _child(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that shares our terminal, for logins; it ends with the context."""
    try:
        child = subprocess.Popen(tethered(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise CriproxyError(_NO_KUBECTL if isinstance(error, FileNotFoundError) else f"kubectl: {error}") from error
    assert child.stdout is not None
    assert child.stderr is not None
    shown = threading.Thread(target=_show, args=(child.stderr,), daemon=True)
    shown.start()
    try:
        yield child
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
        child.kill()
        child.wait()
        shown.join(END_S)
        child.stdout.close()


def _show(source: IO[bytes]) -> None:
    """Show what kubectl says, such as how to log in, but not its log."""
    with source:
        while said := os.read(source.fileno(), _PART_BYTES):
            if text := _LOG_LINE.sub(b"", said):
                click.echo(text, err=True, nl=False)


def _wait_until_it_serves(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    readable = select.poll()
    readable.register(child.stdout, select.POLLIN)
    if not readable.poll(1000 * START_S):
        raise CriproxyError(f"kubectl proxy did not start within {START_S:g} s")
    if not child.stdout.readline():
        raise CriproxyError(f"kubectl proxy ended with status {child.wait()}; kubectl has said why")


def current_namespace(options: Sequence[str], timeout_s: float) -> str:
    """Return the namespace of kubectl's current context; ``default`` if it has none.

    Raises:
        CriproxyError: kubectl is missing or hangs.
    """
    view = ["kubectl", *options, "config", "view", "--minify", "--output", "jsonpath={..namespace}"]
    try:
        found = subprocess.run(tethered(view), capture_output=True, check=False, timeout=timeout_s)
    except FileNotFoundError as error:
        raise CriproxyError(_NO_KUBECTL) from error
    except subprocess.TimeoutExpired as error:
        raise CriproxyError(f"kubectl config view did not end within {timeout_s:g} s") from error
    return found.stdout.decode(errors="replace").strip() or "default"
