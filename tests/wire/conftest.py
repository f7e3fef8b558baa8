"""Both peers of a splice for each test."""

import pytest

from tests.wire.spliced import Spliced
from tests.wire.talk import Talk


@pytest.fixture
def talk() -> Talk:
    """Return a conversation whose frames a test writes itself."""
    return Talk()


@pytest.fixture
def both() -> Spliced:
    """Return two strict peers."""
    return Spliced()
