"""The list of profiles: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.devices.classes.vgpu_profiles import CardChoice, Profile
from tests.config.files import devices_of, plan_of, plugin_section, said_of


def gpu(more: str, name: str = "g") -> str:
    """A profile of NVIDIA's cards."""
    return f"{{name: {name}, class: nvidia, {more}}}"


def npu(more: str, name: str = "g") -> str:
    """A profile of cards of which criproxy knows nothing."""
    return f"{{name: {name}, class: ali-npu, {more}}}"


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        pytest.param(
            gpu("memory: 8Gi, count: auto, enforce: [mig], select: {share: 50%}"),
            Profile(name="g", kind="nvidia", memory_mib=8192, enforce=("mig",), select=CardChoice(share_percent=50)),
            id="all-mig-devices-of-half-of-the-cards",
        ),
        pytest.param(
            gpu("memory: 8192Mi, cores: 25", "gpu-8g"),
            Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=25),
            id="both-quotas",
        ),
        pytest.param(
            gpu("memory: 50%, count: 2, enforce: [hami-core, watch], ifMissing: next"),
            Profile(
                name="g",
                kind="nvidia",
                memory_percent=50,
                count=2,
                enforce=("hami-core", "watch"),
                when_missing="next",
            ),
            id="a-share-and-a-number",
        ),
        pytest.param(
            gpu("memory: 8Gi, count: auto, select: {models: ['Tesla-T4*'], indexes: [0, 2], ids: [GPU-a], share: 50%}"),
            Profile(
                name="g",
                kind="nvidia",
                memory_mib=8192,
                select=CardChoice(models=("Tesla-T4*",), indexes=(0, 2), ids=("GPU-a",), share_percent=50),
            ),
            id="a-choice-of-cards",
        ),
        pytest.param(
            gpu("enforce: [mig, watch], select: {mig: ['1g.*', 2g.20gb+me]}"),
            Profile(name="g", kind="nvidia", enforce=("mig", "watch"), select=CardChoice(mig=("1g.*", "2g.20gb+me"))),
            id="mig-devices-by-their-names-alone",
        ),
        pytest.param(
            npu("""cores: 50, env: {A: '{card}:{cores_percent}', B: '{"a": {}}', CUDA: ''}"""),
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
    assert plan_of(tmp_path, f"profiles: [{text}]").profiles == (profile,)


MIG = "cores: 5, enforce: [mig]"


@pytest.mark.parametrize(
    "profiles",
    [
        pytest.param(
            f"{gpu('cores: 5, select: {indexes: [0]}')}, {gpu('cores: 5, select: {indexes: [1]}', 'h')}",
            id="of-different-cards",
        ),
        pytest.param(f"{gpu('cores: 5')}, {npu('cores: 5', 'h')}", id="of-two-classes"),
        pytest.param(f"{gpu('cores: 5')}, {gpu('cores: 5, count: 2', 'h')}", id="a-number"),
        pytest.param(f"{gpu('cores: 5')}, {gpu(MIG, 'h')}", id="of-mig-devices"),
        pytest.param(
            f"{gpu(f'{MIG}, select: {{indexes: [0]}}')}, {gpu(f'{MIG}, select: {{indexes: [1]}}', 'h')}",
            id="of-mig-devices-of-different-cards",
        ),
    ],
)
def test_several_profiles_can_be_meant(tmp_path: Path, profiles: str) -> None:
    """At most one of those of the same cards takes what the others leave."""
    assert len(plan_of(tmp_path, f"profiles: [{profiles}]").profiles) == 2


def test_vgpus_belong_to_their_class(tmp_path: Path) -> None:
    """The resource of a profile is one of its class's, so that the daemon knows whose cards it means."""
    profiles = f"{gpu('memory: 8Gi', 'gpu-8g')}, {npu('cores: 50', 'half')}"
    devices = devices_of(tmp_path, plugin_section(f"profiles: [{profiles}]"))
    assert devices is not None
    serving = {kind.name: kind for kind in devices.rules().classes}
    assert serving["nvidia"].serves("criproxy.io/gpu-8g")
    assert serving["ali-npu"].serves("criproxy.io/half")
    assert not serving["nvidia"].serves("criproxy.io/half")


OURS = "criproxy itself sets or removes"
OTHERS = ("hami-core", "mps", "nvidia-memory-limit")
"""Methods for NVIDIA's cards beside MIG."""
MISTAKES = {
    "no-quota": ("{name: g, class: nvidia}", "needs memory, cores, or both"),
    "memory": (gpu("memory: 8 GB"), "must be an amount such as 8192Mi"),
    "memory-without-a-unit": (gpu("memory: 4096"), "or a share such as 50%, not 4096; did you mean 4096Mi?"),
    "share": (gpu("cores: 5, select: {share: 30}"), "a share such as 50%, not 30; did you mean 30%?"),
    "no-cores": (gpu("cores: 0"), "greater than or equal to 1"),
    "count": (gpu("cores: 5, count: all"), "must be auto, or the number"),
    "count-0": (gpu("cores: 5, count: 0"), "the number of vGPUs of each card, from 1 to 1000, not 0"),
    "count-1001": (gpu("cores: 5, count: 1001"), "from 1 to 1000, not 1001"),
    "a-fraction": (gpu("cores: 5, count: 2.5"), "from 1 to 1000, not 2.5"),
    "too-many": (gpu("memory: 40%, count: 3"), "3 x 40 % are 120 % of a card's memory: at most 2 fit"),
    "capital-name": (gpu("cores: 5", "G"), "at most 18 characters of a-z"),
    "long-name": (gpu("cores: 5", "a-name-of-19-chars-"), "at most 18 characters"),
    "unknown-class": ("{name: g, class: nvida, memory: 50%}", "'nvida' is not in advertise; did you mean 'nvidia'?"),
    "twice": (f"{gpu('cores: 5')}, {npu('cores: 5')}", "another profile also has the name 'g'"),
    "no-method": (gpu("cores: 5, enforce: []"), "enforce: must have at least 1 entry, not 0"),
    "enforce-twice": (gpu("cores: 5, enforce: [watch, watch]"), "watch is listed twice"),
    "env-that-shows-cards": (
        gpu("cores: 5, env: {NVIDIA_VISIBLE_DEVICES: all}"),
        f"env.NVIDIA_VISIBLE_DEVICES: {OURS} NVIDIA_VISIBLE_DEVICES: leave it out",
    ),
    "env-that-the-class-strips": (gpu("cores: 5, env: {NVIDIA_IMEX_CHANNELS: '1'}"), f"{OURS} NVIDIA_IMEX_CHANNELS"),
    "env-of-hami-core": (gpu("cores: 5, env: {CUDA_DEVICE_SM_LIMIT_0: '90'}"), f"{OURS} CUDA_DEVICE_SM_LIMIT_0"),
    "env-of-mps": (gpu("cores: 5, enforce: [mps], env: {CUDA_MPS_PIPE_DIRECTORY: /x}"), f"{OURS} CUDA_MPS_PIPE_"),
    "env-of-the-driver": (
        gpu("memory: 1Gi, enforce: [nvidia-memory-limit], env: {NVIDIA_GPU_MEMORY_LIMIT: x}"),
        f"{OURS} NVIDIA_GPU_MEMORY_LIMIT",
    ),
    "placeholder": (gpu("cores: 5, env: {A: 'x{memory}'}"), "{memory} is not a placeholder: use {memory_mib}"),
    **{
        f"{way}-of-another-class": (
            npu(f"memory: 1Gi, count: 2, enforce: [watch, {way}]"),
            f"profiles[0].enforce: {way} works only for NVIDIA's cards: use watch",
        )
        for way in OTHERS
    },
    "mig-of-another-class": (npu(MIG), "enforce: mig works only for NVIDIA's cards: use watch"),
    **{
        f"mig-and-{way}": (
            gpu(f"memory: 8Gi, enforce: [{way}, mig]"),
            f"enforce: the hardware limits a MIG device, and not {way}: use mig, or mig and watch",
        )
        for way in OTHERS
    },
    "a-number-of-mig-devices": (gpu(f"{MIG}, count: 1"), "count: each MIG device is one vGPU: leave count out"),
    "next-to-mig": (gpu(f"{MIG}, ifMissing: next"), "ifMissing: without a MIG device there is no vGPU, and nothing"),
    "mig-without-mig": (gpu("cores: 5, select: {mig: [1g.10gb]}"), "select.mig: only a profile with enforce: [mig]"),
    "mig-without-any-size": (gpu("enforce: [mig]"), "needs memory, cores, or both"),
    "a-part-of-a-gpu-instance": (
        gpu(f"{MIG}, select: {{mig: [3g.20gb, 1c.3g.20gb]}}"),
        "select.mig[1]: 1c.3g.20gb is a compute instance that shares the memory of its GPU instance",
    ),
    "parts-of-gpu-instances": (gpu(f"{MIG}, select: {{mig: ['*c.*']}}"), "select.mig[0]: *c.* is a compute instance"),
    "no-mig-profile": (
        gpu(f"{MIG}, select: {{mig: [nvidia.com/mig-1g.10gb.me]}}"),
        "or a pattern, not 'nvidia.com/mig-1g.10gb.me'; did you mean 1g.10gb+me?",
    ),
    "more-memory-than-the-mig-profile-has": (
        gpu("memory: 40Gi, enforce: [mig], select: {mig: [3g.71gb, 1g.18gb, '1g.*']}"),
        "select.mig[1]: a MIG device 1g.18gb has less than 18944 MiB, but memory asks for 40960 MiB",
    ),
    "the-id-of-a-mig-device": (gpu(f"{MIG}, select: {{ids: [MIG-a]}}"), "select.ids[0]: MIG-a is a MIG device, but"),
    "the-same-mig-devices": (f"{gpu(MIG)}, {gpu(MIG, 'h')}", "profiles[1]: asks for the same MIG devices as g, but"),
    "a-limit-of-no-memory": (gpu("cores: 5, enforce: [nvidia-memory-limit]"), "limits nothing without memory: add"),
    "two-autos": (
        f"{gpu('cores: 5')}, {gpu('cores: 5, count: 2', 'h')}, {gpu('memory: 1Gi', 'i')}",
        "profiles[2].count: g also has count: auto for the same cards: give all but one a number",
    ),
    "a-share-of-unknown-memory": (
        npu("memory: 50%, count: 2"),
        "memory: criproxy does not know the memory of cards of the class 'ali-npu': give an amount",
    ),
    "auto-of-unknown-memory": (npu("memory: 1Gi, cores: 5"), "count: criproxy does not know the memory of cards of"),
    "shared-and-cut": (
        npu("cores: 5, select: {indexes: [1]}") + "], sharing: [{resource: aliyun.com/npu, devices: [1], replicas: 2}",
        "card 1 is also in sharing",
    ),
}
"""Profiles, and what is said of them."""


@pytest.mark.parametrize(("profiles", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, profiles: str, sentence: str) -> None:
    """The mistake is named with its place and what would be right, and nothing beside it contradicts it."""
    (line,) = said_of(tmp_path, f"profiles: [{profiles}]")

    assert sentence in line
    assert line.startswith("devices.plugin.profiles[")
