"""A real containerd for the whole run, and its pods removed after each test."""

from collections.abc import Iterator

import pytest

from criproxy.sim.containerd import PrivateContainerd, available


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    for item in items:
        if "/tests/e2e/" in str(item.path):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def session_containerd() -> Iterator[PrivateContainerd]:
    """Run containerd once; skip with the reason where it cannot run."""
    reason = available()
    if reason:
        pytest.skip(reason)
    with PrivateContainerd() as running:
        yield running


@pytest.fixture
def containerd(session_containerd: PrivateContainerd) -> Iterator[PrivateContainerd]:
    """Lend the running containerd to one test; its pods are gone afterwards."""
    yield session_containerd
    session_containerd.remove_pods()
