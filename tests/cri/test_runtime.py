"""Calls of our own to the runtime."""

from pathlib import Path

import pytest

from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
from criproxy.sim.runtime import EmbeddedRuntime

AWAY = 8
"""Calls that fail before the runtime comes: by then gRPC would wait for a second until it tries again."""


async def test_a_runtime_that_is_back_is_reached_by_the_next_call(tmp_path: Path) -> None:
    """However many calls have failed before; otherwise a start right after a restart would be refused."""
    path = tmp_path / "runtime.sock"
    client = RuntimeClient(f"unix://{path}")
    for _ in range(AWAY):
        with pytest.raises(RuntimeCallError) as caught:
            await client.version()
        assert caught.value.code is StatusCode.UNAVAILABLE
    async with EmbeddedRuntime(path):
        assert (await client.version()).runtime_name
    await client.close()
