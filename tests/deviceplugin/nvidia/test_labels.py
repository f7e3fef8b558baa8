"""The labels that tell of NVIDIA's cards; the vectors have the whole sets of many machines."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.nvidia.gpus import Fabric, Gpu
from criproxy.deviceplugin.nvidia.labels import (
    LabelError,
    Machine,
    VgpuGuest,
    family,
    labels,
    sanitised,
    timestamp_label,
)
from criproxy.deviceplugin.nvidia.options import Flags, GfdFlags, MigStrategy, PluginConfig, SharedResource
from tests.deviceplugin.nvidia.machines import a100, config, t4

PLAIN = PluginConfig()
GPU = "nvidia.com/gpu"
FIVE = SharedResource(name=GPU, replicas=5)
COMPUTE, GRAPHICS = 0x030200, 0x030000
CLIQUE = Fabric(cluster_uuid="11111111-2222-3333-4444-555555555555", clique_id="1")


def machine(*gpus: Gpu, **others: object) -> Machine:
    """Return a machine with these cards."""
    return Machine(gpus=gpus, driver_version="550.54.15", cuda_version=(12, 4), **others)  # type: ignore[arg-type]


def of(prefix: str, found: dict[str, str]) -> dict[str, str]:
    """Return labels that begin with *prefix* and a dot, without that."""
    return {key.removeprefix(f"{prefix}."): value for key, value in found.items() if key.startswith(f"{prefix}.")}


def shares(found: dict[str, str], resource: str = GPU) -> tuple[str, str, str, str]:
    """Return what labels say of a resource: count, replicas, strategy and product."""
    values = of(resource, found)
    return values["count"], values["replicas"], values["sharing-strategy"], values.get("product", "")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param(PLAIN, ("2", "1", "none", "Tesla-T4"), id="whole"),
        pytest.param(config(FIVE), ("2", "5", "time-slicing", "Tesla-T4-SHARED"), id="time"),
        pytest.param(config(FIVE, mps=True), ("2", "5", "mps", "Tesla-T4-SHARED"), id="mps"),
        pytest.param(config(FIVE, rename=True), ("2", "5", "time-slicing", "Tesla-T4"), id="renamed-by-default"),
        pytest.param(
            config(FIVE.model_copy(update={"rename": "nvidia.com/part"})),
            ("2", "5", "time-slicing", "Tesla-T4"),
            id="renamed",
        ),
        pytest.param(
            config(FIVE.model_copy(update={"name": "nvidia.com/x"})), ("2", "1", "none", "Tesla-T4"), id="another"
        ),
        pytest.param(
            config(FIVE, FIVE.model_copy(update={"replicas": 9})),
            ("2", "5", "time-slicing", "Tesla-T4-SHARED"),
            id="first-entry",
        ),
    ],
)
def test_sharing(file: PluginConfig, expected: tuple[str, str, str, str]) -> None:
    """The product says that cards are shared, unless their resource does."""
    assert shares(labels(machine(t4(0), t4(1)), file)) == expected


INVALID = ("0", "0", "", "NVIDIA-A100-SXM4-40GB-MIG-INVALID")


@pytest.mark.parametrize(
    ("strategy", "gpus", "expected"),
    [
        pytest.param("none", [a100(0, "1g.5gb")], ("1", "0", "none", "NVIDIA-A100-SXM4-40GB"), id="none"),
        pytest.param(
            "single", [a100(0, on=False)], ("1", "5", "time-slicing", "NVIDIA-A100-SXM4-40GB-SHARED"), id="off"
        ),
        pytest.param(
            "single",
            [a100(0, "1g.5gb", "1g.5gb"), a100(1, "1g.5gb")],
            ("3", "5", "time-slicing", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"),
            id="alike",
        ),
        pytest.param("single", [a100(0, "1g.5gb", "2g.10gb")], INVALID, id="two-profiles"),
        pytest.param("single", [a100(0, "1g.5gb"), a100(1)], INVALID, id="one-empty"),
        pytest.param("single", [t4(0), a100(1, "1g.5gb")], INVALID, id="one-without"),
        pytest.param("mixed", [a100(0, "1g.5gb")], ("1", "0", "none", "NVIDIA-A100-SXM4-40GB"), id="parent"),
        pytest.param(
            "mixed",
            [a100(0, "1g.5gb"), a100(1, on=False)],
            ("2", "5", "time-slicing", "NVIDIA-A100-SXM4-40GB-SHARED"),
            id="parent-and-whole",
        ),
        pytest.param("mixed", [t4(0), a100(1)], ("1", "5", "time-slicing", "Tesla-T4-SHARED"), id="whole-goes-first"),
    ],
)
def test_mig(strategy: MigStrategy, gpus: list[Gpu], expected: tuple[str, str, str, str]) -> None:
    """The labels of whole GPUs are those of MIG devices if all are alike and the strategy is so."""
    found = labels(machine(*gpus), config(FIVE, strategy=strategy))

    assert shares(found) == expected
    assert found.get("nvidia.com/mig.strategy", "none") == strategy


def test_each_profile_has_labels_of_its_own() -> None:
    """With the strategy ``mixed``; attributes that NVML does not report are 0."""
    gpu = a100(0, "1g.5gb+me", "1c.3g.20gb", "1g.5gb+me")
    first = replace(gpu.mig[0], attributes=(("slices.gi", 1), ("engines.jpeg", 1)))
    shared = SharedResource(name="nvidia.com/mig-1g.5gb.me", replicas=2)
    found = labels(machine(replace(gpu, mig=(first, *gpu.mig[1:]))), config(shared, strategy="mixed"))

    product = "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me-SHARED"
    assert shares(found, "nvidia.com/mig-1g.5gb.me") == ("2", "2", "time-slicing", product)
    assert of("nvidia.com/mig-1g.5gb.me.slices", found) == {"gi": "1", "ci": "0"}
    engines = {"copy": "0", "decoder": "0", "encoder": "0", "jpeg": "1", "ofa": "0"}
    assert of("nvidia.com/mig-1g.5gb.me.engines", found) == engines
    assert shares(found, "nvidia.com/mig-1c.3g.20gb")[:3] == ("1", "1", "none")


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        pytest.param([COMPUTE, COMPUTE], "compute", id="compute"),
        pytest.param([GRAPHICS], "graphics", id="graphics"),
        pytest.param([COMPUTE, GRAPHICS], "unknown", id="both"),
        pytest.param([0x030100], "unknown", id="another"),
        pytest.param([COMPUTE, None], "unknown", id="one-unknown"),
    ],
)
def test_mode(classes: list[int | None], mode: str) -> None:
    """The mode is known if all cards are of one class, and that is one of two."""
    gpus = [replace(t4(index), pci_class=each) for index, each in enumerate(classes)]

    assert labels(machine(*gpus), PLAIN)["nvidia.com/gpu.mode"] == mode


@pytest.mark.parametrize(
    ("fabrics", "clique"),
    [
        pytest.param([None], None, id="none"),
        pytest.param([CLIQUE, None, CLIQUE], f"{CLIQUE.cluster_uuid}.1", id="some"),
        pytest.param([CLIQUE, replace(CLIQUE, clique_id="2")], None, id="two-cliques"),
        pytest.param([replace(CLIQUE, cluster_uuid="")], None, id="no-cluster"),
    ],
)
def test_clique(fabrics: list[Fabric | None], clique: str | None) -> None:
    """The NVLink domain is told if it is one."""
    gpus = [replace(t4(index), fabric=each) for index, each in enumerate(fabrics)]

    assert labels(machine(*gpus), PLAIN).get("nvidia.com/gpu.clique") == clique


@pytest.mark.parametrize(
    ("driver", "parts"),
    [
        pytest.param("535.104.05", ("535", "104", "05"), id="three"),
        pytest.param("470.82", ("470", "82", ""), id="two"),
        pytest.param("550.x.y", ("550", "x", "y"), id="no-numbers"),
    ],
)
def test_driver_versions(driver: str, parts: tuple[str, str, str]) -> None:
    """The parts are told under new and old names."""
    found = labels(replace(machine(t4(0)), driver_version=driver), PLAIN)

    new = of("nvidia.com/cuda.driver-version", found)
    assert (new["major"], new["minor"], new["revision"], new["full"]) == (*parts, driver)
    assert tuple(of("nvidia.com/cuda.driver", found).values()) == parts


@pytest.mark.parametrize(
    ("machine_type", "expected"),
    [
        pytest.param(None, "unknown", id="no-file"),
        pytest.param("", "", id="empty-file"),
        pytest.param("  DGX A100  920-23687\n", "DGX-A100-920-23687", id="blanks"),
    ],
)
def test_machine_types(machine_type: str | None, expected: str) -> None:
    """A missing file is not an empty one."""
    assert labels(machine(t4(0), machine_type=machine_type), PLAIN)["nvidia.com/gpu.machine"] == expected


@pytest.mark.parametrize(
    "gpus", [pytest.param([], id="none"), pytest.param([t4(0, name="NVIDIA DGX Display")], id="display")]
)
def test_without_cards(gpus: list[Gpu]) -> None:
    """Only what does not depend on cards is told, though the driver's version be wrong; a guest has no card either."""
    there = replace(machine(*gpus), driver_version="?")
    guest = VgpuGuest(host_driver_version="460.16", host_driver_branch="r460_00")

    assert labels(there, PLAIN) == {"nvidia.com/vgpu.present": "false"}
    found = of("nvidia.com/vgpu", labels(replace(there, vgpu=guest), PLAIN))
    assert found == {"present": "true", "host-driver-version": "460.16", "host-driver-branch": "r460_00"}


@pytest.mark.parametrize(
    ("there", "file", "text"),
    [
        pytest.param(replace(machine(t4(0)), driver_version="550"), PLAIN, 'Version "550"', id="driver"),
        pytest.param(replace(machine(t4(0)), driver_version="1.2.3.4"), PLAIN, 'Version "1.2.3.4"', id="long-driver"),
        pytest.param(
            machine(a100(0, "7g.40gb")), config(FIVE, mps=True), "MPS sharing is not supported for mig", id="mps-on-mig"
        ),
        pytest.param(
            machine(t4(0)),
            PluginConfig(flags=Flags.model_construct(mig_strategy="bogus")),
            "unknown strategy: bogus",
            id="strategy",
        ),
        pytest.param(machine(init_error="no driver"), PLAIN, "failed to initialize resource manager", id="no-nvml"),
    ],
)
def test_mistakes(there: Machine, file: PluginConfig, text: str) -> None:
    """NVIDIA's feature discovery gives no labels at all then."""
    with pytest.raises(LabelError, match=text):
        labels(there, file)


def test_a_failing_driver_may_be_tolerated() -> None:
    """The machine is then one without cards."""
    file = PluginConfig(flags=Flags(fail_on_init_error=False))

    assert labels(machine(t4(0), init_error="no driver"), file) == {"nvidia.com/vgpu.present": "false"}


def test_what_is_not_known_is_not_told() -> None:
    """Neither memory, nor compute capability, nor product."""
    bare = replace(t4(0), memory_mib=0, compute_capability=(0, 0), name="")
    found = of(GPU, labels(machine(bare), PLAIN))

    assert not found.keys() & {"memory", "family", "compute.major", "compute.minor", "product"}


def test_time() -> None:
    """Whole seconds, unless nobody wants them."""
    assert timestamp_label(GfdFlags(), 1760000000.9) == {"nvidia.com/gfd.timestamp": "1760000000"}
    assert timestamp_label(GfdFlags(no_timestamp=True), 1760000000.9) == {}


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        *(
            pytest.param((major, 0), name, id=f"{name}-{major}")
            for major, name in [
                *((1, "tesla"), (2, "fermi"), (3, "kepler"), (5, "maxwell"), (6, "pascal"), (8, "ampere")),
                *((9, "hopper"), (10, "blackwell"), (12, "blackwell"), (13, "rubin")),
            ]
        ),
        pytest.param((7, 0), "volta", id="oldest-volta"),
        pytest.param((8, 8), "ampere", id="youngest-ampere"),
        pytest.param((8, 9), "ada-lovelace", id="ada-lovelace"),
        pytest.param((4, 0), "undefined", id="never-built"),
        pytest.param((7, 4), "volta", id="volta"),
        pytest.param((7, 5), "turing", id="turing"),
        pytest.param((11, 0), "undefined", id="undefined"),
    ],
)
def test_families(capability: tuple[int, int], expected: str) -> None:
    """The major number decides, except that 7 and 8 each stand for two architectures."""
    assert family(capability) == expected


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
