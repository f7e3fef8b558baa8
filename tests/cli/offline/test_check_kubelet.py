"""`criproxy check` compares a policy file with the kubelet's configuration, wherever the node has it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from criproxy.simulate.hosts import shaped
from tests.asking import criproxy
from tests.config.files import write
from tests.sysfs import write_sysfs

CONFIG = "/var/lib/kubelet/config.yaml"
POLICY = 'policy: static\nreservedCpus: "0-1"\n'
UNIT = "/etc/systemd/system/kubelet.service"
STARTS = "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml"
K3S = {"/etc/systemd/system/k3s.service": "[Service]\nExecStart=/bin/k3s server\n"}
NOT_SET = "no CPU (reservedSystemCPUs is not set)"
SCHEDULER = "the scheduler sends pods that do not fit and never start"

Check = Callable[..., list[str]]


@pytest.fixture
def notes(tmp_path: Path) -> Check:
    """A function that checks a policy file on a node with these files, and returns the notes about the kubelet."""
    write_sysfs(tmp_path, shaped("1s/1n/8c/2t"))

    def check(files: dict[str, str], policy: str = POLICY) -> list[str]:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        file = write(tmp_path / "p/p.yaml", policy)
        result = criproxy("check", file, "--host-root", tmp_path)
        assert result.exit_code == 0, result.output
        lines = [line.removeprefix("  note: ") for line in result.output.splitlines() if line.startswith("  note: ")]
        return [line.replace(str(tmp_path), "") for line in lines if "kubelet" in line]

    return check


def differ(kubelet: str, policy: str, *then: str) -> list[str]:
    """The note that both reserve different CPUs."""
    return [f"the kubelet reserves {kubelet}, but this policy reserves {policy}: {'; '.join(then)}"]


def listed(cpus: str, *then: str) -> list[str]:
    """The note that the kubelet's list of CPUs is another one than CPUs 0-1."""
    return differ(f"{cpus} (reservedSystemCPUs)", "CPUs 0-1", *then)


UNREADABLE = "the kubelet's {} is {!r}, which is not {}; so nobody knows which CPUs the kubelet reserves"


@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        ("kind: KubeletConfiguration\n", differ(NOT_SET, "CPUs 0-1", SCHEDULER)),
        ('reservedSystemCPUs: "0"\n', listed("CPU 0", SCHEDULER)),
        ('reservedSystemCPUs: "0,8"\n', listed("CPUs 0,8", "pods also run on CPU 8, and CPU 1 is reserved instead")),
        ('reservedSystemCPUs: "8"\n', listed("CPU 8", SCHEDULER, "pods also run on CPU 8")),
        ('reservedSystemCPUs: "1-3"\n', listed("CPUs 1-3", "pods also run on CPUs 2-3, and CPU 0 is reserved instead")),
        ('reservedSystemCPUs: "0-3,8"\n', listed("CPUs 0-3,8", "pods also run on CPUs 2-3,8")),
        ('reservedSystemCPUs: "0-1"\n', []),
        ('reservedSystemCPUs: "0-1,99"\n', []),
        ("reservedSystemCPUs: x-y\n", [UNREADABLE.format("reservedSystemCPUs", "x-y", "a list of CPUs")]),
        ("kubeReserved: {cpu: nonsense}\n", [UNREADABLE.format("kubeReserved.cpu", "nonsense", "an amount of CPU")]),
        ("kubeReserved: {cpu: 2000m}\n", []),
        ("kubeReserved: {cpu: 1000m}\nsystemReserved: {cpu: 0.5}\n", []),
        ("kubeReserved: {cpu: 70m}\n", differ("70m (kubeReserved, systemReserved)", "CPUs 0-1", SCHEDULER)),
        ('reservedSystemCPUs: "0"\n---\n', listed("CPU 0", SCHEDULER)),
        ('{\n\t"reservedSystemCPUs": "0"\n}\n', listed("CPU 0", SCHEDULER)),
        ("reservedSystemCPUs: 0\n", listed("CPU 0", SCHEDULER)),
    ],
)
def test_the_kubelet_has_to_reserve_the_same(notes: Check, kubelet: str, expected: list[str]) -> None:
    """Both lists are shown whole, and what follows from their difference; nothing is guessed."""
    assert notes({CONFIG: kubelet}) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("policy: static\n", differ("CPUs 0-1 (reservedSystemCPUs)", "no CPU", "pods also run on CPUs 0-1")),
        ('policy: static\navailableResources: {cpu: "exclude-cpuset:0-1"}\n', []),
        (
            'policy: static\nreservedCpus: "2-3"\navailableResources: {cpu: "exclude-cpuset:0-1"}\n',
            differ("CPUs 0-1 (reservedSystemCPUs)", "CPUs 2-3", SCHEDULER),
        ),
        ("policy: none\n", []),
    ],
)
def test_a_policy_that_reserves_none(notes: Check, policy: str, expected: list[str]) -> None:
    """What the kubelet keeps for the node's own programs is not kept by the policy, unless it uses other CPUs only."""
    assert notes({CONFIG: 'reservedSystemCPUs: "0-1"\n'}, policy) == expected


ALL = 'reservedSystemCPUs: "0-1"\n'
PLACES = {
    "drop-in by flag": {UNIT: f"{STARTS} --config-dir /etc/k.d\n", CONFIG: "", "/etc/k.d/20-a.conf": ALL},
    "last drop-in": {
        UNIT: f"{STARTS} --config-dir=/etc/k.d\n",
        CONFIG: "",
        "/etc/k.d/10-a.conf": 'reservedSystemCPUs: "7"\n',
        "/etc/k.d/20-a.conf": ALL,
        "/etc/k.d/30-a.yaml": 'reservedSystemCPUs: "7"\n',
    },
    "flag": {UNIT: f"{STARTS} --reserved-cpus=0-1\n", CONFIG: 'reservedSystemCPUs: "7"\n'},
    "another file": {UNIT: STARTS.replace(CONFIG, "/etc/a.json"), "/etc/a.json": '{"reservedSystemCPUs": "0-1"}'},
    "drop-in without a unit": {CONFIG: "", "/etc/kubernetes/kubelet.conf.d/20-a.conf": ALL},
    "amounts by flags": {
        UNIT: f"{STARTS} --kube-reserved=cpu=1500m,memory=1Gi --system-reserved=cpu=100m\n",
        CONFIG: "",
    },
    "k3s": {**K3S, "/etc/rancher/k3s/config.yaml": "kubelet-arg: [reserved-cpus=0-1]\n"},
    "k3s drop-in": {**K3S, "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-a.conf": ALL},
    "the enabled one of two units": {
        "/usr/lib/systemd/system/rke2-server.service": "[Service]\nExecStart=/bin/rke2 server\n",
        "/usr/lib/systemd/system/rke2-agent.service": "[Service]\nExecStart=/b/rke2 --kubelet-arg reserved-cpus=0-1\n",
        "/etc/systemd/system/multi-user.target.wants/rke2-agent.service": "",
    },
}


@pytest.mark.parametrize("files", PLACES.values(), ids=PLACES)
def test_where_the_kubelet_is_configured(notes: Check, files: dict[str, str]) -> None:
    """Flags, the file, and drop-ins, of which the last one counts; also within k3s and RKE2."""
    assert notes(files) == []
    assert len(notes(files, 'policy: static\nreservedCpus: "2-4"\n')) == 1, "nothing was read"


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("a: [", f"cannot read {CONFIG}: it is not valid YAML"),
        ("- a\n", f"cannot read {CONFIG}: it is not a YAML mapping"),
        (f"{ALL}cpuManagerPolicy: static\n", "the kubelet's cpuManagerPolicy is static: two programs"),
        (f"{ALL}memoryManagerPolicy: Static\n", "the kubelet's memoryManagerPolicy is Static: two programs"),
    ],
)
def test_what_else_of_it_matters(notes: Check, text: str, noted: str) -> None:
    """A manager of the kubelet's own, and a file that says nobody knows what."""
    (found,) = notes({CONFIG: text})
    assert found.startswith(noted)


CGROUPS = {"/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}
ROOT = f"{ALL}cgroupRoot: /half\n"


def cgroup(name: str, cpus: str) -> dict[str, str]:
    """The file of a cgroup with these CPUs."""
    return {f"/sys/fs/cgroup/{name}/cpuset.cpus.effective": f"{cpus}\n"}


BELOW = {
    "cgroupfs": (
        cgroup("half/kubepods", "0-7"),
        POLICY,
        (
            "the kubelet's cgroupRoot is /half, and pods may use only CPUs 0-7 there, but this policy gives them CPUs "
            "0-15: set availableResources to {cpu: /half/kubepods}"
        ),
    ),
    "systemd": (
        cgroup("half.slice/half-kubepods.slice", "0-7"),
        POLICY,
        "set availableResources to {cpu: /half.slice/half-kubepods.slice}",
    ),
    "no pods yet": (cgroup("half", "0-7"), POLICY, "set availableResources to {cpu: /half}"),
    "all CPUs": (cgroup("half/kubepods", "0-15"), POLICY, ""),
    "named": (cgroup("half/kubepods", "0-7"), f"{POLICY}availableResources: {{cpu: /half/kubepods}}\n", ""),
    "nobody knows": ({}, POLICY, ""),
}


@pytest.mark.parametrize(("files", "policy", "noted"), BELOW.values(), ids=BELOW)
def test_pods_below_another_cgroup(notes: Check, files: dict[str, str], policy: str, noted: str) -> None:
    """Its CPUs limit what a policy can give."""
    found = notes({**CGROUPS, CONFIG: ROOT, **files}, policy)
    assert (len(found), noted in "".join(found)) == (int(bool(noted)), True), found
