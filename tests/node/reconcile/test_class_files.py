"""Each file that classes set through the runtime, from the create to the end of the class."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.controls import BURST, DEFAULTS, IDLE, SWAP, WEIGHT
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.configuration.test_policy_switch import change
from tests.node.reconcile.test_controls_client import policy
from tests.node.world import FAST, STATIC, World

MIB = 1 << 20
POD = PodSpec(
    "web", (ContainerSpec("main", IMAGE, cpu_request_milli=100, cpu_limit_milli=500, memory_limit_bytes=64 * MIB),)
)
SETS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "memory.high": (("memory: {high: 50%}", f"{32 * MIB}"), ("memory: {high: 8Mi}", f"{8 * MIB}")),
    "memory.low": (("memory: {low: 1Mi}", f"{MIB}"), ("memory: {low: 2Mi}", f"{2 * MIB}")),
    "memory.min": (("memory: {min: 1Mi}", f"{MIB}"), ("memory: {min: 2Mi}", f"{2 * MIB}")),
    SWAP: (("memory: {swapMax: 25%}", f"{16 * MIB}"), ("memory: {swapMax: 1Mi}", f"{MIB}")),
    "memory.oom.group": (("memory: {oomGroup: true}", "1"), ("memory: {oomGroup: false}", "0")),
    WEIGHT: (("cpu: {weight: 200}", "200"), ("cpu: {weight: 300}", "300")),
    IDLE: (("cpu: {idle: true}", "1"), ("cpu: {idle: false}", "0")),
    "cpu.uclamp.min": (("cpu: {uclampMin: 20}", "20.00"), ("cpu: {uclampMin: 30}", "30.00")),
    "cpu.uclamp.max": (("cpu: {uclampMax: 80}", "80.00"), ("cpu: {uclampMax: 70}", "70.00")),
    BURST: (("cpu: {burst: 20%}", "10000"), ("cpu: {burst: 40%}", "20000")),
    "io.bfq.weight": (("blockIO: {weight: 300}", "default 300"), ("blockIO: {weight: 400}", "default 400")),
}
"""File → what two classes say, and the file then has."""
INSTEAD_OF_BFQ = "io.weight"
"""Where there is no ``io.bfq.weight``, the same values."""
AS_REQUESTED = {WEIGHT: "4", SWAP: "0"}
"""What is not in `DEFAULTS` follows from the container's requests and limits."""


def test_each_file_is_tried() -> None:
    """A new one needs a line."""
    assert SETS.keys() == DEFAULTS.keys() - {INSTEAD_OF_BFQ}


@pytest.mark.parametrize("name", SETS)
async def test_a_file_is_set_kept_repaired_changed_and_as_before_in_the_end(tmp_path: Path, name: str) -> None:
    """Create, restart, a foreign write, a reload, a release and its end, and a policy file without the class."""
    (first, has_first), (second, has_second) = SETS[name]
    natural = AS_REQUESTED.get(name, DEFAULTS[name])
    classes = [policy(f'classes: {{a: {{for: {{namespaces: ["*"]}}, {each}}}}}') for each in (first, second)]
    watchful = replace(FAST, drift_period_s=0.05)

    async with World(tmp_path, settings=watchful, policy=classes[0]) as world:
        key, config = await world.create_as(POD)
        assert config.linux.resources.unified[name] == has_first
        await world.kubelet.start(key)
        cgroup = world.runtime.core.records.containers[key].cgroup
        file = tmp_path / f"sys/fs/cgroup/{name.partition('.')[0]}{cgroup}/{name}"

        async def becomes(value: str) -> None:
            await world.poll(lambda: file.read_text() == f"{value}\n")

        assert file.read_text() == f"{has_first}\n"
        await world.restart()
        await world.poll(lambda: getattr(world.controller.node.applied[key], name.replace(".", "_")) == has_first)
        assert file.read_text() == f"{has_first}\n"
        file.write_text(f"{natural}\n")
        await becomes(has_first)
        await world.poll(lambda: world.counters.drift_repaired > 0)

        await change(world, classes[1], "second")
        await becomes(has_second)
        await world.controller.policy_switch.release("somebody asked")
        await becomes(natural)
        await world.controller.policy_switch.undo()
        await becomes(has_second)
        await change(world, STATIC, "without")
        await becomes(natural)
