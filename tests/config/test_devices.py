"""The section about devices: what it means, and what is said where it cannot be meant."""

from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.classes.builtin import BUILTIN, NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.errors import ConfigError
from tests.config.files import write

KUBELET = KubeletFiles(
    socket="/var/lib/kubelet/pod-resources/kubelet.sock",
    checkpoint="/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
    timeout_s=1.0,
)


def rules(tmp_path: Path, section: str) -> DeviceRules | None:
    """The rules of a policy file with this section."""
    devices = load(write(tmp_path / "p.yaml", f"policy: none\n{section}".encode()), "any").common.devices
    return None if devices is None else devices.rules()


def test_nothing_said_leaves_devices_alone(tmp_path: Path) -> None:
    """A node without accelerators pays nothing."""
    assert rules(tmp_path, "") is None


def test_an_empty_section_denies_by_default(tmp_path: Path) -> None:
    """All classes that are built in are in force, and who was given nothing sees nothing."""
    assert rules(tmp_path, "devices: {}") == DeviceRules(
        classes=tuple(BUILTIN.values()), exempt_namespaces=("kube-system", "gpu-operator"), kubelet=KUBELET
    )


def test_every_option(tmp_path: Path) -> None:
    """Each has its place in the rules."""
    section = """
devices:
  hideUnallocated: report
  userOverride: keep
  privileged: deny
  onNoEvidence: fail
  keepAccessOnUpdate: false
  exempt: {namespaces: [monitoring], images: ["registry/dcgm:*"]}
  podresources: {socket: /srv/kubelet/pods.sock, timeout: 250ms}
  checkpoint: ""
  classes: [nvidia]
"""
    assert rules(tmp_path, section) == DeviceRules(
        classes=(NVIDIA,),
        hide_unallocated="report",
        user_override="keep",
        privileged="deny",
        on_no_evidence="fail",
        keep_access_on_update=False,
        exempt_namespaces=("monitoring",),
        exempt_images=("registry/dcgm:*",),
        kubelet=KubeletFiles(socket="/srv/kubelet/pods.sock", timeout_s=0.25),
    )


@pytest.mark.parametrize(("text", "expected_s"), [("1s", 1.0), ("0.5s", 0.5), (".25s", 0.25), ("1000ms", 1.0)])
def test_how_long_a_create_waits(tmp_path: Path, text: str, expected_s: float) -> None:
    """In seconds or milliseconds."""
    found = rules(tmp_path, f"devices: {{podresources: {{timeout: {text}}}}}")

    assert found is not None
    assert found.kubelet == KubeletFiles(socket=KUBELET.socket, checkpoint=KUBELET.checkpoint, timeout_s=expected_s)


def test_a_class_that_is_changed_and_one_of_ones_own(tmp_path: Path) -> None:
    """What is not said of a built-in one stays as it is, its nodes one by one; one's own has what is said."""
    section = """
devices:
  classes:
    - {name: nvidia, hideValue: none, nodes: {shared: [/dev/nvidiactl]}}
    - name: ali-npu
      resources: [aliyun.com/npu]
      idFormat: index
      nodes: {perDevice: ["/dev/npu{index}"]}
"""
    found = rules(tmp_path, section)

    assert found is not None
    nvidia, ali = found.classes
    assert (nvidia.hide_value, nvidia.shared, nvidia.per_device) == ("none", ("/dev/nvidiactl",), NVIDIA.per_device)
    assert ali == DeviceClass(
        name="ali-npu", resources=("aliyun.com/npu",), id_format="index", per_device=("/dev/npu{index}",)
    )


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        pytest.param(
            "devices: {hideUnalocated: off}",
            "2:11: unknown option 'devices.hideUnalocated'; did you mean 'hideUnallocated'?",
            id="option",
        ),
        pytest.param(
            "devices: {userOverride: strp}",
            "2:25: devices.userOverride: must be 'keep', 'report' or 'strip', not 'strp'; did you mean 'strip'?",
            id="value",
        ),
        pytest.param(
            "devices: {classes: [nvida]}",
            "2:21: devices.classes[0].name: there is no class 'nvida' (did you mean 'nvidia'?); built-in classes are: "
            "nvidia, ascend, amd, intel-gpu, intel-npu, habana, cambricon; a class of your own needs resources",
            id="class",
        ),
        pytest.param(
            "devices: {classes: [{name: x, resources: [a.b/c], visibelEnv: X}]}",
            "2:51: unknown option 'devices.classes[0].visibelEnv'; did you mean 'visibleEnv'?",
            id="option-of-a-class",
        ),
        pytest.param(
            "devices: {classes: [nvidia, amd, nvidia]}",
            "2:34: devices.classes[2].name: the class 'nvidia' is listed twice",
            id="twice",
        ),
        pytest.param(
            "devices: {classes: [nvidia, {name: x, resources: [a.b/c], visibleEnv: NVIDIA_VISIBLE_DEVICES}]}",
            "2:71: devices.classes[1].visibleEnv: NVIDIA_VISIBLE_DEVICES already belongs to the class 'nvidia'",
            id="two-with-one-variable",
        ),
        pytest.param(
            "devices: {classes: [{name: x, resources: [a.b/c], hideValue: void}]}",
            "2:62: devices.classes[0].hideValue: has no effect without visibleEnv, the variable that gets it",
            id="hides-nothing",
        ),
        pytest.param(
            "devices: {classes: [{name: x, resources: [a.b/c], idFormat: minor}]}",
            "2:61: devices.classes[0].idFormat: minor needs nodes.perDevice, the source of a card's number",
            id="minor-of-nothing",
        ),
        pytest.param(
            "devices: {classes: [{name: x, resources: [gpu]}]}",
            "2:43: devices.classes[0].resources[0]: must be a resource such as vendor.com/gpu, with * and ? as "
            "wildcards, not 'gpu'",
            id="resource",
        ),
        pytest.param(
            "devices: {classes: [{name: amd, nodes: {perDevice: [/dev/dri/card0]}}]}",
            "2:53: devices.classes[0].nodes.perDevice[0]: must contain the card's number once, as in "
            "/dev/npu{index}, not '/dev/dri/card0'",
            id="node-without-a-number",
        ),
        pytest.param(
            "devices: {classes: [{name: amd, nodes: {shared: [/etc/passwd]}}]}",
            "2:50: devices.classes[0].nodes.shared[0]: must be a path below /dev/, not '/etc/passwd'",
            id="no-node",
        ),
        pytest.param(
            "devices: {podresources: {timeout: 2s}}",
            "2:35: devices.podresources.timeout: must be a time of at most one second, such as 1s or 500ms, not '2s'",
            id="longer-than-a-create-may-wait",
        ),
        pytest.param(
            "devices: {podresources: {socket: kubelet.sock}}",
            "2:34: devices.podresources.socket: must be an absolute path, or \"\" to leave it out, not 'kubelet.sock'",
            id="socket",
        ),
        pytest.param(
            "devices: {podresource: {}}",
            "2:11: unknown option 'devices.podresource'; did you mean 'podresources'?",
            id="group",
        ),
        pytest.param(
            "devices: {checkpoint: checkpoint}",
            "2:23: devices.checkpoint: must be an absolute path, or \"\" to leave it out, not 'checkpoint'",
            id="checkpoint",
        ),
        pytest.param("devices: {classes: 3}", "2:20: devices.classes: must be", id="no-list"),
        pytest.param(
            "devices: yes", "2:10: devices: must be a group of options, indented on the lines below", id="no-group"
        ),
    ],
)
def test_mistakes_have_their_place(tmp_path: Path, section: str, mistake: str) -> None:
    """Line, column, what is wrong, and the nearest that would be right."""
    with pytest.raises(ConfigError) as error:
        rules(tmp_path, section)

    assert f"p.yaml:{mistake}" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_change_of_the_section_is_another_configuration(tmp_path: Path) -> None:
    """A reload notices it; the order of words and comments does not count."""
    texts = (
        "policy: none\n",
        "policy: none\ndevices: {}\n",
        "policy: none\ndevices: {classes: [nvidia]}\n",
        "devices: {classes: [{name: nvidia}]} # the same\npolicy: none\n",
    )
    files = [write(tmp_path / f"{number}.yaml", text.encode()) for number, text in enumerate(texts)]
    digests = [load(file, "any").digest() for file in files]

    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


def test_what_the_device_plugin_offers_is_no_other_configuration(tmp_path: Path) -> None:
    """The section `plugin` concerns no container's place; that there is a section `devices` does."""
    texts = (
        "policy: none\ndevices: {}\n",
        "policy: none\ndevices: {plugin: {}}\n",
        "policy: none\ndevices: {plugin: {sharing: [{resource: nvidia.com/gpu, replicas: 2}]}}\n",
    )
    files = [write(tmp_path / f"{number}.yaml", text.encode()) for number, text in enumerate(texts)]
    plain = load(write(tmp_path / "none.yaml", b"policy: none\n"), "any").digest()

    assert len({load(file, "any").digest() for file in files} - {plain}) == 1
