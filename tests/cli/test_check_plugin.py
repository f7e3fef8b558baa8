"""`criproxy check` also judges what the device plugin would do: NVIDIA's file, and the cards that are shared."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.simulate.hosts import shaped
from tests.config.files import write
from tests.sysfs import write_sysfs

POLICY = "policy: none\ndevices: {classes: [nvidia], plugin: {nvidiaConfig: /etc/nvidia.yaml}}\n"
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
    result = CliRunner().invoke(main, ["check", "--host-root", str(host), *options, str(file)])
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


def test_a_file_that_is_wrong(host: Path) -> None:
    """Only what is wrong is told, in NVIDIA's words, and it counts as a mistake."""
    status, output = check(host, POLICY, SHARED % 1)

    assert status == 1
    assert output.startswith(f"{host}/etc/nvidia.yaml: line 1: sharing.timeSlicing.resources[0].replicas: ")
    assert "number of replicas must be >= 2" in output


def test_without_a_machine(host: Path) -> None:
    """The file is one of the machine, which is not looked at."""
    status, output = check(host, POLICY, SHARED % 1, "--no-machine")

    assert status == 0
    assert "NVIDIA" not in output


def test_what_is_offered(host: Path) -> None:
    """The ids of cards and replicas of this machine; a card that is not there is noted."""
    for number in range(3):
        write(host / f"dev/npu{number}", "")
    policy = """
policy: none
devices:
  classes: [{name: ali, resources: [a.b/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}]
  plugin: {sharing: [{resource: a.b/npu, devices: [0, npu7], replicas: 9, rename: a.b/part}]}
"""

    status, output = check(host, policy, "")

    assert status == 0
    assert output.splitlines()[-4:] == [
        "  the device plugin offers:",
        "    a.b/npu: npu1, npu2",
        "    a.b/part: npu0::0, npu0::1, npu0::2, npu0::3, npu0::4, npu0::5, npu0::6, npu0::7 and 1 more",
        "  note: a.b/npu: the card npu7, which is to be shared, is not there",
    ]


def test_for_programs(host: Path) -> None:
    """The same in JSON; a policy file that names none says nothing of it."""
    status, output = check(host, POLICY, "version: v2\n", "--format", "json")
    values = json.loads(output)
    (file,) = values["files"]

    assert (status, values["ok"], file["mistakes"]) == (1, False, [])
    assert file["nvidia"] == {
        "file": f"{host}/etc/nvidia.yaml",
        "chosen_because": "it was named",
        "notes": [],
        "mistakes": file["nvidia"]["mistakes"],
    }
    assert "unknown version: v2" in file["nvidia"]["mistakes"][0]
    assert "nvidia" not in json.loads(check(host, "policy: none\n", "", "--format", "json")[1])["files"][0]


def test_what_criproxy_does_otherwise(host: Path) -> None:
    """What the file asks for and criproxy does not do, or not so, is a note and no mistake."""
    status, output = check(host, POLICY, "flags: {failOnInitError: true, plugin: {deviceListStrategy: cdi-cri}}\n")

    assert status == 0
    assert "flags.failOnInitError: true does not end criproxy" in output
    assert "nvidia-ctk has to write one of the kind k8s.device-plugin.nvidia.com/gpu" in output
