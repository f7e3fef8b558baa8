"""One tenant's annotations are his own business: they refuse his container, and nobody else notices."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.config.settings import find
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from tests.node.world import World, owner, sharer

KEYS = {
    "static": "prefer-isolated-cpus",
    "balloons": "balloon.balloons",
    "pools": "pool.podpools",
    "topology-aware": "memory-type",
}
CREATES = 11
"""One more than the failures after which the automatic bypass begins."""


async def outcomes(world: World, annotations: dict[str, str]) -> set[StatusCode | None]:
    """What the kubelet hears when it creates containers of such pods; None: they were created."""
    found: set[StatusCode | None] = set()
    for number in range(CREATES):
        pod = replace(sharer(f"evil{number}"), annotations=annotations)
        try:
            await world.run(pod)
            found.add(None)
        except RuntimeCallError as error:
            assert "Error(" not in str(error)  # noqa: PT017 - not all are refused
            found.add(StatusCode(error.code))
    return found


@pytest.mark.parametrize("policy", KEYS)
@pytest.mark.parametrize("value", ["main: [2020-01-01]", "main: !!set {a}", "main: 0x" + "f" * 6000])
async def test_no_annotation_leads_to_the_bypass(tmp_path: Path, policy: str, value: str) -> None:
    """Its containers are refused or placed, and the next one gets what it would have got without them."""
    entry = find(policy)
    options = entry.options.model_validate({"reservedCpus": "0"})
    async with World(tmp_path, policy=entry.build(options)) as world:
        annotations = {f"cri-resource-manager.intel.com/{KEYS[policy]}": value}
        assert await outcomes(world, annotations) <= {None, StatusCode.INVALID_ARGUMENT}
        assert world.counters.policy_failures == 0
        assert not world.controller.context.state.bypassed
        assert not world.counters.fallbacks.total()
        await world.run(owner("victim"))


async def test_annotations_that_may_not_be_used_are_not_read(tmp_path: Path) -> None:
    """Whatever they say: the container is created as if they were not there."""
    entry = find("topology-aware")
    options = entry.options.model_validate({"reservedCpus": "0", "annotations": {"deny": {"*": ["*"]}}})
    async with World(tmp_path, policy=entry.build(options)) as world:
        annotations = {"cri-resource-manager.intel.com/memory-type": "main: [2020-01-01]"}
        assert await outcomes(world, annotations) == {None}
