"""One event loop, one browser and one node for all tests of a file, as far as they leave the node as it was."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.page.browser import browser
from tests.page.stage import Stage, crowd, stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file of this folder on one event loop."""
    for item in items:
        if "/tests/page/" in str(item.path) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened() -> AsyncIterator[Browser]:
    """A browser."""
    async with browser() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A node with a few containers, and its page on loopback."""
    async with stage(tmp_path_factory.mktemp("n")) as found:
        await found.run(crowd(3))
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def there(tmp_path: Path) -> AsyncIterator[Stage]:
    """A node of one test, without containers."""
    async with stage(tmp_path) as found:
        yield found
