"""A registry on this machine with one image in it: Debian's docker-registry, filled over its HTTP API."""

import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab.containerd import busybox

_CONFIG = """version: 0.1
storage:
  filesystem:
    rootdirectory: {directory}
http:
  addr: 127.0.0.1:0
"""


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Run a registry with its files in *directory*; yields ``127.0.0.1:PORT``."""
    config = directory / "config.yml"
    config.write_text(_CONFIG.format(directory=directory))
    command = ["docker-registry", "serve", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            yield _address(process.stderr)
        finally:
            process.terminate()


def _address(log: IO[str]) -> str:
    for line in log:
        _, found, rest = line.partition("listening on ")
        if found:
            threading.Thread(target=log.read, daemon=True).start()  # so that the pipe never fills
            return rest.split('"')[0].strip()
    raise RuntimeError("docker-registry ended before it listened")


def push(address: str, name: str, tag: str, image: busybox.Image) -> None:
    """Store *image* as *name*:*tag*: its blobs, then the manifest that names them."""
    base = f"http://{address}/v2/{name}"
    for blob in image.blobs:
        upload = _send("POST", f"{base}/blobs/uploads/", b"", "application/octet-stream")
        separator = "&" if "?" in upload else "?"
        _send("PUT", f"{upload}{separator}digest={busybox.digest(blob)}", blob, "application/octet-stream")
    _send("PUT", f"{base}/manifests/{tag}", image.manifest, busybox.MANIFEST_TYPE)


def _send(method: str, url: str, body: bytes, kind: str) -> str:
    """Send one request and return the Location of the reply; urllib.error.HTTPError for a refusal."""
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method=method)  # noqa: S310 - our own URLs
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
        return str(reply.headers["Location"])
