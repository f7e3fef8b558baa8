"""`criproxy check` also judges what the device plugin would do: NVIDIA's file, and the cards that are shared."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from criproxy.simulate.hosts import shaped
from tests.asking import criproxy
from tests.config.files import write
from tests.deviceplugin.fake_nvml import FakeNvml
from tests.deviceplugin.hosts import Host, part, t4
from tests.sysfs import write_sysfs

POLICY = "policy: none\ndevices: {classes: [nvidia], plugin: {nvidiaConfig: /etc/nvidia.yaml}}\n"
MPS = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: %d}]}}\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a machine."""
    write_sysfs(tmp_path / "host", shaped("1s/1n/2c/1t"))
    return tmp_path / "host"


def check(host: Path, policy: str, nvidia: str, *options: str) -> tuple[int, str]:
    """The exit status, and what is printed, for a policy file and NVIDIA's file on a machine."""
    file = write(host.parent / "p.yaml", policy)
    write(host / "etc/nvidia.yaml", nvidia)
    result = criproxy("check", "--host-root", host, *options, file)
    return result.exit_code, result.output


def test_a_file_that_is_fine(host: Path) -> None:
    """Which one it is, and what has no effect."""
    status, output = check(host, POLICY, f"flag: {{}}\n{SHARED % 2}")

    assert status == 0
    note = "line 1: NVIDIA's plugin does not know 'flag' and ignores it; did you mean 'flags'?"
    assert output.splitlines()[-2:] == [
        f"  NVIDIA's file: {host}/etc/nvidia.yaml (it was named)",
        f"  note: {host}/etc/nvidia.yaml: {note}",
    ]


@pytest.mark.parametrize("option", [(), ("--no-machine",)])
def test_a_config_map_is_not_the_file(host: Path, option: tuple[str, ...]) -> None:
    """Its text is; NVIDIA's plugin ignores the whole, so the cards would not be shared."""
    status, output = check(
        host, POLICY, f"apiVersion: v1\nkind: ConfigMap\ndata: {{any: '{SHARED[:-1] % 2}'}}", *option
    )

    sentence = "this is a ConfigMap: the file of NVIDIA's device plugin is the text of data.any alone"
    assert (status, output) == (1, f"{host}/etc/nvidia.yaml: {sentence}\n")


def test_a_file_that_does_not_exist(host: Path) -> None:
    """The policy file names it, so that is where the mistake may be."""
    file = write(host.parent / "p.yaml", POLICY)
    result = criproxy("check", "--host-root", host, file)

    text = f"{file}: devices.plugin.nvidiaConfig: {host}/etc/nvidia.yaml does not exist\n"
    assert (result.exit_code, result.output) == (1, text)


def test_without_a_machine(host: Path) -> None:
    """A wrong file is a mistake, in NVIDIA's words, with a machine or without; one that is not there is a note then."""
    for options in ((), ("--no-machine",)):
        status, output = check(host, POLICY, SHARED % 1, *options)
        assert status == 1
        assert output.startswith(f"{host}/etc/nvidia.yaml:1:70: sharing.timeSlicing.resources[0].replicas: ")
        assert "number of replicas must be >= 2" in output

    missing = POLICY.replace("nvidia.yaml", "other.yaml")
    status, output = check(host, missing, "", "--no-machine")
    assert status == 0
    assert f"note: {host}/etc/other.yaml does not exist: NVIDIA's file was not checked" in output
    assert check(host, missing, "")[0] == 1


NPUS = """
policy: none
devices:
  classes: [{name: ali, resources: [a.b/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}]
  plugin: {sharing: [{resource: a.b/npu, devices: [0, %s], replicas: 5, rename: a.b/part}]}
"""


def test_what_is_offered(host: Path) -> None:
    """The ids of cards and replicas of this machine; what contradicts it is a mistake, as the device plugin says."""
    for number in range(3):
        write(host / f"dev/npu{number}", "")

    status, output = check(host, NPUS % "npu2", "")

    assert status == 0
    assert output.splitlines()[-3:] == [
        "  the device plugin offers:",
        "    a.b/npu: npu1",
        "    a.b/part: npu0::0, npu0::1, npu0::2, npu0::3, npu0::4, npu2::0, npu2::1, npu2::2 and 2 more",
    ]

    status, output = check(host, NPUS % "npu7", "")

    said = f"{host.parent}/p.yaml: devices.plugin: a.b/npu cannot be shared as devices.plugin.sharing requires: "
    assert (status, output) == (1, f"{said}no matching device with UUID: npu7\n")
    values = json.loads(check(host, NPUS % "npu7", "", "--format", "json")[1])
    assert (values["ok"], len(values["files"][0]["mistakes"])) == (False, 1)


def gpus(host: Path, count: int) -> None:
    """Add GPUs, as NVIDIA's driver shows them."""
    made = Host(host.parent)
    for index in range(count):
        made.gpu(t4(index))


DEVICES = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, devices: %s}]}}\n"


def test_nvidias_cards_are_compared_as_far_as_files_tell(host: Path) -> None:
    """NVIDIA's file may name no card that is not there; how cards are divided, only NVML knows."""
    gpus(host, 2)

    status, output = check(host, POLICY, DEVICES % "[1]")
    assert status == 0
    assert "    nvidia.com/gpu: GPU-0, GPU-1::0, GPU-1::1\n" in output

    status, output = check(host, POLICY, DEVICES % "[5]")
    assert status == 1
    assert output.startswith(f"{host}/etc/nvidia.yaml: error updating device map with replicas ")
    assert output.endswith("no matching device at index: 5\n")

    Host(host.parent).mig(t4(1), part(0))
    status, output = check(host, POLICY, "flags: {migStrategy: mixed}\n" + DEVICES % "[5]")
    assert (status, "the device plugin offers" in output) == (0, False)


REFUSED_WITH_MIG = {
    "one-gpu-divided-and-one-not": (
        [1],
        "flags: {migStrategy: single}\n",
        "all devices on the node must be configured with the same migEnabled value",
    ),
    "mps": (
        [0, 1],
        "flags: {migStrategy: single, mpsRoot: /m}\n" + MPS,
        "sharing using MPS is not supported for MIG devices",
    ),
}


@pytest.mark.parametrize(("divided", "file", "sentence"), REFUSED_WITH_MIG.values(), ids=REFUSED_WITH_MIG)
def test_files_that_the_plugin_refuses_on_a_machine_with_mig(
    host: Path, divided: list[int], file: str, sentence: str
) -> None:
    """The exit status is 1, and the sentence is that of the plugin, as far as the driver's files show the division."""
    gpus(host, 2)
    for index in divided:
        Host(host.parent).mig(t4(index), part(0))

    status, output = check(host, POLICY, file)

    assert status == 1, output
    assert output.startswith(f"{host}/etc/nvidia.yaml:")
    assert sentence in output


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_what_only_nvml_knows_is_said(host: Path, strategy: str) -> None:
    """Without NVML, check does not show what a machine with MIG offers, and says so."""
    gpus(host, 1)
    Host(host.parent).mig(t4(0), part(0))

    status, output = check(host, POLICY, f"flags: {{migStrategy: {strategy}}}\n")

    assert status == 0, output
    assert "nvidia.com/gpu" not in output.partition("devices of this machine")[2]
    assert "note: only NVML knows the MIG devices" in output


MIXED = "flags: {migStrategy: mixed}\n"


def on_a100s(host: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have the cards of which *nvml* tells: one with four MIG devices, and one without MIG."""
    nvml.plug(Host(host.parent))
    for name, value in nvml.environ.items():
        monkeypatch.setenv(name, value)


def test_mig_devices_are_listed_as_nvml_knows_them(
    host: Path, fake_nvml: Callable[[str], FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NVML describes the machine's cards, check judges as the device plugin does."""
    on_a100s(host, fake_nvml("a100"), monkeypatch)

    status, output = check(host, POLICY, MIXED)
    assert status == 0, output
    assert "    nvidia.com/gpu: GPU-aaaaaaa1-bc95-b926-a488-9503064e72a1\n" in output
    assert "    nvidia.com/mig-1g.10gb: MIG-00000000-0000-0000-0000-000000000000, " in output

    status, output = check(host, POLICY, MIXED + DEVICES.replace("gpu", "mig-3g.40gb") % '["0:9"]')
    assert status == 1, output
    assert "no matching device at index: 0:9" in output


@pytest.mark.parametrize("fails", [True, False], ids=["nvml-fails", "nvml-of-another-machine"])
def test_what_nvml_does_not_say_is_not_guessed(
    host: Path, fake_nvml: Callable[[str], FakeNvml], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """An error is no answer, and cards of this machine are not those below another root."""
    nvml = fake_nvml("a100")
    on_a100s(host, nvml, monkeypatch)
    if fails:
        nvml.say("fail 18")
    else:
        nvml.cards = nvml.cards.replace("GPU-aaaa", "GPU-bbbb")
        nvml.say()

    status, output = check(host, POLICY, MIXED)

    assert status == 0, output
    assert "note: only NVML knows the MIG devices" in output
    assert "the device plugin offers" not in output


PROFILES = "policy: none\ndevices: {classes: [nvidia], plugin: {profiles: [%s]}}\n"
NOTE = "note: only the driver knows the memory of NVIDIA's GPUs: the device plugin checks the profiles at startup"
ONLY = "select: {indexes: [0]}"


JUDGED = {
    "auto": ("{name: g, class: nvidia, memory: 8Gi, cores: 25}", NOTE),
    "a-number": (
        "{name: g, class: nvidia, memory: 1Gi, count: 2}",
        "criproxy.io/g: GPU-0/g/0, GPU-0/g/1, GPU-1/g/0, GPU-1/g/1",
    ),
    "cores-alone": ("{name: g, class: nvidia, cores: 50}", "criproxy.io/g: GPU-0/g/0, GPU-0/g/1, GPU-1/g/0, GPU-1/g/1"),
}


@pytest.mark.parametrize(("profiles", "said"), JUDGED.values(), ids=JUDGED)
def test_vgpus_are_judged_as_far_as_files_tell(host: Path, profiles: str, said: str) -> None:
    """How much memory NVIDIA's GPUs have, only NVML knows: what depends on it is a note."""
    gpus(host, 2)

    status, output = check(host, PROFILES % profiles, "")

    assert (status, said in output) == (0, True), output
    assert (NOTE in output) == ("memory" in profiles)


CONTRADICTIONS = {
    "two-autos": (
        f"{{name: a, class: nvidia, memory: 1Gi, {ONLY}}}, {{name: b, class: nvidia, memory: 2Gi, {ONLY}}}",
        "card GPU-0: the profiles a and b have count: auto; give all but one a number",
    ),
    "no-cores-left": (
        "{name: a, class: nvidia, cores: 90, count: 1}, {name: b, class: nvidia, memory: 1Gi, cores: 25}",
        "card GPU-0: no b fits on it; unknown memory and 10 % of its cores are left",
    ),
}


@pytest.mark.parametrize(("profiles", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_profiles_that_contradict_any_gpu_are_mistakes(host: Path, profiles: str, sentence: str) -> None:
    """However much memory the GPUs have: the device plugin would not take such a file into force."""
    gpus(host, 2)

    status, output = check(host, PROFILES % profiles, "")

    assert (status, sentence in output) == (1, True), output


def test_a_share_with_mig_is_explained(host: Path) -> None:
    """It is easily taken for one of MIG devices; how many GPUs have MIG, only NVML knows."""
    profile = "{name: g, class: nvidia, memory: 8Gi, enforce: [mig], select: {share: 50%}}"
    gpus(host, 2)
    Host(host.parent).mig(t4(1), part(0))

    for options in ([], ["--no-machine"]):
        status, output = check(host, PROFILES % profile, "", *options)
        assert status == 0, output
        assert "note: profile g: select.share: 50% is a share of the GPUs with MIG, rounded down: " in output
        assert ("only the driver knows: the device plugin looks for them at startup" in output) is not bool(options)


def test_cards_with_mig_are_not_divided_again(host: Path) -> None:
    """A profile for which there is no other card would have no vGPU; which cards have MIG, is said."""
    gpus(host, 1)
    Host(host.parent).mig(t4(0), part(0))

    status, output = check(host, PROFILES % "{name: g, class: nvidia, memory: 8Gi}", "")

    assert status == 1
    assert "select matches no card of class nvidia without MIG; with MIG: GPU-0, whose MIG devices become" in output


def test_vgpus_of_cards_whose_memory_nobody_knows(host: Path) -> None:
    """For another class than NVIDIA's, a quota that depends on it is a mistake."""
    write(host / "dev/npu0", "")
    policy = NPUS.replace(
        "sharing: [{resource: a.b/npu, devices: [0, %s], replicas: 5, rename: a.b/part}]", "profiles: %s"
    )

    status, output = check(host, policy % "[{name: g, class: ali, memory: 1Gi}]", "")

    assert (status, "memory" in output) == (1, True)


@pytest.mark.parametrize(
    ("unit", "environ", "said"),
    [
        pytest.param("", {"MPS_ROOT": "/m"}, "MPS_ROOT=/m", id="environment"),
        pytest.param("MPS_ROOT=/u\n", {"MPS_ROOT": "/m"}, "MPS_ROOT=/m", id="both"),
        pytest.param('CRIPROXY_DEVICE_PLUGIN_OPTIONS="--http :1 --mps-root /o"\n', {}, "--mps-root=/o", id="option"),
    ],
)
def test_flags_and_variables_count(
    host: Path, monkeypatch: pytest.MonkeyPatch, unit: str, environ: dict[str, str], said: str
) -> None:
    """Those with which the unit starts the device plugin, and those of the environment; which ones, is said."""
    monkeypatch.setattr("os.environ", {**os.environ, **environ})
    assert check(host, POLICY, MPS)[0] == int(not environ)
    write(host / "etc/default/criproxy-device-plugin", unit)

    status, output = check(host, POLICY, MPS)

    assert status == 0
    assert output.splitlines()[-1] == f"  note: these flags and variables override NVIDIA's file: {said}"


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        pytest.param(
            'CRIPROXY_DEVICE_PLUGIN_OPTIONS="--mig-strateg mixed"\n',
            ": CRIPROXY_DEVICE_PLUGIN_OPTIONS: No such option '--mig-strateg'.",
            id="unknown-option",
        ),
        pytest.param('MIG_STRATEGY="mixed\n', ":1: nothing closes the quote", id="open-quote"),
        pytest.param(None, ": it is not a regular file", id="pipe"),
    ],
)
def test_a_unit_that_would_not_start_is_a_mistake(host: Path, content: str | None, mistake: str) -> None:
    """What its environment file sets would have no effect, and cards might be offered whole."""
    file = host / "etc/default/criproxy-device-plugin"
    file.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)

    status, output = check(host, POLICY, MPS.replace("sharing", "flags: {mpsRoot: /m}\nsharing", 1))

    assert status == 1
    assert f"{file}{mistake}" in output


def test_the_file_that_the_unit_names(host: Path) -> None:
    """It counts instead of the one that the policy file names, and also where that has no section."""
    options = "CRIPROXY_DEVICE_PLUGIN_OPTIONS='--nvidia-config /n --name x'\n"
    (host / "etc").mkdir()
    write(host / "etc/default/criproxy-device-plugin", options)
    write(host / "n/x.yaml", SHARED % 1)
    write(host / "n/y.yaml", SHARED % 2)

    for policy in (POLICY, "policy: none\n"):
        status, output = check(host, policy, SHARED % 2)
        assert (status, output.startswith(f"{host}/n/x.yaml:1:")) == (1, True)


def test_for_programs(host: Path) -> None:
    """The same in JSON; a policy file that names none says nothing of it."""
    status, output = check(host, POLICY, "version: v2\n", "--format", "json")
    values = json.loads(output)
    (file,) = values["files"]

    assert (status, values["ok"], file["mistakes"]) == (1, False, [])
    assert (file["nvidia"]["file"], file["nvidia"]["notes"]) == (f"{host}/etc/nvidia.yaml", [])
    assert file["nvidia"]["chosen_because"] == "it was named"
    assert "unknown version: v2" in file["nvidia"]["mistakes"][0]
    assert "nvidia" not in json.loads(check(host, "policy: none\n", "", "--format", "json")[1])["files"][0]


def test_what_vgpus_need_and_the_machine_lacks(host: Path) -> None:
    """It is a note: the files may come before the device plugin starts; the same for programs."""
    usage = "[{class: ali, from: command, command: [/usr/bin/npu-usage]}]"
    profile = "{name: gpu-8g, class: nvidia, memory: 8Gi, enforce: [hami-core]}"
    ali = '{name: ali, resources: [a.b/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}'
    policy = f"policy: none\ndevices: {{classes: [nvidia, {ali}], plugin: {{profiles: [{profile}], usage: {usage}}}}}\n"
    missing = "profile gpu-8g: hami-core needs /usr/local/vgpu/libvgpu.so, which does not exist on this node"
    program = "usage of the class ali: /usr/bin/npu-usage does not exist on this node: its quotas are not checked"

    status, output = check(host, policy, "")
    values = json.loads(check(host, policy, "", "--format", "json")[1])

    assert status == 0
    assert f"  note: {missing}: its pods are not admitted\n  note: {program}\n" in output
    assert values["files"][0]["notes"][-2:] == [f"{missing}: its pods are not admitted", program]
