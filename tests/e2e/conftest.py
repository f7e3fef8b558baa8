"""A real containerd for the whole run, and its pods removed after each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lab.containerd.containerd import PrivateContainerd
from tests.e2e.device_nodes import device_nodes
from tests.e2e.runtimes import BY_NAME, Runtime, takes_long, tried_on
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
        long = pytest.mark.thorough
        runtimes = [
            pytest.param(
                runtime,
                id=str(runtime),
                marks=long if not only and takes_long(runtime, metafunc.function.__name__) else (),
            )
            for runtime in chosen
        ]
        metafunc.parametrize("shared_containerd", runtimes, indirect=True, scope="package")


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
