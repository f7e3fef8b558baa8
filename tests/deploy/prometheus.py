"""Debian's Prometheus, for tests: found in PATH, or fetched by apt and unpacked, never installed.

    python -m tests.deploy.prometheus       # fetch it, unless it is there

Exit status: 1, with the reason, if that cannot be done.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.addresses import free_address
from tests.runtimes.debian import FetchError, run

PROGRAMS = ("prometheus", "promtool")
LIMIT_S = 60.0


def cache_directory() -> Path:
    """Where it is kept: CRIPROXY_PROMETHEUS_CACHE, else ``criproxy/prometheus`` in the user's cache directory."""
    if given := os.environ.get("CRIPROXY_PROMETHEUS_CACHE"):
        return Path(given).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "criproxy/prometheus"


def find(name: str) -> Path | None:
    """One of `PROGRAMS`; None where it is not there."""
    if found := shutil.which(name):
        return Path(found)
    kept = cache_directory() / name
    return kept if kept.exists() else None


def fetch() -> None:
    """Fetch what is not there.

    Raises:
        FetchError: it cannot be had.
    """
    if all(map(find, PROGRAMS)):
        return
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        directory = Path(scratch)
        run("apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus", directory=directory)
        (package,) = directory.glob("*.deb")
        run("dpkg-deb", "--extract", str(package), str(directory / "unpacked"))
        for name in PROGRAMS:
            (directory / "unpacked/usr/bin" / name).replace(cache / name)


class Prometheus:
    """A server that answers queries."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series that *expression* has now."""
        async with self._session.get("/api/v1/query", params={"query": expression}) as answer:
            values: dict[str, Any] = await answer.json()
        assert values["status"] == "success", values
        return [(each["metric"], float(each["value"][1])) for each in values["data"]["result"]]

    async def until(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The same, as soon as there is a series."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := await self._tried(expression)):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.1)
        return found

    async def _tried(self, expression: str) -> list[tuple[dict[str, str], float]]:
        try:
            return await self.query(expression)
        except (aiohttp.ClientError, AssertionError):
            return []  # it starts


@asynccontextmanager
async def prometheus(program: Path, directory: Path, config: dict[str, Any]) -> AsyncIterator[Prometheus]:
    """A server with *config*; all that it writes is below *directory*."""
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = free_address()
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/tsdb",
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
        try:
            async with aiohttp.ClientSession(f"http://{address}") as session:
                yield Prometheus(session)
        finally:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    try:
        fetch()
    except FetchError as error:
        print(f"prometheus: {error}", file=sys.stderr)
        sys.exit(1)
