"""A database for each test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from criproxy.store.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a fresh database."""
    with closing(Database(tmp_path)) as opened:
        yield opened
