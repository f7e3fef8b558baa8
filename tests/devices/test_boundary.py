"""What containers may see: the acceptance scenarios, exceptions, odd requests; and that nothing grows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from criproxy.devices.boundary import Boundary, boundary
from criproxy.devices.classes.builtin import AMD, ASCEND, BUILTIN, CAMBRICON, HABANA, INTEL_GPU, NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence.evidence import Known, weigh
from criproxy.errors import StatusCode
from tests.devices.fixture import ALI, NOTHING, SHARED, STOCKS, asked, at_create, check, given, row, rules, words

GPU_B, NPU_1 = given(nvidia_com__gpu="GPU-b"), given(nvidia_com__gpu="GPU-a", aliyun_com__npu="npu1")
ALL, VOID, CARD, CARD_A = (f"NVIDIA_V={value}" for value in ("all", "void", "GPU-b", "GPU-a"))
VOLUMES = "/var/run/nvidia-container-devices"
V, BY_MOUNT = VOLUMES, f"NVIDIA_V={VOLUMES}"
REPORT, OFF = rules(hide_unallocated="report"), rules(hide_unallocated="off")
DENIED, FAIL = rules(privileged="deny"), rules(on_no_evidence="fail")
EXEMPT = rules(exempt_namespaces=("kube-system", "nvidia-*"), exempt_images=("nvcr.io/nvidia/*",))
SYSTEM, DCGM = Requester(namespace="kube-system"), Requester(namespace="nvidia-dcgm")
IMAGE = Requester(namespace="default", images=("sha256:1", "nvcr.io/nvidia/dcgm:4"))
PRIVILEGED = Requester(namespace="default", privileged=True)
ON_ASCEND, ON_KATA, ON_AMD = (Requester(namespace="default", runtime=name) for name in ("ascend", "kata", "amd"))
BUILT_IN = rules(*BUILTIN.values())
HIDDEN = f"A=1 {VOID} AMD_V=void HABANA_V=none"
NODES_A, NODES_B = ["/dev/nvidia0", *SHARED], ["/dev/nvidia1", *SHARED]
NODES_OF_TWO, NO_NODES = ["/dev/rdma0", *NODES_A, "/dev/npu1"], rules(keep_access_on_update=False)
ASCENDS, ASCEND_SHARED = given(huawei_com__Ascend910="Ascend910-1,Ascend910-3"), list(STOCKS["ascend"].shared)
PART = given(huawei_com__Ascend910="Ascend910-2c-100-1")
AND_PART = given(huawei_com__Ascend910="Ascend910-1,Ascend910-2c-100-0")
ADDED, REMOVED, KEPT = "allocated nodes-added", "allocated stripped nodes-added", "allocated override nodes-added"
WISHES = asked(ALL, VOID, "CUDA_DISABLE_CONTROL=true", "A=1", mounts=(f"{V}/all", "/data"))
IMEX, WITHOUT_IMEX = f"{V}/imex/0", asked("NVIDIA_IMEX_CHANNELS=0", "NVIDIA_NVSWITCH=on")
BOTH_IMEX = asked(BY_MOUNT, mounts=(f"{V}/GPU-b", IMEX, f"{V}/imex/1"))
TWO = asked("A=1", CARD_A, "RDMA=x", ALL, "A=1", devices=("/dev/rdma0",))
AMD_NODES = ("/dev/kfd", "/dev/dri/card1")
AMD_CARD, NO_AMD = given(amd_com__gpu="0000:43:00.0"), "AMD_V=void"
VARIABLE = replace(ALI, hide_value="void", strip_env=("ALI_CARDS",))


def keep(mode: str, **more: Any) -> DeviceRules:  # noqa: ANN401
    """Rules by which what a pod asks for stays."""
    return rules(user_override=mode, **more)


def serial(kind: DeviceClass, resource: str) -> Any:  # noqa: ANN401 (a ParameterSet)
    """The entry of a plugin that alone knows the values comes before the pod's own, and stays; the others go."""
    known, name = Known("podresources", {resource: ("serial-7",)}, complete=True), kind.visible_env
    create, left = asked(f"{name}=0", "A=1", f"{name}=all"), f"A=1 {name}=0".replace("_VISIBLE_DEVICES", "_V")
    return row(f"plugin-of-{kind.name}", create, known, left, "allocated stripped no-device-nodes", of=rules(kind))


def amd(id: str, *own: str, left: str, words: str = "*", kind: DeviceClass = AMD, **more: Any) -> Any:  # noqa: ANN401
    """A create with the nodes of an AMD card, as its plugin passes them."""
    who, nodes = more.pop("who", SYSTEM), list(AMD_NODES)
    create = asked(*own, devices=AMD_NODES)
    return row(f"amd-{id}", create, None, left, words, of=rules(kind, **more), who=who, nodes=nodes)


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        row("1-image", asked("P=/bin", "B=2", mounts=("/d",)), NOTHING, f"P=/bin B=2 {VOID}", "hidden", mounts=("/d",)),
        row("1-report", asked("A=1"), NOTHING, "A=1", "would-hide", of=REPORT),
        row("2-pod", asked(ALL), NOTHING, VOID, "hidden stripped"),
        row("2-keep", asked(ALL), NOTHING, ALL, "override", of=keep("keep")),
        row("2-report", asked(ALL), NOTHING, ALL, "override", of=keep("report")),
        row("3-override", asked(CARD, ALL), GPU_B, CARD, REMOVED, nodes=NODES_B),
        row("4-replicas", asked(CARD_A), given(nvidia_com__gpu="GPU-a::3,GPU-a::1"), CARD_A, nodes=NODES_A),
        row("11-ascend", asked("ASCEND_V=1,3"), ASCENDS, "ASCEND_V=1,3", of=rules(ASCEND)),
        row("11-its-runtime", asked(), NOTHING, "ASCEND_V=void", of=rules(ASCEND), who=ON_ASCEND),
        row("11-default", asked(), NOTHING, "", of=rules(ASCEND)),
        row("11-kata", asked(), NOTHING, "", of=rules(ASCEND), who=ON_KATA),
        row("12-own-class", asked(), given(aliyun_com__npu="npu0"), "", of=rules(ALI), nodes=["/dev/npu0"]),
        row("13-amd", asked(devices=AMD_NODES), AMD_CARD, NO_AMD, of=rules(AMD), nodes=[*AMD_NODES]),
        row("13-amd-two", asked("DOCKER_RESOURCE_x=all", "AMD_V=all"), NOTHING, NO_AMD, of=rules(AMD)),
        row("13-habana", asked("HABANA_VISIBLE_DEVICES_X=all"), NOTHING, "HABANA_V=none", of=rules(HABANA)),
        row("14", asked(CARD), GPU_B, CARD, "allocated no-device-nodes", of=NO_NODES, nodes=[]),
        row("19-two", TWO, NPU_1, f"A=1 RDMA=x A=1 {CARD_A}", of=rules(NVIDIA, ALI), nodes=NODES_OF_TWO),
        row("20-all", asked("A=1"), NOTHING, HIDDEN, of=BUILT_IN),
        row("20-again", asked(*HIDDEN.split()), NOTHING, HIDDEN, "", of=BUILT_IN),
        row("exempt-namespace", asked(ALL), NOTHING, ALL, "exempt", of=EXEMPT, who=SYSTEM),
        row("exempt-pattern", asked(ALL), NOTHING, ALL, "exempt", of=EXEMPT, who=DCGM),
        row("exempt-image", asked(ALL), NOTHING, ALL, "exempt", of=EXEMPT, who=IMAGE),
        row("not-exempt", asked(ALL), NOTHING, VOID, of=EXEMPT),
        row("allowed", asked(ALL), NOTHING, ALL, "privileged", of=rules(privileged="allow"), who=PRIVILEGED),
        row("reported", asked(ALL), NOTHING, VOID, "privileged hidden stripped", who=PRIVILEGED),
        row("denied", asked(ALL), NOTHING, None, of=DENIED, who=PRIVILEGED, refused=StatusCode.PERMISSION_DENIED),
        row("not-denied", asked(ALL), NOTHING, None, of=replace(EXEMPT, privileged="deny"), who=SYSTEM, refused=None),
        row("untold-keep", asked(ALL), None, ALL, "no-evidence"),
        row("untold-hide", asked(ALL), None, VOID, of=rules(on_no_evidence="hide")),
        row("untold-fail", asked(ALL), None, None, of=FAIL, refused=StatusCode.UNAVAILABLE),
        row("untold-asks-nothing", asked(), None, VOID, of=FAIL),
        row("mounts", asked(BY_MOUNT, ALL, mounts=(f"{V}/GPU-b", f"{V}/0")), GPU_B, BY_MOUNT, mounts=(f"{V}/GPU-b",)),
        row("mount-by-index", asked(BY_MOUNT, mounts=(f"{V}/1",)), GPU_B, BY_MOUNT, ADDED, mounts=(f"{V}/1",)),
        row("of-others", asked(BY_MOUNT, mounts=(f"{V}/1:0", f"{V}/1")), GPU_B, BY_MOUNT, mounts=(f"{V}/1",)),
        row("mount-by-index-of-nothing", asked(BY_MOUNT, mounts=(f"{V}/1",)), NOTHING, VOID, mounts=()),
        row("plugin-that-counts", asked("NVIDIA_V=1"), GPU_B, CARD, ADDED),
        serial(HABANA, "habana.ai/gaudi"),
        serial(CAMBRICON, "cambricon.com/mlu"),
        serial(replace(AMD, write_env=True, id_format="plugin"), "amd.com/gpu"),
        row("part-stays", asked("ASCEND_V=100", "ASCEND_V=0"), PART, "ASCEND_V=100", of=rules(ASCEND), nodes=[]),
        row("beside-a-part", asked("ASCEND_V=1,100"), AND_PART, "ASCEND_V=1,100", of=rules(ASCEND)),
        row("limits-stay", asked(CARD, "CUDA_DISABLE_CONTROL=true"), GPU_B, CARD, REMOVED),
        row("kept-beside-a-card", asked(CARD, ALL), GPU_B, f"{CARD} {ALL}", KEPT, of=keep("keep"), nodes=NODES_B),
        row("wishes-reported", WISHES, NOTHING, f"{VOID} A=1", "would-hide stripped", of=REPORT, mounts=("/data",)),
        row("wishes-off", WISHES, NOTHING, f"{VOID} A=1", "stripped", of=OFF, mounts=("/data",)),
        row("no-wishes-off", asked("A=1"), NOTHING, "A=1", "", of=OFF),
        row("kept-off", asked(ALL), NOTHING, ALL, "override", of=keep("report", hide_unallocated="off")),
        row("card-off", asked(CARD, ALL), GPU_B, CARD, of=OFF),
        row("nodes-only", asked("A=1", cdi=("x.org/y=0",)), None, "A=1", "", of=rules(INTEL_GPU, ALI)),
        row("nodes-only-told", asked("A=1"), NOTHING, "A=1", "", of=rules(INTEL_GPU, ALI)),
        row("no-variable", asked("A=1", "ALI_CARDS=all"), NOTHING, "A=1", "hidden stripped", of=rules(VARIABLE)),
        row("nodes-there", asked(CARD, devices=("/dev/nvidia1",)), GPU_B, CARD, ADDED, nodes=NODES_B),
        row("nothing-passes-switches", asked(CARD, "NVIDIA_NVSWITCH=on"), GPU_B, CARD, REMOVED),
        row("nor-other-channels", asked(CARD, "NVIDIA_IMEX_CHANNELS=0,1"), GPU_B, CARD, REMOVED),
        row("its-channel", asked(CARD, "NVIDIA_IMEX_CHANNELS=0"), GPU_B, f"{CARD} NVIDIA_IMEX_CHANNELS=0", ADDED),
        row("its-channel-as-a-mount", BOTH_IMEX, GPU_B, BY_MOUNT, REMOVED, mounts=(f"{V}/GPU-b", IMEX)),
        row("no-channel-without-a-card", BOTH_IMEX, NOTHING, VOID, mounts=()),
        row("no-variable-without-a-card", WITHOUT_IMEX, NOTHING, VOID),
        row("its-features", asked(CARD, "NVIDIA_GDS=on"), GPU_B, f"{CARD} NVIDIA_GDS=on", ADDED),
        amd("image", "A=1", left=f"A=1 {NO_AMD}", words="allocated"),
        amd("all", "AMD_V=all", "A=1", left=f"A=1 {NO_AMD}", words="allocated stripped"),
        amd("docker", "DOCKER_RESOURCE_GPU=all", left=NO_AMD, words="allocated stripped"),
        amd("off", left="", hide_unallocated="off"),
        amd("report", "AMD_V=all", left="", hide_unallocated="report"),
        amd("another-runtime", left="", kind=replace(AMD, runtimes=("amd*",))),
        amd("its-runtime", left=NO_AMD, kind=replace(AMD, runtimes=("amd*",)), who=ON_AMD),
        amd("no-hide-value", left="", kind=replace(AMD, hide_value="")),
        amd("kept", "AMD_V=all", left="AMD_V=all", user_override="keep"),
        amd("nothing-to-keep", left=NO_AMD, user_override="keep"),
    ],
)
def test_creates(create: Callable[[], Boundary], expected: Mapping[str, object]) -> None:
    """The acceptance scenarios by their numbers, exceptions, and what plugins and pods write in other ways."""
    check(create, expected)


@pytest.mark.parametrize(
    "path", [V, f"{V}/all", "/var/run/../run/./nvidia-container-devices/all", f"/{V}/GPU-a", f"{V}all", f"{V}0/x"]
)
def test_the_bypass_by_mounts_is_closed(path: str) -> None:
    """Mounts whose names ask NVIDIA's hook for cards are taken out, however they are written; all others stay."""
    create = asked(mounts=("/data", path, "/var/run/nvidia", f"{VOLUMES[:-1]}"))

    for known in (NOTHING, GPU_B):
        done = at_create(create, known)
        assert [mount.container_path for mount in done.asked.mounts] == ["/data", "/var/run/nvidia", f"{VOLUMES[:-1]}"]
        assert "stripped" in words(done)


def test_sentences() -> None:
    """They name what a create has, and no value; ids are shortened, however long and many they are."""
    (untold,) = at_create(asked("A=1", mounts=(f"{V}/all",))).findings
    binary = DeviceRequest(envs=(EnvVar("NVIDIA_VISIBLE_DEVICES", b"void\xff"), EnvVar("B", b"\xff")))
    hidden = at_create(binary, NOTHING)
    ids = ",".join(f"GPU-{number}-{'x' * 5000}" for number in range(500))
    many = at_create(asked(annotations={"devices.criproxy.io/nvidia.com_gpu": ids}))

    assert f"it asks for one with mount {V}/all" in untold.sentence
    assert "NVIDIA_VISIBLE_DEVICES" not in untold.sentence
    assert hidden.asked.envs == (EnvVar("B", b"\xff"), EnvVar("NVIDIA_VISIBLE_DEVICES", b"void"))
    assert not any("xff" in finding.sentence for finding in hidden.findings)
    assert sum(len(finding.sentence) for finding in many.findings) < 3000
    assert "and 484 more" in many.findings[0].sentence
    assert many.asked.envs[0].value == ids.encode()
    assert at_create(asked(), NOTHING, of=REPORT).findings[0].sentence == (
        "nvidia: no card is allocated to it (podresources), and it may see the cards that its image asks for, because "
        "hideUnallocated is report; with enforce, NVIDIA_VISIBLE_DEVICES=void hides every card"
    )
    limit = at_create(asked(CARD, "CUDA_DISABLE_CONTROL=true"), GPU_B).findings[1].sentence
    assert limit == "nvidia: it asked for more than was allocated to it: criproxy removed CUDA_DISABLE_CONTROL"
    assert "it sees no card" in at_create(asked("ALI_CARDS=all"), NOTHING, of=rules(VARIABLE)).findings[0].sentence


CLASSES = (*BUILTIN.values(), ALI)
VISIBLE = [kind.visible_env for kind in CLASSES if kind.visible_env]
NAMES = ["A", *VISIBLE, "DOCKER_RESOURCE_x", "HABANA_VISIBLE_DEVICES_2"]
VALUES = [b"", b"all", b"void", b"none", b"0", b"1", b"GPU-a", b"GPU-b,GPU-a", VOLUMES.encode(), b"\xff"]
PATHS = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/dri/card1", "/dev/davinci2", "/dev/npu0", "/dev/null"]
NODES = st.sampled_from(PATHS).map(lambda path: DeviceNode(path, path, "rw"))
IDS = st.lists(st.sampled_from(["GPU-a", "GPU-b::1", "MIG-1", "1", "card1-0", "Ascend910-2", "npu0"]), max_size=2)
RESOURCES = ["nvidia.com/gpu", "huawei.com/Ascend910", "amd.com/gpu", "aliyun.com/npu", "habana.ai/gaudi", "x.org/y"]
CREATES = st.builds(
    DeviceRequest,
    envs=st.lists(st.builds(EnvVar, st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5).map(tuple),
    devices=st.lists(NODES, max_size=3).map(tuple),
    mounts=st.lists(
        st.builds(MountPoint, st.sampled_from(["/data", f"{VOLUMES}/GPU-a", f"{VOLUMES}/all"]), st.just("/dev/null")),
        max_size=2,
    ).map(tuple),
    cdi=st.lists(st.sampled_from(["nvidia.com/gpu=0", "nvidia.com/gpu=all", "x.org/y=0"]), max_size=1).map(tuple),
    annotations=st.dictionaries(st.just("devices.criproxy.io/nvidia.com_gpu"), st.just("GPU-a")),
)
KNOWN = st.lists(
    st.builds(
        Known,
        st.just("podresources"),
        st.dictionaries(st.sampled_from(RESOURCES), IDS.map(tuple), max_size=2),
        st.booleans(),
    ),
    max_size=1,
)
RULES = st.builds(
    DeviceRules,
    classes=st.just(CLASSES),
    hide_unallocated=st.sampled_from(["off", "report", "enforce"]),
    user_override=st.sampled_from(["keep", "report", "strip"]),
    on_no_evidence=st.sampled_from(["keep", "hide"]),
    keep_access_on_update=st.booleans(),
)


@generated(CREATES, KNOWN, RULES)
def test_its_own_output_passes_unchanged(create: DeviceRequest, known: list[Known], of: DeviceRules) -> None:
    """Whatever is asked, a second time changes nothing: a repeated create gets the same."""
    done = at_create(create, *known, of=of, who=ON_ASCEND)

    assert done.refusal is None  # and `at_create` has tried it again


@generated(CREATES, KNOWN)
def test_what_is_enforced(create: DeviceRequest, known: list[Known]) -> None:
    """Managed variables come once; what nobody manages keeps order and bytes; nodes of no other card are added."""
    of = DeviceRules(classes=CLASSES, on_no_evidence="hide")
    evidence = weigh(CLASSES, create, known, STOCKS)
    done = boundary(of, ON_ASCEND, create, evidence, STOCKS).asked

    for kind in CLASSES:
        visible = [env.value for env in done.envs if env.name == kind.visible_env]
        assert len(visible) <= 1
        if kind.hide_value and not kind.write_env:
            assert visible == [kind.hide_value.encode()]
    assert [env for env in done.envs if env.name == "A"] == [env for env in create.envs if env.name == "A"]
    assert done.devices[: len(create.devices)] == create.devices
    ours = {node for kind in CLASSES for each in evidence[kind.name].ids for node in _nodes(kind, each)}
    shared = {path for stock in STOCKS.values() for path in stock.shared}
    assert {node.host_path for node in done.devices[len(create.devices) :]} <= ours | shared
    assert done.cdi == create.cdi


def _nodes(kind: DeviceClass, id: str) -> tuple[str, ...]:
    card = STOCKS[kind.name].card(kind, id) if kind.name in STOCKS else None
    return card.nodes if card else ()
