"""The labels that tell of NVIDIA's cards; the vectors have the whole sets of many machines."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.labels import Machine, labels, sanitised
from criproxy.deviceplugin.nvidia.options import MigStrategy, PluginConfig, SharedResource
from tests.deviceplugin.nvidia.machines import a100, config, t4

GPU = "nvidia.com/gpu"
FIVE = SharedResource(name=GPU, replicas=5)


def machine(*gpus: Gpu) -> Machine:
    """Return a machine with these cards."""
    return Machine(gpus=gpus, driver_version="550.54.15", cuda_version=(12, 4))


def test_what_is_not_known_is_not_told() -> None:
    """Neither memory, nor compute capability, nor product."""
    bare = replace(t4(0), memory_mib=0, compute_capability=(0, 0), name="")
    found = {key.removeprefix(f"{GPU}.") for key in labels(machine(bare), PluginConfig())}

    assert not found & {"memory", "family", "compute.major", "compute.minor", "product"}


@given(st.text())
def test_sanitised_text(text: str) -> None:
    """It holds only what labels may, no two dashes come from blanks, and it stays as it is once it is so."""
    found = sanitised(text)

    assert not set(found) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
    assert sanitised(found) == found


GPUS = st.builds(
    lambda index, model, on, profiles: replace(a100(index, *(profiles if on else ()), on=on), name=model),
    st.integers(0, 7),
    st.sampled_from(["A", "B C", "", "NVIDIA DGX Display"]),
    st.booleans(),
    st.lists(st.sampled_from(["1g.5gb", "1g.5gb+me", "1c.3g.20gb"]), max_size=3),
)


@given(st.lists(GPUS, max_size=4), st.sampled_from(["none", "single", "mixed"]), st.booleans())
def test_any_machine(gpus: list[Gpu], strategy: MigStrategy, shared: bool) -> None:
    """Keys are legal, and each resource that has a label has a count, replicas and a strategy."""
    found = labels(machine(*gpus), config(*([FIVE] if shared else []), strategy=strategy))

    assert all(key.startswith("nvidia.com/") for key in found)
    resources = {key.rpartition(".count")[0] for key in found if key.endswith(".count")}
    assert (GPU in resources) == any(gpu.name != "NVIDIA DGX Display" for gpu in gpus)
    for resource in resources:
        assert {f"{resource}.replicas", f"{resource}.sharing-strategy"} <= found.keys()
