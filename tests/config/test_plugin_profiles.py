"""The list of profiles: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.classes.vgpu_profiles import CardChoice, Profile
from criproxy.errors import ConfigError
from tests.config.files import write

CLASS = '{name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}'


def _text(profiles: str, more: str = "") -> str:
    """A policy file with these profiles."""
    return f"policy: none\ndevices:\n  classes: [nvidia, {CLASS}]\n  plugin:\n    profiles: [{profiles}]\n    {more}\n"


def _profiles(tmp_path: Path, profiles: str) -> tuple[Profile, ...]:
    devices = load(write(tmp_path / "p.yaml", _text(profiles).encode()), "any").common.devices
    assert devices is not None
    plan = devices.plan()
    assert plan is not None
    return plan.profiles


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, count: auto, enforce: [mig], select: {share: 50%}}",
            Profile(name="g", kind="nvidia", memory_mib=8192, enforce=("mig",), select=CardChoice(share_percent=50)),
            id="all-mig-devices-of-half-of-the-cards",
        ),
        pytest.param(
            "{name: gpu-8g, class: nvidia, memory: 8192Mi, cores: 25}",
            Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25),
            id="both-quotas",
        ),
        pytest.param(
            "{name: half, class: nvidia, memory: 50%, count: 2, enforce: [hami-core, watch], ifMissing: next}",
            Profile(
                name="half",
                kind="nvidia",
                memory_percent=50,
                count=2,
                enforce=("hami-core", "watch"),
                when_missing="next",
            ),
            id="a-share-and-a-number",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, count: auto, select: "
            "{models: ['Tesla-T4*'], indexes: [0, 2], ids: [GPU-a], share: 50%}}",
            Profile(
                name="g",
                kind="nvidia",
                memory_mib=8192,
                select=CardChoice(models=("Tesla-T4*",), indexes=(0, 2), ids=("GPU-a",), share_percent=50),
            ),
            id="a-choice-of-cards",
        ),
        pytest.param(
            "{name: g, class: nvidia, enforce: [mig, watch], select: {mig: ['1g.*', 2g.20gb+me]}}",
            Profile(name="g", kind="nvidia", enforce=("mig", "watch"), select=CardChoice(mig=("1g.*", "2g.20gb+me"))),
            id="mig-devices-by-their-names-alone",
        ),
        pytest.param(
            """{name: g, class: ali-npu, cores: 50, env: {A: '{card}:{cores_percent}', B: '{"a": {}}', CUDA: ''}}""",
            Profile(
                name="g",
                kind="ali-npu",
                cores_percent=50,
                env=(("A", "{card}:{cores_percent}"), ("B", '{"a": {}}'), ("CUDA", "")),
            ),
            id="variables",
        ),
    ],
)
def test_a_profile_means_a_quota(tmp_path: Path, text: str, profile: Profile) -> None:
    """Memory is an amount or a share, and cores are percent."""
    assert _profiles(tmp_path, text) == (profile,)


@pytest.mark.parametrize(
    "profiles",
    [
        pytest.param(
            "{name: g, class: nvidia, cores: 5, select: {indexes: [0]}}, {name: h, class: nvidia, cores: 5, select: "
            "{indexes: [1]}}",
            id="of-different-cards",
        ),
        pytest.param("{name: g, class: nvidia, cores: 5}, {name: h, class: ali-npu, cores: 5}", id="of-two-classes"),
        pytest.param("{name: g, class: nvidia, cores: 5}, {name: h, class: nvidia, cores: 5, count: 2}", id="a-number"),
        pytest.param(
            "{name: g, class: nvidia, cores: 5}, {name: h, class: nvidia, cores: 5, enforce: [mig]}",
            id="of-mig-devices",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, enforce: [mig], select: {indexes: [0]}}, "
            "{name: h, class: nvidia, cores: 5, enforce: [mig], select: {indexes: [1]}}",
            id="of-mig-devices-of-different-cards",
        ),
    ],
)
def test_several_profiles_can_be_meant(tmp_path: Path, profiles: str) -> None:
    """At most one of those of the same cards takes what the others leave."""
    assert len(_profiles(tmp_path, profiles)) == 2


def test_vgpus_belong_to_their_class(tmp_path: Path) -> None:
    """The resource of a profile is one of its class's, so that the daemon knows whose cards it means."""
    text = _text("{name: gpu-8g, class: nvidia, memory: 8Gi}, {name: half, class: ali-npu, cores: 50}")
    devices = load(write(tmp_path / "p.yaml", text.encode()), "any").common.devices
    assert devices is not None
    rules = devices.rules()
    serving = {kind.name: kind for kind in rules.classes}
    assert serving["nvidia"].serves("criproxy.io/gpu-8g")
    assert serving["ali-npu"].serves("criproxy.io/half")
    assert not serving["nvidia"].serves("criproxy.io/half")


@pytest.mark.parametrize(
    ("profiles", "more", "sentence"),
    [
        pytest.param("{name: g, class: nvidia}", "", "needs memory, cores, or both", id="no-quota"),
        pytest.param("{name: g, class: nvidia, memory: 8 GB}", "", "must be an amount such as 8192Mi", id="memory"),
        pytest.param("{name: g, class: nvidia, cores: 0}", "", "greater than or equal to 1", id="no-cores"),
        pytest.param("{name: g, class: nvidia, cores: 5, count: all}", "", "must be auto, or the number", id="count"),
        pytest.param("{name: G, class: nvidia, cores: 5}", "", "at most 18 characters of a-z", id="capital-name"),
        pytest.param(
            "{name: a-name-of-19-chars-, class: nvidia, cores: 5}", "", "at most 18 characters", id="long-name"
        ),
        pytest.param("{name: g, class: nvida, cores: 5}", "", "did you mean 'nvidia'?", id="unknown-class"),
        pytest.param(
            "{name: g, class: nvidia, cores: 5}, {name: g, class: ali-npu, cores: 5}",
            "",
            "another profile also has the name 'g'",
            id="twice",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 40%, count: 3}",
            "",
            "3 x 40 % are 120 % of a card's memory: at most 2 fit",
            id="too-many",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, enforce: [watch, watch]}",
            "",
            "watch is listed twice",
            id="enforce-twice",
        ),
        pytest.param(
            "{name: g, class: ali-npu, cores: 5, select: {indexes: [1]}}",
            "sharing: [{resource: aliyun.com/npu, devices: [1], replicas: 2}]",
            "card 1 is also in sharing",
            id="shared-and-cut",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, env: {NVIDIA_VISIBLE_DEVICES: all}}",
            "",
            "env.NVIDIA_VISIBLE_DEVICES: criproxy itself sets or removes NVIDIA_VISIBLE_DEVICES: leave it out",
            id="env-that-shows-cards",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, env: {NVIDIA_IMEX_CHANNELS: '1'}}",
            "",
            "criproxy itself sets or removes NVIDIA_IMEX_CHANNELS",
            id="env-that-the-class-strips",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, enforce: [hami-core], env: {CUDA_DEVICE_SM_LIMIT_0: '90'}}",
            "",
            "criproxy itself sets or removes CUDA_DEVICE_SM_LIMIT_0",
            id="env-of-hami-core",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, enforce: [watch, mps], env: {CUDA_MPS_PIPE_DIRECTORY: /x}}",
            "",
            "criproxy itself sets or removes CUDA_MPS_PIPE_DIRECTORY",
            id="env-of-mps",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 1Gi, enforce: [nvidia-memory-limit], env: {NVIDIA_GPU_MEMORY_LIMIT: x}}",
            "",
            "criproxy itself sets or removes NVIDIA_GPU_MEMORY_LIMIT",
            id="env-of-the-driver",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, env: {A: 'x{memory}'}}",
            "",
            "env.A: {memory} is not a placeholder: use {memory_mib}, {cores_percent} or {card}",
            id="unknown-placeholder",
        ),
        *(
            pytest.param(
                f"{{name: g, class: ali-npu, memory: 1Gi, count: 2, enforce: [watch, {way}]}}",
                "",
                f"profiles[0].enforce: {way} works only for NVIDIA's cards: use watch",
                id=f"{way}-of-another-class",
            )
            for way in ("hami-core", "mps", "nvidia-memory-limit")
        ),
        pytest.param(
            "{name: g, class: ali-npu, cores: 5, enforce: [mig]}",
            "",
            "profiles[0].enforce: mig works only for NVIDIA's cards: use watch",
            id="mig-of-another-class",
        ),
        *(
            pytest.param(
                f"{{name: g, class: nvidia, memory: 8Gi, enforce: [{way}, mig]}}",
                "",
                f"profiles[0].enforce: the hardware limits a MIG device, and not {way}: use mig, or mig and watch",
                id=f"mig-and-{way}",
            )
            for way in ("hami-core", "mps", "nvidia-memory-limit")
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, count: 1, enforce: [mig]}",
            "",
            "profiles[0].count: each MIG device is one vGPU: leave count out",
            id="a-number-of-mig-devices",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, enforce: [mig, watch], ifMissing: next}",
            "",
            "profiles[0].ifMissing: without a MIG device there is no vGPU, and nothing else isolates as much",
            id="next-to-mig",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, select: {mig: [1g.10gb]}}",
            "",
            "profiles[0].select.mig: only a profile with enforce: [mig] takes MIG devices",
            id="mig-devices-without-mig",
        ),
        pytest.param(
            "{name: g, class: nvidia, enforce: [mig]}", "", "needs memory, cores, or both", id="mig-without-any-size"
        ),
        pytest.param(
            "{name: g, class: nvidia, enforce: [mig], select: {mig: [3g.20gb, 1c.3g.20gb]}}",
            "",
            "profiles[0].select.mig[1]: 1c.3g.20gb is a compute instance that shares the memory of its GPU instance, "
            "so it cannot be a vGPU: name MIG devices that are whole GPU instances, such as 3g.20gb",
            id="a-part-of-a-gpu-instance",
        ),
        pytest.param(
            "{name: g, class: nvidia, enforce: [mig], select: {mig: ['*c.*']}}",
            "",
            "profiles[0].select.mig[0]: *c.* is a compute instance that shares",
            id="parts-of-gpu-instances",
        ),
        pytest.param(
            "{name: g, class: nvidia, enforce: [mig], select: {mig: [nvidia.com/mig-1g.10gb.me]}}",
            "",
            "profiles[0].select.mig[0]: must be a MIG profile such as 1g.10gb+me, or a pattern, not "
            "'nvidia.com/mig-1g.10gb.me'; did you mean 1g.10gb+me?",
            id="no-mig-profile",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 40Gi, enforce: [mig], select: {mig: [3g.71gb, 1g.18gb, '1g.*']}}",
            "",
            "profiles[0].select.mig[1]: a MIG device 1g.18gb has less than 18944 MiB, but memory asks for 40960 MiB: "
            "leave it out, or ask for less memory",
            id="more-memory-than-the-mig-profile-has",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, enforce: [mig], select: {ids: [MIG-a]}}",
            "",
            "profiles[0].select.ids[0]: MIG-a is a MIG device, but ids are those of GPUs: write the id of its GPU, and "
            "its profile in select.mig",
            id="the-id-of-a-mig-device",
        ),
        pytest.param(
            "{name: g, class: nvidia, memory: 8Gi, enforce: [mig]}, "
            "{name: h, class: nvidia, memory: 8192Mi, enforce: [mig, watch]}",
            "",
            "profiles[1]: asks for the same MIG devices as g, but each can have only one profile",
            id="the-same-mig-devices",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5, enforce: [nvidia-memory-limit]}",
            "",
            "profiles[0].enforce: nvidia-memory-limit limits nothing without memory: add memory, or leave it out",
            id="a-limit-of-no-memory",
        ),
        pytest.param(
            "{name: g, class: nvidia, cores: 5}, {name: h, class: nvidia, cores: 5, count: 2}, "
            "{name: i, class: nvidia, memory: 1Gi}",
            "",
            "profiles[2].count: g also has count: auto for the same cards: give all but one a number",
            id="two-autos",
        ),
        pytest.param(
            "{name: g, class: ali-npu, memory: 50%, count: 2}",
            "",
            "profiles[0].memory: criproxy does not know the memory of cards of the class 'ali-npu': give an amount",
            id="a-share-of-unknown-memory",
        ),
        pytest.param(
            "{name: g, class: ali-npu, memory: 1Gi, cores: 5}",
            "",
            "profiles[0].count: criproxy does not know the memory of cards of the class 'ali-npu': give a number",
            id="auto-of-unknown-memory",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, profiles: str, more: str, sentence: str) -> None:
    """Each mistake is named with its place and what would be right."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path / "p.yaml", _text(profiles, more).encode()), "any")
    assert sentence in str(caught.value)
    assert "devices.plugin.profiles[" in str(caught.value)


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        pytest.param("memory: 4096", "or a share such as 50%, not 4096; did you mean 4096Mi?", id="memory"),
        pytest.param("cores: 5, select: {share: 30}", "a share such as 50%, not 30; did you mean 30%?", id="share"),
        pytest.param("cores: 5, count: 0", "the number of vGPUs of each card, from 1 to 1000, not 0", id="count-0"),
        pytest.param("cores: 5, count: 1001", "from 1 to 1000, not 1001", id="too-many"),
        pytest.param("cores: 5, count: 2.5", "from 1 to 1000, not 2.5", id="a-fraction"),
        pytest.param("cores: 5, enforce: []", "enforce: must have at least 1 entry, not 0", id="no-method"),
        pytest.param(
            "cores: 5, env: {CUDA_DEVICE_MEMORY_LIMIT_0: 1m}",
            "criproxy itself sets or removes CUDA_DEVICE_MEMORY_LIMIT_0: leave it out",
            id="env-of-a-method-that-is-not-used",
        ),
    ],
)
def test_each_mistake_is_one_line(tmp_path: Path, profile: str, sentence: str) -> None:
    """Nothing beside it contradicts it."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path / "p.yaml", _text(f"{{name: g, class: nvidia, {profile}}}").encode()), "any")
    (line,) = str(caught.value).splitlines()
    assert sentence in line


def test_an_unknown_class_is_the_only_mistake(tmp_path: Path) -> None:
    """What follows from it is not told: of the class that is meant, the memory may be known."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path / "p.yaml", _text("{name: g, class: nvida, memory: 50%}").encode()), "any")
    (line,) = str(caught.value).splitlines()
    assert line.endswith("the class 'nvida' is not in advertise; did you mean 'nvidia'?")
