"""`criproxy check` says of each policy what its options ask that cannot be, on a machine of 16 CPUs."""

from pathlib import Path

import pytest

from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import shaped
from tests.asking import criproxy
from tests.config.files import write
from tests.deviceplugin.hosts import Host, t4
from tests.sysfs import write_sysfs

POLICIES = Path(__file__).parents[3] / "policies"
OPTIONS = {"pools": "pools: [{name: a, cpu: 2}]\n", "balloons": "balloonTypes: [{name: a}]\n"}
"""What makes a file of a policy one that says something."""
OF_ONE = [
    pytest.param(
        "pools",
        "reservedCpus: 0\npools: [{name: a, cpu: 4, instances: 5}]",
        "pools[0]: there is no room for 'a': it asks for 5 pools of 4 CPUs, but 3 of 15 are left, and 3 fit",
        id="too-many-pools",
    ),
    pytest.param(
        "balloons",
        "balloonTypes: [{name: a, namespaces: [team-*]}, {name: b, namespaces: [team-x]}]",
        "balloonTypes[1].namespaces: has no effect: a comes first and takes all of team-x; put b before it",
        id="balloon-type-behind-another",
    ),
    pytest.param(
        "static",
        "distributeCPUsAcrossCores: true\nfullPcpusOnly: true",
        "fullPcpusOnly: contradicts distributeCPUsAcrossCores: choose one of them",
        id="static-contradiction",
    ),
    pytest.param(
        "topology-aware",
        "unlimitedBurstable: node",
        "unlimitedBurstable: must be 'system', 'package', 'socket', 'die', 'numa' or 'l3cache', not 'node'",
        id="no-such-part",
    ),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host root of a machine with two sockets of two NUMA nodes and 16 CPUs."""
    root = tmp_path_factory.mktemp("host")
    write_sysfs(root, shaped("2s/4n/8c/2t"))
    return root


def said(host: Path, file: Path, text: str) -> list[str]:
    """What is told of a file with this text, without its name, line and column."""
    result = criproxy("check", "--host-root", host, write(file, text))

    assert result.exit_code == int("OK (" not in result.stdout), result.output
    return [line.split(": ", 1)[1] for line in result.stdout.splitlines() if line.startswith(f"{file}:")]


@pytest.mark.parametrize("policy", BUILTIN)
def test_cpus_that_are_not_there(host: Path, tmp_path: Path, policy: str) -> None:
    """They are found whatever the policy."""
    found = said(host, tmp_path / "p.yaml", f"policy: {policy}\n{OPTIONS.get(policy, '')}reservedCpus: 0,99\n")

    assert any(each.startswith("reservedCpus: CPU 99 is not online in this machine") for each in found), found


@pytest.mark.parametrize(("policy", "text", "mistake"), OF_ONE)
def test_what_this_policy_cannot_be_asked(host: Path, tmp_path: Path, policy: str, text: str, mistake: str) -> None:
    """Impossible sizes, parts larger than the machine, overlaps, and parts that nothing can reach: one sentence."""
    (found,) = said(host, tmp_path / "p.yaml", f"policy: {policy}\n{text}\n")

    assert found.startswith(mistake)


@pytest.mark.parametrize("policy", BUILTIN)
def test_what_can_be_asked(host: Path, tmp_path: Path, policy: str) -> None:
    """The same files without these mistakes are fine."""
    text = f'policy: {policy}\n{OPTIONS.get(policy, "")}reservedCpus: 0-3\nannotations: {{allow: {{"*": ["*"]}}}}\n'

    (line,) = said(host, tmp_path / "p.yaml", text)

    assert line.startswith("OK (")


def test_classes_without_a_policy_that_places(tmp_path: Path) -> None:
    """No container has one, which is said."""
    file = write(tmp_path / "p.yaml", "policy: none\nclasses: {a: {irq: away}}\n")

    result = criproxy("check", "--no-machine", file)

    assert result.exit_code == 0, result.output
    assert "note: classes has no effect: the policy none places no containers" in result.stdout


@pytest.mark.parametrize("policy", ["balloons", "topology-aware"])
@pytest.mark.parametrize("classes", ["[{name: fast, disabledCstates: [C6]}]", "{fast: {minFreq: base}}"])
def test_cpu_classes_in_the_forms_of_nri_plugins(tmp_path: Path, policy: str, classes: str) -> None:
    """A list or a mapping of CPU classes, as nri-plugins has had both, is accepted."""
    file = write(tmp_path / "p.yaml", f"policy: {policy}\ncpuClasses: {classes}\nidleCPUClass: fast\n")

    result = criproxy("check", "--no-machine", file)

    assert result.exit_code == 0, result.output
    assert "note:" not in result.stdout


ACCELERATORS = {
    "gpu": ("gpu-node", ["nvidia0", "nvidia1", "nvidiactl"], "nvidia: /dev/nvidia0, /dev/nvidia1; shared nodes"),
    "both": ("gpu-node-plugin", ["nvidia0", "npu0"], "nvidia: /dev/nvidia0\n    ali-npu: /dev/npu0"),
    "npu": ("npu-node", ["npu0", "npu1"], "ali-npu: /dev/npu0, /dev/npu1"),
}


@pytest.mark.parametrize(("name", "nodes", "found"), ACCELERATORS.values(), ids=ACCELERATORS)
def test_the_files_for_nodes_with_accelerators(tmp_path: Path, name: str, nodes: list[str], found: str) -> None:
    """They are fine as they come, and find the cards of such a node and no others."""
    write_sysfs(tmp_path, shaped("2s/4n/8c/2t"))
    for node in (*nodes, "null"):
        write(tmp_path / "dev" / node, "")

    result = criproxy("check", "--host-root", tmp_path, POLICIES / f"{name}.yaml")

    assert result.exit_code == 0, result.output
    assert f"  devices of this machine:\n    {found}" in result.stdout
    assert "note:" not in result.stdout


def test_the_file_for_a_node_with_vgpus(tmp_path: Path) -> None:
    """It is fine as it comes: the GPUs' memory, which only NVIDIA's driver knows, and missing files are notes."""
    made = Host(tmp_path)
    write_sysfs(made.root, shaped("2s/4n/8c/2t"))
    for index in range(2):
        made.gpu(t4(index))

    result = criproxy("check", "--host-root", made.root, POLICIES / "vgpu-node.yaml")

    assert result.exit_code == 0, result.output
    note = "only the driver knows the memory of NVIDIA's GPUs: the device plugin checks the profiles at startup"
    missing = "profile gpu-8g: hami-core needs /usr/local/vgpu/libvgpu.so, which does not exist on this node"
    assert [line for line in result.stdout.splitlines() if "note:" in line] == [
        f"  note: {note}",
        f"  note: {missing}: ifMissing: next continues without it",
    ]
