"""`criproxy check` says all that is wrong with a policy file, or what it means."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from criproxy.placement.policies import BUILTIN
from tests.asking import criproxy
from tests.config.files import write
from tests.conftest import ROOT

POLICIES = ", ".join(BUILTIN)
CPUS_TEXT = "is neither an id nor a range such as 0-3"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the host root of a machine with CPUs 0-3, of which pods may use 0-2; this machine's group is none."""
    monkeypatch.setattr("criproxy.config.files.GROUP_FILE", tmp_path / "group")
    root = tmp_path / "host"
    cpu = root / "sys/devices/system/cpu"
    pods = root / "sys/fs/cgroup/kubepods"
    for folder in (cpu, pods, root / "proc/self"):
        folder.mkdir(parents=True)
    (cpu / "online").write_text("0-3\n")
    (root / "proc/self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (root / "proc/self/mountinfo").write_text("1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu memory\n")
    (pods / "cpuset.cpus.effective").write_text("0-2\n")
    (pods / "cpuset.mems.effective").write_text("0\n")
    return root


def check(host: Path, *arguments: str | Path) -> Result:
    """Run the command in this process."""
    return criproxy("check", "--host-root", host, *arguments)


WRONG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", f"1:1: the file is empty; it needs at least 'policy: NAME' with one of {POLICIES}"),
    "not-yaml": (
        "policy=static\n",
        f"1:1: must be options such as 'policy: NAME' with one of {POLICIES}: a name, ':', a space and the value",
    ),
    "no-policy": ("onError: pass\n", "1:1: the option 'policy' is missing"),
    "unknown-policy": (
        "policy: statik\n",
        f"1:9: policy: unknown policy 'statik'; policies are: {POLICIES}; did you mean 'static'?",
    ),
    "number-for-text": ("policy: 3\n", "1:9: policy: must be text, not 3; in quotes it is text"),
    "wrong-case": (
        "policy: static\nreservedcpus: 0\n",
        "2:1: unknown option 'reservedcpus'; did you mean 'reservedCpus'?",
    ),
    "unknown-option": ("policy: none\nzzz: 0\n", "2:1: unknown option 'zzz'"),
    "unknown-choice": (
        "policy: none\nonError: Refused\n",
        "2:10: onError: must be 'shared', 'pass' or 'refuse', not 'Refused'; did you mean 'refuse'?",
    ),
    "yaml-1.1-boolean": (
        "policy: none\nonError: off\n",
        "2:10: onError: must be 'shared', 'pass' or 'refuse', not 'off'",
    ),
    "yaml-1.1-base-60": ("policy: static\nreservedCpus: 0:30\n", f"2:15: reservedCpus: '0:30' {CPUS_TEXT}"),
    "negative": ("policy: static\nreservedCpus: [0, -1]\n", '2:15: reservedCpus: must be CPUs such as "0-3,8"'),
    "boolean-cpus": ("policy: static\nreservedCpus: true\n", '2:15: reservedCpus: must be CPUs such as "0-3,8"'),
    "tab": ("policy: none\n\tonError: pass\n", "2:1: a tab; YAML is indented with spaces only"),
    "indentation": (
        "policy: none\n  onError: pass\n",
        "2:10: a ':' does not fit here: quote the text, or check the indentation",
    ),
    "indentation-above": (
        "  policy: none\nonError: pass\n",
        "2:1: this does not fit what is above: check brackets, quotes and indentation",
    ),
    "open-bracket": ("policy: [none\n", "2:1: a bracket is not closed (it was opened in line 1)"),
    "open-quote": (
        "policy: 'none\n",
        "2:1: a quote is not closed before the end of the file (it was opened in line 1)",
    ),
    "at-sign": ("policy: @none\n", "1:9: a text cannot begin with @: put it in quotes"),
    "two-documents": (
        "policy: none\n---\npolicy: static\n",
        "2:1: a second document begins here: a file has one, without '---' in between",
    ),
    "number-as-key": ("policy: none\n1: x\n", "2:1: unknown option '1'"),
    "nul": (b"policy: none\x00\n", "1:13: the character U+0000 is not allowed; is this a text file?"),
}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file(tmp_path: Path, host: Path, content: str | bytes, said: str) -> None:
    """One line says where and what; the exit status is 1."""
    file = write(tmp_path / "p.yaml", content)

    result = check(host, file)

    assert result.stdout.splitlines()[-1] == f"{file}:{said}"
    assert (result.exit_code, result.stderr, type(result.exception)) == (1, "", SystemExit)


def test_a_directory_that_everybody_can_write(tmp_path: Path, host: Path) -> None:
    """Its files are not to be trusted either."""
    folder = write(tmp_path / "etc" / "default.yaml", "policy: none\n").parent
    folder.chmod(0o777)

    result = check(host, folder)

    said = f"its directory can be written by every user (mode 0777): chmod go-w {folder}"
    assert (result.exit_code, result.stdout) == (1, f"{folder}/default.yaml: {said}\n")


def test_a_right_file(tmp_path: Path, host: Path) -> None:
    """All options in force are listed, those that the file does not give as defaults."""
    file = write(tmp_path / "p.yaml", "policy: none\nreservedCpus: [0, 1]\n")

    result = check(host, file)

    assert result.stdout == (
        f"{file}: OK (it was named; pods may use CPUs 0-2)\n"
        "  policy              none\n"
        "  onError             shared  (default)\n"
        "  adopt               pin  (default)\n"
        "  promote             not set  (default)\n"
        "  apply               new  (default)\n"
        "  devices             not set  (default)\n"
        "  reservedCpus        0-1\n"
        '  availableResources  {"cpu": null}  (default)\n'
        '  reservedResources   {"cpu": null}  (default)\n'
        '  memoryTypes         ["dram", "pmem", "hbm"]  (default)\n'
        "  cpuQuota            keep  (default)\n"
        '  annotations         {"allow": {}, "deny": {}}  (default)\n'
        "  rules               nri  (default)\n"
    )
    assert result.exit_code == 0


def test_another_machine(tmp_path: Path) -> None:
    """Without a machine the file is checked alone, and this is said."""
    file = write(tmp_path / "p.yaml", "policy: static\nreservedCpus: 4000\n")

    result = criproxy("check", "--no-machine", file)

    assert result.exit_code == 0
    assert "not checked against a machine" in result.stdout


def test_no_machine_there(tmp_path: Path) -> None:
    """A host root that holds no machine is an error, which names the way out."""
    result = criproxy("check", tmp_path, "--host-root", tmp_path)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "to check only the files, use --no-machine" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        pytest.param(["--hostname", "node1", "--group", "edge"], "node1.yaml", id="host"),
        pytest.param(["--hostname", "node2", "--group", "edge"], "group-edge.yaml", id="group"),
        pytest.param(["--hostname", "node2"], "default.yaml", id="default"),
    ],
)
def test_a_directory(tmp_path: Path, host: Path, arguments: list[str], chosen: str) -> None:
    """Of a directory the file is checked that the node in question would take."""
    for name in ("node1.yaml", "group-edge.yaml", "default.yaml"):
        write(tmp_path / "policies" / name, "policy: none\n")

    result = check(host, tmp_path / "policies", *arguments)

    assert result.stdout.startswith(f"{tmp_path}/policies/{chosen}: OK (")


@pytest.mark.parametrize(
    ("option", "name"),
    [
        pytest.param("--group", "a b", id="group"),
        pytest.param("--group", "", id="no group"),
        pytest.param("--hostname", "", id="no host name"),
        pytest.param("--hostname", "../x", id="host name"),
    ],
)
def test_a_name_that_no_node_can_have_is_wrong_use(tmp_path: Path, host: Path, option: str, name: str) -> None:
    """It is no mistake in a file."""
    write(tmp_path / "policies" / "default.yaml", "policy: none\n")

    result = check(host, tmp_path / "policies", option, name)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for '{option}': {name!r} cannot be part of the name of a policy file" in result.stderr


def test_what_each_class_of_devices_finds(tmp_path: Path, host: Path) -> None:
    """Cards with their nodes and ids, and what all of them need; nothing where no machine is looked at."""
    gpu = host / "proc/driver/nvidia/gpus/0000:3b:00.0/information"
    gpu.parent.mkdir(parents=True)
    gpu.write_text("GPU UUID: \t GPU-a\nDevice Minor: \t 0\n")
    function = host / "sys/bus/pci/devices/0000:3b:00.0"
    function.mkdir(parents=True)
    (function / "numa_node").write_text("0")
    (host / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (host / "dev" / name).touch()
    file = write(tmp_path / "p.yaml", "policy: none\ndevices: {classes: [nvidia, amd]}\n")

    card = "/dev/nvidia0 (GPU-a, NUMA node 0)"
    assert check(host, file).stdout.endswith(
        f"  devices of this machine:\n    nvidia: {card}; shared nodes: /dev/nvidiactl\n    amd: none\n"
    )
    place = {"pci": "0000:3b:00.0", "bridges": [], "numa_node": 0, "local_cpus": ""}
    described = {"number": 0, "nodes": ["/dev/nvidia0"], "id": "GPU-a"} | place
    assert json.loads(check(host, file, "--format", "json").stdout)["files"][0]["devices"] == {
        "nvidia": {"cards": [described], "shared": ["/dev/nvidiactl"]},
        "amd": {"cards": [], "shared": []},
    }
    assert "of this machine" not in check(host, file, "--no-machine").stdout


def test_where_the_kubelet_tells(tmp_path: Path, host: Path) -> None:
    """Whether anything is at the paths of the file, so that a kubelet of another directory is noticed beforehand."""
    (host / "k").mkdir()
    (host / "k/checkpoint").touch()
    file = write(
        tmp_path / "p.yaml", "policy: none\ndevices: {podresources: {socket: /k/sock}, checkpoint: /k/checkpoint}\n"
    )
    off = write(tmp_path / "off.yaml", 'policy: none\ndevices: {podresources: {socket: ""}}\n')

    assert (
        "  the kubelet reports what it allocated:\n"
        "    podresources: /k/sock (No such file or directory)\n"
        "    checkpoint: /k/checkpoint\n"
    ) in check(host, file).stdout
    assert "    podresources: not asked\n    checkpoint: /var/lib/kubelet/" in check(host, off).stdout
    assert "the kubelet tells" not in check(host, file, "--no-machine").stdout


def test_json(tmp_path: Path, host: Path) -> None:
    """Programs get the same, with numbers as numbers."""
    right = write(tmp_path / "right.yaml", "policy: none\nreservedCpus: 0\n")
    wrong = write(tmp_path / "wrong.yaml", "policy: none\nx: 1\n", 0o646)

    result = check(host, right, wrong, "--format", "json")

    assert result.exit_code == 1
    values = json.loads(result.stdout)
    fine, bad = values["files"]
    assert (values["ok"], values["machine"]) == (False, {"cpus": "0-2", "mems": ""})
    assert (fine["options"]["reservedCpus"], fine["options"]["memoryTypes"]) == ("0", ["dram", "pmem", "hbm"])
    assert (fine["mistakes"], bad["options"]) == ([], None)
    assert bad["mistakes"] == [
        {"line": None, "column": None, "text": f"can be written by every user (mode 0646): chmod go-w {wrong}"},
        {"line": 2, "column": 1, "text": "unknown option 'x'"},
    ]


def test_wrong_use(tmp_path: Path) -> None:
    """No file is wrong use, not a wrong file."""
    assert criproxy("check").exit_code == 2
    assert criproxy("check", tmp_path, "--format", "xml").exit_code == 2


def test_the_schema() -> None:
    """`criproxy schema` prints what lies beside the examples."""
    names = [argument for name in BUILTIN for argument in ("--policy", name)]

    result = criproxy("schema", *names)

    assert result.exit_code == 0
    assert result.stdout == (ROOT / "policies/policy.schema.json").read_text()


def test_the_schema_of_an_unknown_policy() -> None:
    """It is refused with the names that there are."""
    result = criproxy("schema", "--policy", "statik")

    assert result.exit_code == 1
    assert result.stderr.endswith(f"policies are: {POLICIES}; did you mean 'static'?\n")


def test_what_nri_cannot_do(tmp_path: Path, host: Path) -> None:
    """A note for each option of the file that has no effect, or less, where criproxy is a plugin; else none."""
    devices = "devices: {privileged: deny, exempt: {images: [a]}, plugin: {}}\n"
    file = write(tmp_path / "policy.yaml", f"policy: static\nonError: refuse\n{devices}")

    assert "NRI" not in check(host, file).output
    said = " ".join(check(host, "--nri", file).output.split())
    for text in (
        "note: onError: refuse does not hold with NRI while criproxy is down or too slow: containers start then",
        "note: devices.privileged: deny has no effect with NRI, which does not tell who is privileged",
        "note: devices.exempt.images has no effect with NRI, which does not tell the image of a container",
        "note: devices.onNoEvidence: keep leaves an image that asks for all cards alone while the kubelet does not",
        "note: devices.plugin: with NRI, 'kubectl describe' does not show the reasons of quotas and of unhealthy cards",
    ):
        assert text in said
    assert "NRI" not in check(host, "--nri", write(file, "policy: static\n")).output
