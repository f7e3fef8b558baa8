"""A small API server and a client with short pauses, for all tests of the agent."""

from collections.abc import AsyncIterator

import pytest

from criproxy.agent.kubernetes.client import ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.transport import Limits
from lab.apiserver.server import ApiServer

SHORT = Limits(timeout_s=5.0, first_pause_s=0.01, longest_pause_s=0.05, reopen_s=0.05, absent_s=0.05)


@pytest.fixture
async def apiserver() -> AsyncIterator[ApiServer]:
    """An API server with no objects and no faults."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def api_client(apiserver: ApiServer) -> AsyncIterator[ApiClient]:
    """A client of it, with short pauses between retries."""
    async with ApiClient(plain(apiserver.url), limits=SHORT) as client:
        yield client
