"""Credential plugins: programs that a kubeconfig names (``exec``), and that print a token or a certificate."""

import json
import math
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic, time
from typing import IO, Any

from criproxy.errors import ConfigError, reason_of

OUTPUT_BYTES = 1 << 20
EARLY_S = 30.0
"""How long before its end what a plugin gave is replaced."""
LEAST_S = 60.0
"""How long it is used in any case, such as where the clock of the node is wrong."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that prints credentials."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """In addition to that of this process."""
    api_version: str
    cluster: Mapping[str, object] | None = None
    """What it is told about the cluster; None unless the kubeconfig wants it."""

    def __str__(self) -> str:
        return f"the credential plugin {self.command[0]}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a plugin has given."""

    token: str = field(repr=False)
    certificate: bytes
    """PEM."""
    key: bytes = field(repr=False)
    until_s: float
    """On the monotonic clock; infinity: until the server refuses it."""


def run_plugin(plugin: Plugin, timeout_s: float) -> Given:
    """Return what a plugin prints; blocks for at most *timeout_s*, unless it cannot be killed.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or prints something else.
    """
    spec: dict[str, object] = {"interactive": False}
    spec |= {"cluster": plugin.cluster} if plugin.cluster is not None else {}
    told = json.dumps({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})
    try:
        process = subprocess.Popen(
            plugin.command,
            env={**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": told},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{plugin} cannot be run: {reason_of(error)}") from error
    deadline_s = monotonic() + timeout_s
    with process:
        assert process.stdout is not None
        try:
            output = _output(plugin, process.stdout, deadline_s)
            status = process.wait(max(deadline_s - monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{plugin} has not ended within {timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started
    if status:
        raise ConfigError(f"{plugin} has ended with status {status}; run it by hand to see why")
    return _given(plugin, output)


def _output(plugin: Plugin, stream: IO[bytes], deadline_s: float) -> bytes:
    found, poller = bytearray(), select.poll()
    poller.register(stream, select.POLLIN)
    while (left_s := deadline_s - monotonic()) > 0:
        if poller.poll(left_s * 1000):
            if not (chunk := os.read(stream.fileno(), 1 << 16)):
                return bytes(found)
            found += chunk
            if len(found) > OUTPUT_BYTES:
                raise ConfigError(f"{plugin} prints more than {OUTPUT_BYTES} bytes")
    raise subprocess.TimeoutExpired(plugin.command, 0)


def _given(plugin: Plugin, output: bytes) -> Given:
    try:
        found = json.loads(output)
        status: dict[str, Any] = found["status"]
        version, expires = found["apiVersion"], status.get("expirationTimestamp")
        left_s = datetime.fromisoformat(expires).timestamp() - time() if expires else math.inf
        given = Given(
            token=str(status.get("token") or ""),
            certificate=str(status.get("clientCertificateData") or "").encode(),
            key=str(status.get("clientKeyData") or "").encode(),
            until_s=monotonic() + max(left_s - EARLY_S, LEAST_S),
        )
    except (ValueError, TypeError, KeyError, AttributeError):  # without the text, which may be a secret
        raise ConfigError(f"{plugin} does not print an ExecCredential with a status") from None
    if version != plugin.api_version:
        raise ConfigError(f"{plugin} prints an ExecCredential of {version}; the kubeconfig wants {plugin.api_version}")
    if not given.token and not (given.certificate and given.key):
        raise ConfigError(f"{plugin} gives neither a token nor a certificate with its key")
    return given
