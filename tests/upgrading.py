"""A made-up version N + 1, and calls that never cease while versions take over from each other."""

import asyncio
import compileall
import itertools
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from criproxy import __version__
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

PACKAGE = Path(__file__).resolve().parents[1] / "criproxy"
NEXT_VERSION = "99.0.0"
PACE_S = 0.005
"""Between two calls of a kind: a load, but one that leaves the two versions a machine to run on."""
BESIDE = """BESIDE = (
    "CREATE TABLE IF NOT EXISTS planted (owner TEXT PRIMARY KEY, said TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS planted_names ON containers (name)",
    "INSERT OR IGNORE INTO planted SELECT key, 'by N + 1' FROM containers",
    "INSERT OR REPLACE INTO meta VALUES ('planted', 'by N + 1')","""
"""What N + 1 adds without a newer number, as the beginning of `schema.BESIDE`."""


def next_version(directory: Path, *, newer_number: bool) -> Path:
    """Copy the package below *directory* as version N + 1.

    Args:
        directory: is made; returned for ``PYTHONPATH``.
        newer_number: whether its store is one migration ahead; else it has what is new beside the tables of N.
    """
    copy = directory / "criproxy"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    init, schema = copy / "__init__.py", copy / "store" / "schema.py"
    init.write_text(init.read_text().replace(__version__, NEXT_VERSION))
    if newer_number:
        migration = '"CREATE TABLE planted (key TEXT PRIMARY KEY) WITHOUT ROWID;",'
        pattern, new = r"^(MIGRATIONS.*) = \(\)$", rf"\1 = ({migration})"
    else:
        pattern, new = r"^BESIDE = \(", BESIDE
    text, count = re.subn(pattern, new, schema.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern} in {schema}"
    schema.write_text(text)
    compileall.compile_dir(copy, quiet=1)  # as an installation does: the first start shall be as fast as all others
    return directory


@dataclass
class Line:
    """Calls of one kind, one after the other."""

    name: str
    call: Callable[[], Awaitable[object]]
    answered: int = 0
    failing_since_s: float | None = None
    longest_failure_s: float = 0.0
    longest_wait_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    async def run(self, ended: asyncio.Event) -> None:
        """Call until the end; note how long no call succeeded, from the first that failed."""
        while not ended.is_set():
            begin = time.monotonic()
            try:
                await self.call()
            except RuntimeCallError as error:
                self.errors.append(str(error))
                self.failing_since_s = self.failing_since_s or begin
            else:
                self._note(begin, time.monotonic())
            await asyncio.sleep(PACE_S)

    def _note(self, begin_s: float, end_s: float) -> None:
        self.answered += 1
        self.longest_wait_s = max(self.longest_wait_s, end_s - begin_s)
        if self.failing_since_s is not None:
            self.longest_failure_s = max(self.longest_failure_s, end_s - self.failing_since_s)
            self.failing_since_s = None


class Load:
    """What the kubelet asks all the time, and pods that come and go, through one address.

    Args:
        client: leads to the socket; closed at the end.
        kubelet: runs the pods by that client.
        guests: the containers of the pods that come and go.
    """

    def __init__(self, client: RuntimeClient, kubelet: MiniKubelet, guests: tuple[ContainerSpec, ...]) -> None:
        self._client = client
        self._kubelet = kubelet
        self._guests = guests
        self._numbers: Iterator[int] = itertools.count()
        self._ended = asyncio.Event()
        self.lines = [
            Line("Version", self._client.version),
            Line("ListContainers", self._client.list_containers),
            Line("create, start, remove", self._pod),
        ]

    def __str__(self) -> str:
        return "".join(
            f"{line.name}: {line.answered} answered, the slowest in {line.longest_wait_s:.2f} s, "
            f"{len(line.errors)} failed, for {line.longest_failure_s:.2f} s at most\n"
            for line in self.lines
        )

    async def _pod(self) -> None:
        pod = PodSpec(f"guest-{next(self._numbers)}", self._guests)
        sandbox_id, _ = await self._kubelet.run_pod(pod)
        await self._kubelet.remove_pod(sandbox_id)

    async def run(self, *pods: PodSpec) -> dict[str, str]:
        """Run pods that stay; returns name → id of its container."""
        return {pod.name: (await self._kubelet.run_pod(pod))[1]["main"] for pod in pods}

    async def more(self, count: int) -> None:
        """Wait until each line has *count* more answers."""
        wanted = {line.name: line.answered + count for line in self.lines}
        async with asyncio.timeout(60):
            while any(line.answered < wanted[line.name] for line in self.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # each line is at its own pace

    def failing(self) -> list[str]:
        """The lines whose last call failed."""
        return [line.name for line in self.lines if line.failing_since_s is not None]

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(line.run(self._ended)) for line in self.lines]
        return self

    async def end(self) -> None:
        """Call no more."""
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self._client.close()
