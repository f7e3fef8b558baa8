"""A hostile tenant gets sentences, and disturbs nobody; and what would let it disturb somebody is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from criproxy.cri import api_pb2 as api
from criproxy.errors import BadAnnotation
from criproxy.placement.events import ContainerCreating
from lab.emulator.runtime import IMAGE
from lab.tenant.hostile import Attempt
from lab.tenant.rig import CHOICES, Rig, make_rig
from lab.tenant.run import try_choice

EXAMPLES = 8
"""Under each policy; `make tenant` tries hundreds and more."""


@pytest.mark.parametrize("choice", CHOICES)
def test_nothing_goes_wrong(choice: str) -> None:
    """With devices on, whatever names, annotations, environment, sizes and devices the pod has."""
    result = try_choice(choice, EXAMPLES, seed=1)

    assert result.findings == []
    assert result.tried >= EXAMPLES
    assert result.started
    assert result.refusals


def attempt(annotations: dict[str, str], **resources: int) -> Attempt:
    """A pod with a usual name."""
    sandbox = api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name="p", namespace="team", uid="u"), annotations=annotations,
        linux=api.LinuxPodSandboxConfig(cgroup_parent="/kubepods/pod1"),
    )  # fmt: skip
    config = api.ContainerConfig(
        metadata=api.ContainerMetadata(name="c"), image=api.ImageSpec(image=IMAGE),
        linux=api.LinuxContainerConfig(resources=json_format.ParseDict(resources, api.LinuxContainerResources())),
    )  # fmt: skip
    return Attempt(sandbox, config, api.LinuxContainerResources())


async def lived(directory: Path, one: Attempt, plant: Callable[[Rig], None] = lambda _: None) -> list[str]:
    """What the rig says about a pod on a new node."""
    world, rig = await make_rig(directory, "topology-aware-all")
    try:
        plant(rig)
        return await rig.live(one)
    finally:
        await world.__aexit__(None, None, None)


ONE_CPU = {"cpu_shares": 1024, "cpu_quota": 100_000, "cpu_period": 100_000, "memory_limit_in_bytes": 1 << 20}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(attempt({}, cpu_quota=1 << 62, cpu_period=1, cpu_shares=2), id="a-quota-beyond-all"),
        pytest.param(attempt({"cpu.preserve.criproxy.io/pod": "true"}, **ONE_CPU), id="preserved"),
        pytest.param(attempt({f"k{i}.criproxy.io": "v" for i in range(8000)}, **ONE_CPU), id="8000-annotations"),
        pytest.param(attempt({"affinity.criproxy.io/pod": "[/x]" * 40_000}, **ONE_CPU), id="a-long-document"),
    ],
)
async def test_what_was_found_once_is_not_found_again(tmp_path: Path, one: Attempt) -> None:
    """Each of these broke something."""
    assert await lived(tmp_path, one) == []


def _raising(error: Exception) -> Callable[[Rig], None]:
    def place(*_: object) -> object:
        raise error

    return lambda rig: setattr(rig.world.controller.context.state.policy, "place", place)


def _obeying(rig: Rig) -> None:
    inner = rig.answers.controller.context.state._step

    def step(node: Any, job: Any) -> Any:  # noqa: ANN401
        decision = inner(node, job)
        if isinstance(job.event, ContainerCreating):
            lost = {key: grant for key, grant in decision.node.grants.items() if key not in rig.keys[:1]}
            return type(decision)(decision.node.replace(grants=lost), decision.updates, decision.reasons, decision.key)
        return decision

    rig.answers.controller.context.state._step = step  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        pytest.param(_raising(ZeroDivisionError()), "an error was logged", id="a-policy-that-raises"),
        pytest.param(_raising(BadAnnotation("container c: NoneType")), "NoneType", id="an-exception-in-a-sentence"),
        pytest.param(_obeying, "has no place any more", id="a-pod-that-takes-anothers-place"),
    ],
)
async def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Rig], None], sentence: str
) -> None:
    """The rig says what is wrong."""
    monkeypatch.setattr("lab.tenant.rig.GONE_S", 2.0)
    assert any(sentence in text for text in await lived(tmp_path, attempt({}, **ONE_CPU), plant))
