"""The embedded runtime on a socket of the test's own, and a small kubelet that talks to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeClient
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet


@pytest.fixture
def options() -> RuntimeOptions:
    """Return the runtime's options; a test module overrides it for others."""
    return RuntimeOptions()


@pytest.fixture
async def runtime(tmp_path: Path, options: RuntimeOptions) -> AsyncIterator[EmbeddedRuntime]:
    """Serve the embedded runtime."""
    async with EmbeddedRuntime(tmp_path / "runtime.sock", options) as serving:
        yield serving


@pytest.fixture
async def client(runtime: EmbeddedRuntime) -> AsyncIterator[RuntimeClient]:
    """Connect to it."""
    connected = RuntimeClient(f"unix://{runtime.path}")
    yield connected
    await connected.close()


@pytest.fixture
def kubelet(client: RuntimeClient) -> MiniKubelet:
    """Return a kubelet without cgroups of its own."""
    return MiniKubelet(client)
