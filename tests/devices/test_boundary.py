"""What containers may see where the scenarios do not say it: exceptions, odd requests, and that nothing grows."""

from dataclasses import replace

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from criproxy.devices.boundary import Boundary, Word, boundary
from criproxy.devices.classes.builtin import AMD, ASCEND, BUILTIN, CAMBRICON, HABANA, INTEL_GPU
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence.evidence import Known, weigh
from criproxy.errors import StatusCode
from tests.devices.fixture import ALI, NOTHING, SHARED, STOCKS, asked, at_create, envs, given, paths, rules, words

GPU_B = given(nvidia_com__gpu="GPU-b")
ALL = "NVIDIA_VISIBLE_DEVICES=all"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
VOLUMES = "/var/run/nvidia-container-devices"


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(Requester(namespace="kube-system"), id="namespace"),
        pytest.param(Requester(namespace="nvidia-dcgm"), id="pattern"),
        pytest.param(Requester(namespace="default", images=("sha256:1", "nvcr.io/nvidia/dcgm:4")), id="image"),
    ],
)
def test_who_is_exempt_is_left_alone(who: Requester) -> None:
    """By namespace or image, patterns included; the history says why."""
    exempt = rules(exempt_namespaces=("kube-system", "nvidia-*"), exempt_images=("nvcr.io/nvidia/*",))

    done = at_create(asked(ALL), NOTHING, of=exempt, who=who)

    assert envs(done) == [ALL]
    assert words(done) == [Word.EXEMPT]
    assert envs(at_create(asked(ALL), NOTHING, of=exempt)) == [VOID]


def test_privileged_containers() -> None:
    """They are left alone, treated like all others and told of, or refused; who is exempt is not refused."""
    who = Requester(namespace="default", privileged=True)

    allowed = at_create(asked(ALL), NOTHING, of=rules(privileged="allow"), who=who)
    reported = at_create(asked(ALL), NOTHING, of=rules(), who=who)
    denied = at_create(asked(ALL), NOTHING, of=rules(privileged="deny"), who=who)
    exempt = at_create(asked(ALL), NOTHING, of=rules(privileged="deny", exempt_namespaces=("default",)), who=who)

    assert (envs(allowed), words(allowed)) == ([ALL], [Word.PRIVILEGED])
    assert (envs(reported), words(reported)) == ([VOID], [Word.PRIVILEGED, Word.HIDDEN, Word.STRIPPED])
    assert denied.refusal is not None
    assert denied.refusal.code is StatusCode.PERMISSION_DENIED
    assert exempt.refusal is None


@pytest.mark.parametrize(
    "path", [VOLUMES, f"{VOLUMES}/all", "/var/run/../run/./nvidia-container-devices/all", f"/{VOLUMES}/GPU-a"]
)
def test_the_bypass_by_mounts_is_closed(path: str) -> None:
    """Mounts whose names ask NVIDIA's hook for cards are taken out, however they are written; all others stay."""
    create = asked(mounts=("/data", path, f"{VOLUMES[:-1]}"))

    for known in (NOTHING, GPU_B):
        done = at_create(create, known)
        assert [mount.container_path for mount in done.asked.mounts] == ["/data", f"{VOLUMES[:-1]}"]
        assert Word.STRIPPED in words(done)


def test_cards_that_a_plugin_names_by_mounts() -> None:
    """The variable says so and stays, and so do the mounts of what was allocated; those of other cards go."""
    create = asked(f"NVIDIA_VISIBLE_DEVICES={VOLUMES}", ALL, mounts=(f"{VOLUMES}/GPU-b", f"{VOLUMES}/GPU-a"))

    done = at_create(create, GPU_B)

    assert envs(done) == [f"NVIDIA_VISIBLE_DEVICES={VOLUMES}"]
    assert [mount.container_path for mount in done.asked.mounts] == [f"{VOLUMES}/GPU-b"]


def test_mounts_that_name_cards_by_index() -> None:
    """With deviceListStrategy=volume-mounts and deviceIDStrategy=index, a mount has the card's index as its name."""
    create = asked(f"NVIDIA_VISIBLE_DEVICES={VOLUMES}", mounts=(f"{VOLUMES}/1",))
    more = asked(f"NVIDIA_VISIBLE_DEVICES={VOLUMES}", mounts=(f"{VOLUMES}/1", f"{VOLUMES}/0", f"{VOLUMES}/1:0"))

    for done in (at_create(create, GPU_B), at_create(more, GPU_B)):
        assert envs(done) == [f"NVIDIA_VISIBLE_DEVICES={VOLUMES}"]
        assert [mount.container_path for mount in done.asked.mounts] == [f"{VOLUMES}/1"]
    assert words(at_create(create, GPU_B)) == [Word.ALLOCATED, Word.NODES_ADDED]
    assert not at_create(create, NOTHING).asked.mounts


def test_a_plugin_that_counts_cards_is_no_override() -> None:
    """NVIDIA's plugin with deviceIDStrategy=index says the same in other words; what is written is one of them."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=1"), GPU_B)

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=GPU-b"]
    assert words(done) == [Word.ALLOCATED, Word.NODES_ADDED]


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        pytest.param(HABANA, "habana.ai/gaudi", id="habana"),
        pytest.param(CAMBRICON, "cambricon.com/mlu", id="cambricon"),
        pytest.param(replace(AMD, write_env=True, id_format="plugin"), "amd.com/gpu", id="amd-as-documented"),
    ],
)
def test_a_variable_that_only_its_plugin_knows(kind: DeviceClass, resource: str) -> None:
    """The plugin's entry comes before the pod's own, and stays; the others go."""
    name = kind.visible_env
    known = Known("podresources", {resource: ("serial-7",)}, complete=True)

    done = at_create(asked(f"{name}=0", "A=1", f"{name}=all"), known, of=rules(kind))

    assert envs(done) == ["A=1", f"{name}=0"]
    assert words(done) == [Word.ALLOCATED, Word.STRIPPED, Word.NO_NODES]


def test_a_part_of_a_card_is_never_widened_to_the_card() -> None:
    """An Ascend vNPU has a number of its own: what its plugin set stays, and no node of a whole card is added."""
    known = given(huawei_com__Ascend910="Ascend910-2c-100-1")

    done = at_create(asked("ASCEND_VISIBLE_DEVICES=100", "ASCEND_VISIBLE_DEVICES=0"), known, of=rules(ASCEND))

    assert envs(done) == ["ASCEND_VISIBLE_DEVICES=100"]
    assert not done.asked.devices


def test_a_part_beside_a_whole_card_is_not_forgotten() -> None:
    """Where one of the ids cannot be told as a number, all that the plugin set stays; the whole card has its node."""
    known = given(huawei_com__Ascend910="Ascend910-1,Ascend910-2c-100-0")

    done = at_create(asked("ASCEND_VISIBLE_DEVICES=1,100"), known, of=rules(ASCEND))

    assert envs(done) == ["ASCEND_VISIBLE_DEVICES=1,100"]
    assert paths(done)[0] == "/dev/davinci1"


def test_limits_stay_on_who_was_given_a_card() -> None:
    """A pod cannot lift limits of its share by a variable of its own."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=GPU-b", "CUDA_DISABLE_CONTROL=true"), GPU_B)

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=GPU-b"]
    assert "criproxy removed CUDA_DISABLE_CONTROL" in done.findings[1].sentence


@pytest.mark.parametrize("mode", ["keep", "report"])
def test_a_kept_override_beside_an_allocation(mode: str) -> None:
    """The variables stay as they came; the nodes of what was allocated are added all the same."""
    done = at_create(asked("NVIDIA_VISIBLE_DEVICES=GPU-b", ALL), GPU_B, of=rules(user_override=mode))

    assert envs(done) == ["NVIDIA_VISIBLE_DEVICES=GPU-b", ALL]
    assert paths(done) == ["/dev/nvidia1", *SHARED]
    assert words(done) == [Word.ALLOCATED, Word.OVERRIDE, Word.NODES_ADDED]


@pytest.mark.parametrize("mode", ["off", "report"])
def test_what_a_pod_asks_for_is_taken_out_where_nothing_is_hidden(mode: str) -> None:
    """An unallocated container sees what its image shows, and not what the pod itself asks for beside that."""
    of, mounts = rules(hide_unallocated=mode), ("/var/run/nvidia-container-devices/all", "/data")

    done = at_create(asked(ALL, VOID, "CUDA_DISABLE_CONTROL=true", "A=1", mounts=mounts), NOTHING, of=of)

    assert envs(done) == [VOID, "A=1"]
    assert [mount.container_path for mount in done.asked.mounts] == ["/data"]
    assert words(done) == [Word.WOULD_HIDE, Word.STRIPPED][mode == "off" :]
    assert at_create(asked("A=1"), NOTHING, of=rules(hide_unallocated="off")).findings == ()


@pytest.mark.parametrize("override", ["keep", "report"])
def test_what_a_pod_asks_for_is_told_where_nothing_is_hidden(override: str) -> None:
    """It stays then."""
    done = at_create(asked(ALL), NOTHING, of=rules(hide_unallocated="off", user_override=override))

    assert envs(done) == [ALL]
    assert words(done) == [Word.OVERRIDE]


def test_an_allocated_container_gets_its_own_where_nothing_is_hidden() -> None:
    """What it was given is no matter of hiding."""
    own = "NVIDIA_VISIBLE_DEVICES=GPU-b"

    assert envs(at_create(asked(own, ALL), GPU_B, of=rules(hide_unallocated="off"))) == [own]


def test_who_asks_by_a_mount_is_said_to_do_so() -> None:
    """No sentence names a variable that its create does not have."""
    (finding,) = at_create(asked("A=1", mounts=("/var/run/nvidia-container-devices/all",))).findings

    assert finding.word is Word.NO_EVIDENCE
    assert "it asks for one with mount /var/run/nvidia-container-devices/all" in finding.sentence
    assert "NVIDIA_VISIBLE_DEVICES" not in finding.sentence


def test_nobody_can_tell() -> None:
    """What asks for cards stays, is hidden, or waits; what asks for none can only be of somebody without a card."""
    kept = at_create(asked(ALL))
    hidden = at_create(asked(ALL), of=rules(on_no_evidence="hide"))
    failed = at_create(asked(ALL), of=rules(on_no_evidence="fail"))

    assert (envs(kept), words(kept)) == ([ALL], [Word.NO_EVIDENCE])
    assert envs(hidden) == [VOID]
    assert failed.refusal is not None
    assert failed.refusal.code is StatusCode.UNAVAILABLE
    assert envs(at_create(asked(), of=rules(on_no_evidence="fail"))) == [VOID]


def test_classes_of_nodes_only_have_nothing_to_hide() -> None:
    """Whatever is known of them, there is nothing to write and nothing to tell."""
    assert at_create(asked("A=1", cdi=("x.org/y=0",)), of=rules(INTEL_GPU, ALI)).findings == ()
    assert at_create(asked("A=1"), NOTHING, of=rules(INTEL_GPU, ALI)).findings == ()


def test_a_class_without_a_variable_hides_nothing_by_one() -> None:
    """A value without a variable is never written, under whatever name."""
    kind = replace(ALI, hide_value="void", strip_env=("ALI_CARDS",))

    done = at_create(asked("A=1", "ALI_CARDS=all"), NOTHING, of=rules(kind))

    assert envs(done) == ["A=1"]
    assert "it sees no card" in done.findings[0].sentence


def test_values_are_compared_as_bytes() -> None:
    """A value that is no text is another value, and not shown."""
    create = DeviceRequest(envs=(EnvVar("NVIDIA_VISIBLE_DEVICES", b"void\xff"), EnvVar("B", b"\xff")))

    done = at_create(create, NOTHING)

    assert done.asked.envs == (EnvVar("B", b"\xff"), EnvVar("NVIDIA_VISIBLE_DEVICES", b"void"))
    assert not any("xff" in finding.sentence for finding in done.findings)


def test_nodes_that_are_there_are_not_added_again() -> None:
    """Those that the plugin passed, under whatever path in the container, count."""
    create = asked("NVIDIA_VISIBLE_DEVICES=GPU-b", devices=("/dev/nvidia1", *SHARED[1:]))

    assert paths(at_create(create, GPU_B)) == ["/dev/nvidia1", *SHARED[1:], SHARED[0]]


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
    devices=st.lists(st.builds(lambda path: DeviceNode(path, path, "rw"), st.sampled_from(PATHS)), max_size=3).map(
        tuple
    ),
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
SOMEBODY = Requester(namespace="default", runtime="ascend")


@generated(CREATES, KNOWN, RULES)
def test_its_own_output_passes_unchanged(create: DeviceRequest, known: list[Known], of: DeviceRules) -> None:
    """Whatever is asked, a second time changes nothing: a repeated create gets the same."""
    done = at_create(create, *known, of=of, who=SOMEBODY)

    assert done.refusal is None  # and `at_create` has tried it again


@generated(CREATES, KNOWN)
def test_what_is_enforced(create: DeviceRequest, known: list[Known]) -> None:
    """Managed variables come once; what nobody manages keeps order and bytes; nodes of no other card are added."""
    of = DeviceRules(classes=CLASSES, on_no_evidence="hide")
    evidence = weigh(CLASSES, create, known, STOCKS)
    done = boundary(of, SOMEBODY, create, evidence, STOCKS).asked

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


NO_AMD = "AMD_VISIBLE_DEVICES=void"


def with_amd_card(*envs: str, who: Requester = SOMEBODY, kind: DeviceClass = AMD, **options: str) -> Boundary:
    """What becomes of a create with the nodes of an AMD card, as its plugin passes them."""
    return at_create(asked(*envs, devices=("/dev/kfd", "/dev/dri/card1")), of=rules(kind, **options), who=who)


@pytest.mark.parametrize("own", ["AMD_VISIBLE_DEVICES=all", "AMD_VISIBLE_DEVICES=0", "DOCKER_RESOURCE_GPU=all"])
def test_the_image_of_a_container_with_an_amd_card_shows_no_other(own: str) -> None:
    """Its nodes show its card, and the runtime obeys the image unless something later says that there is nothing."""
    image, pod = with_amd_card("A=1"), with_amd_card(own, "A=1")

    assert (envs(image), words(image)) == (["A=1", NO_AMD], [Word.ALLOCATED])
    assert (envs(pod), words(pod)) == (["A=1", NO_AMD], [Word.ALLOCATED, Word.STRIPPED])
    assert paths(image) == paths(pod) == ["/dev/kfd", "/dev/dri/card1"]


def test_the_image_of_a_container_with_an_amd_card_counts_where_nothing_is_hidden() -> None:
    """Without enforce, or in a runtime without the hook, nothing is written; what a pod may keep stays as it came."""
    all_cards, elsewhere = "AMD_VISIBLE_DEVICES=all", replace(AMD, runtimes=("amd*",))

    for mode in ("off", "report"):
        assert envs(with_amd_card(hide_unallocated=mode)) == []
        assert envs(with_amd_card(all_cards, hide_unallocated=mode)) == []
    assert envs(with_amd_card(kind=elsewhere)) == []
    assert envs(with_amd_card(kind=elsewhere, who=Requester(namespace="default", runtime="amd"))) == [NO_AMD]
    assert envs(with_amd_card(kind=replace(AMD, hide_value=""))) == []
    assert envs(with_amd_card(all_cards, user_override="keep")) == [all_cards]
    assert envs(with_amd_card(user_override="keep")) == [NO_AMD]
