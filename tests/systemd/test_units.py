"""The unit files as they are shipped: systemd accepts them, and they say what the daemon and a node need."""

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from criproxy.agent.options import DEFAULT_CONTROL_SOCKET
from criproxy.cli.operate.serve import command as serve
from criproxy.controls import DEFAULT_SOCKET, DEFAULT_STATE_DIR
from criproxy.controls.machine.facts import CPUS, IRQS
from criproxy.deviceplugin.server.plugin import KUBELET_DIR
from criproxy.devices.options.plugin_options import LabelOptions
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.process.systemd import SOCKET_NAMES

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = ROOT / "systemd"
PLUGIN = "criproxy-device-plugin.service"
AGENT = "criproxy-agent.service"
CONTROLS = "criproxy-controls.service"
UNITS = ("criproxy.service", PLUGIN, AGENT, CONTROLS, "criproxy.socket", "criproxy-image.socket", "criproxy.slice")
SOCKETS = ("criproxy.socket", "criproxy-image.socket")
DROP_IN = "kubelet.service.d/20-criproxy.conf"
KUBELETS = {"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}
MOST_EXPOSURE = 2.0
"""What `systemd-analyze security` may find, of 10; what it still counts is root, the network and other processes."""
_PLACE = "/opt/criproxy/bin/criproxy"

Unit = dict[str, list[str]]


def read(name: str) -> Unit:
    """Directive → its values in order, as written; sections do not matter, since no directive is in two."""
    directives: Unit = defaultdict(list)
    for line in (SYSTEMD / name).read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            directives[key].append(value)
    return directives


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units in a folder, with a kubelet to drop into, and with a program that exists where criproxy is missing."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "criproxy"
    program.touch(mode=0o755)
    for name in (*UNITS, DROP_IN):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text((SYSTEMD / name).read_text().replace(_PLACE, str(program)))
    (tmp_path / "kubelet.service").write_text("[Service]\nExecStart=/bin/true\n")
    return tmp_path


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze` on what is in *folder*, with the machine's own units behind it."""
    environ = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:", "SYSTEMD_LOG_LEVEL": "warning"}
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=folder, check=False)


def test_systemd_finds_no_mistake(installed: Path) -> None:
    """Every directive is known, and every value has its form."""
    found = analyze(installed, "verify", "--man=no", *(f"./{name}" for name in (*UNITS, "kubelet.service")))

    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("unit", ["criproxy.service", PLUGIN, AGENT, CONTROLS])
def test_the_service_is_hardened(installed: Path, unit: str) -> None:
    """What a break-in could reach, by the count of systemd, stays little."""
    limit = f"--threshold={MOST_EXPOSURE * 10:.0f}"

    found = analyze(installed, "security", "--offline=true", limit, f"./{unit}")

    assert found.returncode == 0, found.stdout


def test_each_socket_has_a_name_that_the_daemon_knows() -> None:
    """The kubelet's sockets are systemd's; the control socket is not, so that a dead daemon is seen as dead."""
    names = {name for unit in SOCKETS for name in read(unit)["FileDescriptorName"]}

    assert names == set(SOCKET_NAMES) - {"control"}


@pytest.mark.parametrize("unit", SOCKETS)
def test_a_socket_is_for_root_and_its_group_and_is_never_given_up(unit: str) -> None:
    """Mode and folder are those of DESIGN, one path each, and no number of failed starts closes it."""
    directives = read(unit)

    assert directives["SocketMode"] == ["0660"]
    assert [Path(path).parent for path in directives["ListenStream"]] == [Path("/run/criproxy")]
    assert (directives["TriggerLimitIntervalSec"], set(directives["Before"][0].split())) == (["0"], KUBELETS)


def test_the_socket_is_where_the_daemon_listens_without_systemd() -> None:
    """Who points the kubelet at it need not know who made it."""
    (default,) = [option.default for option in serve.params if option.name == "listen"]

    assert default == f"unix://{read('criproxy.socket')['ListenStream'][0]}"


def rights_in_docs() -> list[dict[str, str]]:
    """Return the rows of the table in docs/vgpu.md that says who runs with which rights."""
    _, _, after = (ROOT / "docs/vgpu.md").read_text().partition("### Processes and their privileges\n\n")
    table = after.partition("\n\n")[0]
    head, _, *rows = ([cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_table_of_rights_is_that_of_the_units() -> None:
    """Users, capabilities, device nodes and what restarts them; each unit that runs something has a row."""
    rows = rights_in_docs()

    for row in rows:
        unit = read(row["Unit"])
        assert row["User"] == unit.get("User", ["root"])[0]
        assert row["Capabilities"] == (unit["CapabilityBoundingSet"][0] or "none")
        nodes = row["Device nodes"].partition("`")[0]
        assert nodes == (unit["DeviceAllow"][0].removesuffix(" rw") if "DeviceAllow" in unit else "none")
        assert unit["DevicePolicy"] == ["closed"]
        if "watchdog" in row["What stops if it hangs"]:
            assert "WatchdogSec" in unit
            assert unit["Restart"] == ["always"]
    assert {row["Unit"] for row in rows} == {name for name in UNITS if name.endswith(".service")}


def test_the_service_lives_through_everything() -> None:
    """It starts after the runtime and before the kubelet, comes back for ever, and is the last to be killed."""
    directives = read("criproxy.service")

    assert set(directives["After"][0].split()) == {"criproxy.socket", "containerd.service", "crio.service"}
    assert set(directives["Before"][0].split()) == KUBELETS
    assert (directives["Restart"], directives["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert (directives["OOMScoreAdjust"], directives["Slice"]) == (["-999"], ["criproxy.slice"])
    assert (directives["Type"], directives["WatchdogSec"]) == (["notify"], ["15s"])
    assert directives["RuntimeDirectoryPreserve"] == ["yes"], "else a stop removes the folder with systemd's socket"
    assert "ProtectProc" not in directives, "it reads /proc/PID/cgroup of other users' processes, without a capability"


def test_pods_that_need_much_memory_do_not_end_the_controls() -> None:
    """Those of the class Guaranteed have -997: next to them, a usual process would be killed first."""
    assert read("criproxy-controls.service")["OOMScoreAdjust"] == ["-900"]


def test_the_kubelet_outlives_criproxy() -> None:
    """It is ordered after criproxy, and not stopped with it."""
    directives = read(DROP_IN)

    assert set(directives) == {"Wants", "After"}
    assert set(directives["After"][0].split()) == {"criproxy.socket", "criproxy.service"}


def test_the_device_plugin_starts_before_the_kubelet_and_comes_back() -> None:
    """It is ordered after the daemon that it asks, and neither needs the other."""
    directives = read(PLUGIN)

    assert {"criproxy.service", "criproxy.socket"} < set(directives["After"][0].split())
    assert set(directives["Before"][0].split()) == KUBELETS
    assert (directives["Restart"], directives["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert (directives["Type"], directives["WatchdogSec"]) == (["notify"], ["15s"])
    assert not {"Requires", "BindsTo", "PartOf"} & directives.keys()


def test_the_agent_is_nobody_and_reaches_the_daemon_by_its_own_socket() -> None:
    """A user of its own without capabilities, to whom systemd gives the socket and the credentials."""
    directives, option = read(AGENT), "/run/criproxy-agent/control.sock"
    mounted, _, place = directives["BindReadOnlyPaths"][0].partition(":")

    assert (directives["DynamicUser"], directives["CapabilityBoundingSet"]) == (["yes"], [""])
    assert (Path(DEFAULT_CONTROL_SOCKET).parent, Path(option).parent) == (Path(mounted), Path(place))
    assert f"agent --control-socket {option} " in (SYSTEMD / AGENT).read_text()
    assert directives["LoadCredential"] == [f"kubeconfig:{directives['ConditionPathExists'][0]}"]
    assert not {"Requires", "BindsTo", "PartOf"} & directives.keys(), "neither needs the other"


def rights_of_controls() -> list[str]:
    """Return the first column of the table in docs/threat-model.md, and check that no other text is in the way."""
    _, _, after = (ROOT / "docs/threat-model.md").read_text().partition("### Rights of criproxy controls\n")
    table = after.partition("\n|---|---|---|\n")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()]


def test_criproxy_controls_has_the_rights_in_the_threat_model_and_no_other() -> None:
    """What is not in its table is closed: other capabilities, files, devices, networks."""
    directives, rights = read(CONTROLS), rights_of_controls()
    (written,) = directives["ReadWritePaths"]
    made = {f"/run/{directives['RuntimeDirectory'][0]}", f"/var/lib/{directives['StateDirectory'][0]}"}

    paths = {right.removeprefix("write ").strip("`") for right in rights if right.startswith("write ")}
    assert paths == {path.removeprefix("-") for path in written.split()} | made
    assert [right for right in rights if not right.startswith("write ")] == [
        f"`{directives['CapabilityBoundingSet'][0]}`"
    ]
    assert directives["ReadOnlyPaths"] == ["/proc /sys", "-/sys/devices/system/cpu/smt"]
    assert (directives["ProtectSystem"], directives["DevicePolicy"]) == (["strict"], ["closed"])
    assert (directives["PrivateNetwork"], directives["RestrictAddressFamilies"]) == (["yes"], ["AF_UNIX"])
    assert directives["NoNewPrivileges"] == ["yes"]
    assert not {"AmbientCapabilities", "BindPaths", "DeviceAllow"} & directives.keys()


def test_criproxy_controls_writes_where_the_unit_lets_it() -> None:
    """The files that it changes, its socket and its state; and nothing needs it or is needed by it."""
    directives = read(CONTROLS)
    written = [path.removeprefix("-") for path in directives["ReadWritePaths"][0].split()]

    assert {f"/{IRQS}", f"/{CPUS}"} < set(written)
    assert str(Path(DEFAULT_SOCKET).parent) == f"/run/{directives['RuntimeDirectory'][0]}"
    assert f"/var/lib/{directives['StateDirectory'][0]}" == DEFAULT_STATE_DIR
    assert (directives["RuntimeDirectoryMode"], directives["StateDirectoryMode"]) == (["0700"], ["0700"])
    assert (directives["Restart"], directives["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert not {"Requires", "BindsTo", "PartOf", "RestrictRealtime", "ExecStopPost"} & directives.keys()


def test_folders_that_the_device_plugin_writes_are_made_first() -> None:
    """A folder that is missing would fail the start: systemd makes those of the kubelet and of labels."""
    directives = read(PLUGIN)
    state = {Path("/var/lib") / name for name in directives["StateDirectory"][0].split()}
    labels = Path(LabelOptions().file).parent

    assert state == {KUBELET_DIR / "device-plugins", KUBELET_DIR / "plugins_registry", Path(HAMI.containers).parent}
    assert Path(HAMI.lock).parent == Path(HAMI.containers).parent
    assert directives["ReadWritePaths"] == [str(labels)]
    assert directives["ConfigurationDirectory"] == [str(labels.relative_to("/etc"))]
    assert (directives["StateDirectoryMode"], directives["ConfigurationDirectoryMode"]) == (["0750"], ["0755"])


def test_the_device_plugin_opens_no_device_but_those_of_nvidia() -> None:
    """NVML needs them; who has other health commands adds theirs."""
    directives = read(PLUGIN)

    assert (directives["DevicePolicy"], directives["DeviceAllow"]) == (["closed"], ["char-nvidia* rw"])
    assert directives["CapabilityBoundingSet"] == [""]
    assert "PrivateDevices" not in directives, "it looks for device nodes in /dev"
    assert "ProcSubset" not in directives, "it reads /proc/driver"
    assert "ProtectProc" not in directives, "it reads /proc/PID/cgroup of processes that use cards"
