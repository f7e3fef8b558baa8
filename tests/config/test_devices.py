"""The section about devices: what it means, and what is said where it cannot be meant."""

from inspect import getsource
from pathlib import Path

import pytest

from criproxy.config import load
from criproxy.devices.classes.builtin import BUILTIN, NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.devices.options.options import ClassOptions
from tests.config.files import devices_of, told, write

KUBELET = KubeletFiles(
    socket="/var/lib/kubelet/pod-resources/kubelet.sock",
    checkpoint="/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
    timeout_s=1.0,
)


def rules(tmp_path: Path, section: str) -> DeviceRules | None:
    """The rules of a policy file with this section."""
    devices = devices_of(tmp_path, section)
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


X = "name: x, resources: [a.b/c]"
"""The begin of a class of ones own."""
MISTAKES = {
    "option": (
        "{hideUnalocated: off}",
        "2:11: unknown option 'devices.hideUnalocated'; did you mean 'hideUnallocated'?",
    ),
    "value": (
        "{userOverride: strp}",
        "2:25: devices.userOverride: must be 'keep', 'report' or 'strip', not 'strp'; did you mean 'strip'?",
    ),
    "class": (
        "{classes: [nvida]}",
        "2:21: devices.classes[0].name: there is no class 'nvida' (did you mean 'nvidia'?); built-in classes are: nv",
    ),
    "option-of-a-class": (
        f"{{classes: [{{{X}, visibelEnv: X}}]}}",
        "2:51: unknown option 'devices.classes[0].visibelEnv'; did you mean 'visibleEnv'?",
    ),
    "longer-than-a-create-may-wait": (
        "{podresources: {timeout: 2s}}",
        "2:35: devices.podresources.timeout: must be a time of at most one second, such as 1s or 500ms, not '2s'",
    ),
    "socket": (
        "{podresources: {socket: kubelet.sock}}",
        'socket: must be an absolute path, or "" to leave it out, not',
    ),
    "group": ("{podresource: {}}", "unknown option 'devices.podresource'; did you mean 'podresources'?"),
    "checkpoint": ("{checkpoint: checkpoint}", 'checkpoint: must be an absolute path, or "" to leave it out, not'),
    "no-list": ("{classes: 3}", "2:20: devices.classes: must be"),
    "no-group": ("yes", "2:10: devices: must be a group of options, indented on the lines below"),
}
"""Sections, and what is said of them."""
CLASSES = {
    "twice": ("nvidia, amd, nvidia", "[2].name: the class 'nvidia' is listed twice"),
    "two-with-one-variable": (
        f"nvidia, {{{X}, visibleEnv: NVIDIA_VISIBLE_DEVICES}}",
        "[1].visibleEnv: NVIDIA_VISIBLE_DEVICES already belongs to the class 'nvidia'",
    ),
    "hides-nothing": (
        f"{{{X}, hideValue: void}}",
        "[0].hideValue: has no effect without visibleEnv, the variable that",
    ),
    "minor-of-nothing": (
        f"{{{X}, idFormat: minor}}",
        "[0].idFormat: minor needs nodes.perDevice, the source of a card",
    ),
    "resource": (
        "{name: x, resources: [gpu]}",
        "[0].resources[0]: must be a resource such as vendor.com/gpu, with * and ? as wildcards, not 'gpu'",
    ),
    "node-without-a-number": (
        "{name: amd, nodes: {perDevice: [/dev/dri/card0]}}",
        "nodes.perDevice[0]: must contain the card's number once, as in /dev/npu{index}, not '/dev/dri/card0'",
    ),
    "no-node": (
        "{name: amd, nodes: {shared: [/etc/passwd]}}",
        "shared[0]: must be a path below /dev/, not '/etc/passw",
    ),
    "nothing": (
        f"{{{X}}}",
        "the class 'x' does nothing: it needs visibleEnv, nodes.perDevice, cdiKinds, stripEnv or stripMountPrefix",
    ),
    "shared-nodes-of-no-card": (f"{{{X}, nodes: {{shared: [/dev/x]}}}}", "the class 'x' does nothing"),
    "path": (
        f"{{{X}, visibleEnv: PATH}}",
        "[0].visibleEnv: PATH is a variable that programs need, and criproxy would remove it from every container",
    ),
    "strips-kubernetes": (
        '{name: nvidia, stripEnv: ["K*"]}',
        "[0].stripEnv[0]: KUBERNETES_SERVICE_HOST is a variable that programs need",
    ),
    "beside-dev": (
        f"{{{X}, nodes: {{perDevice: ['/dev/../etc/x{{index}}']}}}}",
        "must be a path below /dev/ without '.', '..' and '//', not '/dev/../etc/x{index}'",
    ),
    "a-dot": ("{name: nvidia, nodes: {shared: [/dev/./mem]}}", "must be a path below /dev/ without '.', '..' and '//'"),
    "all-of-dev": (
        "{name: nvidia, nodes: {shared: ['/dev/*']}}",
        "would give /dev/mem to every container with a card: list only the vendor's device nodes",
    ),
    "disks": ("{name: nvidia, nodes: {shared: ['/dev/sd?']}}", "would give /dev/sda to every container with a card"),
    "one-resource-twice": (
        "nvidia, {name: x, resources: [nvidia.com/gpu], cdiKinds: [a.b/c]}",
        "[1].resources[0]: nvidia.com/gpu already belongs to the class 'nvidia'",
    ),
    "a-pattern-and-one-of-it": (
        '{name: x, resources: ["a.b/*"], cdiKinds: [a.b/c]}, {name: y, resources: [a.b/c], cdiKinds: [a.b/d]}',
        "[1].resources[0]: a.b/c already belongs to the class 'x'",
    ),
    "taken-name": ("{name: container, resources: [a.b/c], visibleEnv: X}", "[0].name: 'container' is reserved"),
}
"""Classes that cannot be meant: they do nothing, do too much, or stand in another's way."""


@pytest.mark.parametrize(
    ("section", "mistake"),
    [*MISTAKES.values(), *((f"{{classes: [{classes}]}}", mistake) for classes, mistake in CLASSES.values())],
    ids=[*MISTAKES, *CLASSES],
)
def test_mistakes_have_their_place(tmp_path: Path, section: str, mistake: str) -> None:
    """Line, column, what is wrong, and the nearest that would be right."""
    (line,) = told(tmp_path, f"policy: none\ndevices: {section}")

    assert mistake in line
    assert line.startswith("2:")


def test_classes_beside_those_that_are_built_in_are_fine(tmp_path: Path) -> None:
    """Also with a resource of the same vendor."""
    assert rules(tmp_path, "devices: {classes: [nvidia, {name: x, resources: [nvidia.com/nic], visibleEnv: NIC}]}")


def digests(folder: Path, *texts: str) -> list[str]:
    """Return what tells configurations apart."""
    return [load(write(folder / "p.yaml", text), "any").digest() for text in texts]


def test_a_change_of_the_section_is_another_configuration(tmp_path: Path) -> None:
    """A reload notices it; the order of words, comments, and what the device plugin offers do not count."""
    none, empty, one, same, plugin, shared = digests(
        tmp_path,
        "policy: none\n",
        "policy: none\ndevices: {}\n",
        "policy: none\ndevices: {classes: [nvidia]}\n",
        "devices: {classes: [{name: nvidia}]} # the same\npolicy: none\n",
        "policy: none\ndevices: {plugin: {}}\n",
        "policy: none\ndevices: {plugin: {sharing: [{resource: nvidia.com/gpu, replicas: 2}]}}\n",
    )

    assert len({none, empty, one}) == 3
    assert (same, plugin, shared) == (one, empty, empty)


def test_the_help_lists_the_classes() -> None:
    """All that are built in, in their order."""
    assert f"({', '.join(BUILTIN)})" in " ".join(getsource(ClassOptions).split())
