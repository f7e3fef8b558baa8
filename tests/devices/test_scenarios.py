"""The acceptance scenarios of the boundary at CreateContainer, with their exact values."""

import pytest

from criproxy.devices.boundary import Word
from criproxy.devices.classes.builtin import AMD, ASCEND, HABANA, NVIDIA
from criproxy.devices.evidence.device_request import Requester
from tests.devices.fixture import ALI, NOTHING, SHARED, asked, at_create, envs, every, given, paths, rules, words

GPU_B = given(nvidia_com__gpu="GPU-b")
VOID = "NVIDIA_VISIBLE_DEVICES=void"


def test_1_nobody_asked_and_the_image_says_all() -> None:
    """Without an allocation the hide value is there exactly once and last, and nothing else changes."""
    mounts = ("/data",)

    done = at_create(asked("PATH=/bin", "B=2", mounts=mounts), NOTHING)

    assert envs(done) == ["PATH=/bin", "B=2", VOID]
    assert not done.asked.devices
    assert [mount.container_path for mount in done.asked.mounts] == ["/data"]
    assert words(done) == [Word.HIDDEN]


def test_1_reported_only() -> None:
    """With hideUnallocated=report the create stays as it came, and one sentence tells what would be hidden."""
    create = asked()

    done = at_create(create, NOTHING, of=rules(hide_unallocated="report"))

    assert done.asked == create
    assert words(done) == [Word.WOULD_HIDE]


def test_2_the_pod_says_all_without_an_allocation() -> None:
    """Its own variable is taken out, and the hide value is there once."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=all"), NOTHING)

    assert envs(done) == [VOID]
    assert words(done) == [Word.HIDDEN, Word.STRIPPED]


@pytest.mark.parametrize("mode", ["keep", "report"])
def test_2_overrides_are_kept(mode: str) -> None:
    """With userOverride=keep or report it stays, and is told."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=all"), NOTHING, of=rules(user_override=mode))

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=all"]
    assert words(done) == [Word.OVERRIDE]


def test_3_an_allocation_that_the_pod_overrides() -> None:
    """The container sees the card that was allocated, with the nodes of that card and those of all, and no other."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=GPU-b", "NVIDIA_VISIBLE_DEVICES=all"), GPU_B)

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=GPU-b"]
    assert paths(done) == ["/dev/nvidia1", *SHARED]
    assert {node.permissions for node in done.asked.devices} == {"rw"}
    assert words(done) == [Word.ALLOCATED, Word.STRIPPED, Word.NODES_ADDED]


def test_4_a_replica_is_its_card() -> None:
    """Shares of one card show the card."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=GPU-a"), given(nvidia_com__gpu="GPU-a::3,GPU-a::1"))

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=GPU-a"]
    assert paths(done) == ["/dev/nvidia0", *SHARED]


def test_11_ascend() -> None:
    """Ids become numbers, once, with the nodes of both cards and of the manager."""
    known = given(huawei_com__Ascend910="Ascend910-1,Ascend910-3")

    done = at_create(asked("ASCEND_VISIBLE_DEVICES=1,3"), known, of=rules(ASCEND))

    assert envs(done) == ["ASCEND_VISIBLE_DEVICES=1,3"]
    assert paths(done) == [
        "/dev/davinci1",
        "/dev/davinci3",
        "/dev/davinci_manager",
        "/dev/devmm_svm",
        "/dev/hisi_hdc",
    ]


@pytest.mark.parametrize(("runtime", "expected"), [("ascend", ["ASCEND_VISIBLE_DEVICES=void"]), ("", []), ("kata", [])])
def test_11_ascend_is_hidden_where_its_runtime_runs(runtime: str, expected: list[str]) -> None:
    """Other runtimes get no variable, and never an empty one."""
    done = at_create(asked(), NOTHING, of=rules(ASCEND), who=Requester(namespace="default", runtime=runtime))

    assert envs(done) == expected


def test_12_a_class_of_ones_own_without_a_variable() -> None:
    """The card's node is there, and no variable is added."""
    done = at_create(asked(), given(aliyun_com__npu="npu0"), of=rules(ALI))

    assert paths(done) == ["/dev/npu0"]
    assert not done.asked.envs


def test_13_amd_as_its_plugin_gave_it() -> None:
    """The nodes stay as they were, and no variable names a card: the only one outweighs what the image says."""
    nodes = ("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD129")

    done = at_create(asked(devices=nodes), given(amd_com__gpu="0000:43:00.0"), of=rules(AMD))

    assert tuple(paths(done)) == nodes
    assert envs(done) == ["AMD_VISIBLE_DEVICES=void"]


def test_13_amd_obeys_two_variables() -> None:
    """Without an allocation both are taken out; the hide value outweighs what the image says."""
    done = at_create(asked("DOCKER_RESOURCE_x=all", "AMD_VISIBLE_DEVICES=all"), NOTHING, of=rules(AMD))

    assert envs(done) == ["AMD_VISIBLE_DEVICES=void"]


def test_13_habana_knows_no_void() -> None:
    """Its word for no card is none."""
    done = at_create(asked("HABANA_VISIBLE_DEVICES_EXTRA=all"), NOTHING, of=rules(HABANA))

    assert envs(done) == ["HABANA_VISIBLE_DEVICES=none"]


def test_14_cards_without_nodes_are_told() -> None:
    """Where nodes are not added, it is said that an update of the cpuset may take the card away."""
    create = asked("NVIDIA_VISIBLE_DEVICES=GPU-b")

    done = at_create(create, GPU_B, of=rules(keep_access_on_update=False))

    assert done.asked == create
    assert words(done) == [Word.ALLOCATED, Word.NO_NODES]
    assert Word.NO_NODES not in words(at_create(create, GPU_B))


def test_17_cdi_only() -> None:
    """The card follows from the CDI name; there is no variable beside it and no node."""
    create = asked(cdi=("nvidia.com/gpu=GPU-b",))

    done = at_create(create)

    assert done.asked == create
    assert [finding.sentence for finding in done.findings] == ["nvidia: GPU-b is allocated to it (cdi)"]


def test_17_a_variable_beside_cdi() -> None:
    """That of the pod is taken out, and the CDI names stay."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=all", cdi=("nvidia.com/gpu=1",)))

    assert not done.asked.envs
    assert done.asked.cdi == ("nvidia.com/gpu=1",)
    assert done.findings[0].sentence == "nvidia: GPU-b is allocated to it (cdi)"


@pytest.mark.parametrize("name", ["nvidia.com/gpu=all", "nvidia.com/gpu=7", "k8s.gpu.nvidia.com/claim=uid-gpu-0"])
def test_17_a_cdi_name_that_tells_no_card(name: str) -> None:
    """The create stays as it came, but for what the pod itself asks for beside the name."""
    create = asked(cdi=(name,))

    done = at_create(create)

    assert done.asked == create
    assert words(done) == [Word.CDI_UNRESOLVED]
    assert at_create(asked("NVIDIA_VISIBLE_DEVICES=all", cdi=(name,))).asked == create


def test_17_a_foreign_cdi_kind() -> None:
    """Nobody knows what it brings: the create stays as it came, unless a source knows of no allocation."""
    create = asked(cdi=("vendor.example/card=0",))

    done = at_create(create)

    assert done.asked == create
    assert words(done) == [Word.CDI_UNRESOLVED]
    assert at_create(create, of=rules(on_no_evidence="fail")).refusal is None
    assert envs(at_create(create, NOTHING)) == [VOID]


def test_19_two_classes_on_one_container() -> None:
    """Only what the classes manage changes: all else keeps its order and bytes."""
    create = asked(
        "A=1", "NVIDIA_VISIBLE_DEVICES=GPU-a", "RDMA=x", "NVIDIA_VISIBLE_DEVICES=all", "A=1", devices=("/dev/rdma0",)
    )

    done = at_create(create, given(nvidia_com__gpu="GPU-a", aliyun_com__npu="npu1"), of=rules(NVIDIA, ALI))

    assert envs(done) == ["A=1", "RDMA=x", "A=1", "NVIDIA_VISIBLE_DEVICES=GPU-a"]
    assert paths(done) == ["/dev/rdma0", "/dev/nvidia0", *SHARED, "/dev/npu1"]


def test_20_its_own_output_passes_unchanged() -> None:
    """All classes together hide once; the second time there is nothing to do."""
    done = at_create(asked("A=1"), NOTHING, of=every())

    assert envs(done) == ["A=1", VOID, "AMD_VISIBLE_DEVICES=void", "HABANA_VISIBLE_DEVICES=none"]
    assert not words(at_create(done.asked, NOTHING, of=every()))
