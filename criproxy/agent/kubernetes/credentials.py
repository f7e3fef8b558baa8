"""Where the API server is, and who asks it: the pod's service account, or a kubeconfig."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Access:
    """What one request needs."""

    server: str
    """URL without a slash at its end."""
    token: str = ""
    tls: ssl.SSLContext | None = None
    tls_server_name: str = ""


class Credentials(Protocol):
    """A source of `Access`."""

    async def access(self, *, anew: bool = False) -> Access:
        """Return what is valid now; *anew*: the server has refused the last one."""
        ...


@dataclass(slots=True)
class TokenFile:
    """A server without TLS, and a token in a file (or none)."""

    server: str
    file: Path | None = None
    reload_s: float = 60.0
    _read_s: float = 0.0
    _token: str = ""

    async def access(self, *, anew: bool = False) -> Access:
        """Return the token, read at most a minute ago."""
        now_s = asyncio.get_running_loop().time()
        if self.file is not None and (anew or not self._token or now_s - self._read_s > self.reload_s):
            self._token = (await asyncio.to_thread(self.file.read_text)).strip()
            self._read_s = now_s
        return Access(self.server, self._token)
