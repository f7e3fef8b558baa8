"""What tests of the agent share: its parts and the program as they run, waiting for what they do, and kubeconfigs."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from criproxy.agent.changes import Changes
from criproxy.agent.troubles import Troubles


async def until(followed: Changes, holds: Callable[[], object]) -> None:
    """Return once *holds*, asked after each change of what is *followed*."""
    async with asyncio.timeout(60):
        while not holds():
            await followed.changed(followed.version)


async def until_said(troubles: Troubles, *words: str) -> str:
    """Return the trouble that has all *words*, once there is one; without words: an empty text, once there is none."""
    found = list[str]()

    def said() -> bool:
        found[:] = [each for each in troubles.sentences() if all(word in each for word in words)]
        return bool(found) is bool(words)

    await until(troubles, said)
    return found[0] if found else ""


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run parts of an agent, and end them; one that fails fails the test."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
        for each in tasks:
            if each.done():
                each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def kubeconfig(folder: Path, server: str, *, user: Mapping[str, Any] | None = None, **cluster: object) -> Path:
    """Write one with a context, cluster and user."""
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(text))
    return file


@asynccontextmanager
async def program(directory: Path, *options: str, **environ: str) -> AsyncIterator[Process]:
    """Run `criproxy agent` on the machine *directory*, which has a kubeconfig."""
    own = (f"--kubeconfig={directory}/kubeconfig", f"--control-socket={directory}/run/agent/pod/control.sock")
    command = (sys.executable, "-P", "-m", "criproxy", "agent", "--first-contact=0s", "--node-name=worker-1", *own)
    process = await asyncio.create_subprocess_exec(*command, *options, env={**os.environ, **environ})
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
