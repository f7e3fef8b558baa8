"""The checker's process, as the driver sees it."""

import asyncio
import json
import os
import sys
from typing import Any, Self

from criproxy.model.cpuset import format_cpuset
from lab.chaos.nodes import Node
from lab.provenance import ROOT

_GRACE_S = 60.0


class Watcher:
    """Runs ``lab.chaos.checker`` for one node, as a context."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._process: asyncio.subprocess.Process
        self.violations: list[str] = []
        """What it has told so far."""
        self.report: dict[str, Any] = {}
        """What it said at its end."""

    async def __aenter__(self) -> Self:
        """Start it and wait until it looks."""
        node = self._node
        options = {
            "cgroups": node.cgroup_root,
            "journal": node.journal.path,
            "store": node.store,
            "runtime": node.endpoint,
        }
        options["control"] = node.serve.control
        if node.bundles:
            options["bundles"] = node.bundles
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lab.chaos.checker", "--cpus", format_cpuset(node.cpus)),
            *(["--one-pool"] if node.policy == "static" else []),
            *(word for name, value in options.items() for word in (f"--{name}", str(value))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        await self._until("ready", _GRACE_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def rest(self, limit_s: float) -> dict[str, Any]:
        """Ask whether all is as it must be, after *limit_s* at the latest."""
        return await self._ask(f"rest {limit_s}", "rest", limit_s + _GRACE_S)

    async def finish(self) -> None:
        """Let it say what it saw."""
        self.report = await self._ask("end", "looks", _GRACE_S)

    async def _ask(self, question: str, answer: str, limit_s: float) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(f"{question}\n".encode())
        await self._process.stdin.drain()
        return await self._until(answer, limit_s)

    async def _until(self, key: str, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout
        async with asyncio.timeout(limit_s):
            while line := await self._process.stdout.readline():
                said: dict[str, Any] = json.loads(line)
                if key in said:
                    return said
                self.violations.append(said["violation"])
        raise RuntimeError("the checker ended by itself; what it wrote to standard error says why")
