"""A real containerd for the whole run, and its pods removed after each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from lab.containerd.containerd import PrivateContainerd
from tests.e2e.device_nodes import device_nodes
from tests.e2e.runtimes import BY_NAME, Runtime, not_tried, takes_long, tried_on
from tests.e2e.scene import ALL, Scene, proxied


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    for item in items:
        if "/tests/e2e/" in str(item.path):
            item.add_marker(pytest.mark.e2e)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that uses containerd those that it is tried on."""
    if "shared_containerd" in metafunc.fixturenames:
        only = metafunc.config.getoption("--runtime")
        chosen = [BY_NAME[only]] if only else tried_on(metafunc.definition.path.stem)
        runtimes = [pytest.param(runtime, id=str(runtime), marks=_marks(runtime, metafunc)) for runtime in chosen]
        metafunc.parametrize("shared_containerd", runtimes, indirect=True, scope="package")


def _marks(runtime: Runtime, metafunc: pytest.Metafunc) -> Sequence[pytest.MarkDecorator]:
    """Of a test on a runtime."""
    if reason := not_tried(runtime, metafunc.definition.path.stem):
        return [pytest.mark.skip(reason)]
    is_long = not metafunc.config.getoption("--runtime") and takes_long(runtime, metafunc.function.__name__)
    return [pytest.mark.thorough] if is_long else []


@pytest.fixture(scope="package")
def shared_containerd(request: pytest.FixtureRequest) -> Iterator[PrivateContainerd]:
    """Run a containerd once for these tests; skip with the reason where it cannot run.

    It ends before the tests of other folders begin: those of `criproxy.process.children` end all children of
    this process that have a session of their own.
    """
    runtime: Runtime = request.param
    if reason := runtime.unavailable():
        pytest.skip(reason)
    with runtime.prepare() as running:
        yield running


@pytest.fixture
def containerd(shared_containerd: PrivateContainerd) -> Iterator[PrivateContainerd]:
    """Lend the running containerd to one test; its pods are gone afterwards."""
    yield shared_containerd
    shared_containerd.remove_pods()


@pytest.fixture
def cards(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the device nodes that the test's module names in ``NODES``."""
    with device_nodes(request.module.NODES):
        yield


@pytest.fixture
async def scene(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Scene]:
    """The static policy, with the lowest CPU reserved."""
    policy = f'policy: static\nreservedCpus: "{min(ALL)}"\n'
    async with asyncio.timeout(60), proxied(tmp_path, containerd, policy) as scene:
        yield scene
