"""The shipped units on a node with a real systemd, the machine's containerd and a kubelet that is only a process."""

import os
from typing import Any

import pytest

from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from lab.containerd.containerd import IMAGE
from tests.kernel_files import changing_this_machine
from tests.systemd import booted
from tests.systemd.inside import network_namespace

pytestmark = pytest.mark.e2e

ALL = discover().cpus
OWNED = frozenset([min(ALL - {min(ALL)})])
WHERE = {"web": format_cpuset(ALL - OWNED), "trader": format_cpuset(OWNED)}
"""The pod that owns one CPU, and the one that shares the others."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the facts of one life of a node, from its boot to the end of criproxy."""
    if reason := booted.available():
        pytest.skip(reason)
    with changing_this_machine():  # the node has its own file systems, but those of interrupts are the machine's
        return booted.facts(tmp_path_factory.mktemp("node"))


def test_a_node_sees_no_sockets_of_another(node: dict[str, Any]) -> None:
    """Several are up at once in one run of all tests, each with a kubelet on the same path."""
    assert node["network namespace"] != network_namespace()


def test_the_kubelet_brings_the_socket_and_its_first_call_the_service(node: dict[str, Any]) -> None:
    """The drop-in pulls the socket in, and socket activation does the rest."""
    assert (node["socket with the kubelet"], node["service before the first call"]) == ("active", "inactive")
    assert node["service after the first call"] == "active"


def test_the_service_sees_which_device_nodes_there_are(node: dict[str, Any]) -> None:
    """It adds those of allocated cards to containers; a private /dev would have none of them."""
    assert node["device nodes that it does not see"] == []


def test_without_a_runtime_calls_fail_at_once_and_readiness_says_why(node: dict[str, Any]) -> None:
    """At boot, before containerd is there, the kubelet hears UNAVAILABLE instead of waiting for its deadline."""
    assert node["first call"] == "UNAVAILABLE"
    status, text = node["not ready"]
    assert status == 503
    assert "no runtime listens on" in text
    assert node["ready"] == [200, "ok\n"]


def test_the_service_has_its_own_group_and_no_capability(node: dict[str, Any]) -> None:
    """What the unit file says is in force, and placing containers needs no more."""
    assert node["group"] == "/criproxy.slice/criproxy.service"
    assert node["process"] == {"CapEff": "0" * 16, "CapBnd": "0" * 16, "Seccomp": "2"}
    assert node["placed"] == WHERE
    assert "criproxy.db" in node["state kept in"]


@pytest.mark.parametrize("end", ["restart", "killed", "hung"])
def test_it_comes_back_and_nothing_has_moved(node: dict[str, Any], end: str) -> None:
    """However it ends, systemd starts it again, calls go on, and containers run where they ran."""
    assert node[end]["cpus"] == WHERE


def test_a_restart_fails_no_call(node: dict[str, Any]) -> None:
    """Calls wait in systemd's socket meanwhile."""
    assert node["restart"]["failures"] == []


def test_a_hung_daemon_tells_where_it_hung(node: dict[str, Any]) -> None:
    """The signal of the watchdog leaves Python's traceback in the journal."""
    assert node["hung"]["traceback"]
    assert not node["restart"]["traceback"]


def test_a_reload_keeps_the_process(node: dict[str, Any]) -> None:
    """`systemctl reload` is no restart."""
    assert node["reloaded"] == {"same": True, "state": "active"}


def test_the_agent_runs_as_nobody_and_says_on_the_node_what_it_cannot_do(node: dict[str, Any]) -> None:
    """It reaches the daemon, and nothing is wrong on the node because the API server does not answer."""
    agent = node["agent"]

    assert (agent["without a kubeconfig"], agent["state"], agent["result"]) == ("inactive", "active", "success")
    assert (agent["is root"], agent["process"]) == (False, {"CapEff": "0" * 16, "CapBnd": "0" * 16, "Seccomp": "2"})
    assert "127.0.0.1:1" in str(agent["status"])
    assert "127.0.0.1:1" in agent["text"]
    assert (agent["check"], agent["group"]) == (0, "/criproxy.slice/criproxy-agent.service")


def test_controls_have_their_rights_and_change_the_machine_only_while_it_is_wanted(node: dict[str, Any]) -> None:
    """One capability, a few writable folders, a socket for root; and a file of the kernel is put back."""
    controls = node["controls"]

    assert (controls["state"], controls["result"]) == ("active", "success")
    nice = f"{1 << 23:016x}"  # CAP_SYS_NICE
    assert controls["process"] == {"CapEff": nice, "CapBnd": nice, "Seccomp": "2"}
    assert controls["modes"] == ["0700", "0600"]
    assert [place for place, is_read_only in controls["read-only"].items() if not is_read_only] == [
        "proc/irq",
        "sys/devices/system/cpu",
        "sys/fs/cgroup/blkio",
        "var/lib/criproxy-controls",
    ]
    first = 1 << min(ALL)
    assert controls["applied"]["troubles"] == []
    assert int(controls["applied"]["file"].replace(",", ""), 16) == first
    assert controls["applied"]["thread"] == [os.SCHED_BATCH, -5], "of another user"
    assert controls["put back"] == {"file": controls["before"], "troubles": [], "thread": [os.SCHED_OTHER, 0]}
    assert controls["left"] == {"status": 0, "said": ""}


def test_the_device_plugin_serves_without_rights_before_there_is_a_kubelet(node: dict[str, Any]) -> None:
    """Its unit makes the kubelet's folders, in which it serves a card; its end leaves nothing there."""
    plugin = node["device plugin"]

    assert plugin["state"] == "active"
    assert plugin["process"] == {"CapEff": "0" * 16, "CapBnd": "0" * 16, "Seccomp": "2"}
    assert list(plugin["folders"].values()) == ["0755", "0750", "0750", "0755"]
    assert [name for name in plugin["sockets"] if not name.startswith(".")] == ["criproxy-example.com_card.sock"]
    assert plugin["status"] == "0 of 1 resources registered"
    assert (plugin["left"], plugin["result"]) == ([], "success")


def test_the_watcher_reads_processes_of_all_users_without_rights(node: dict[str, Any]) -> None:
    """Their start and their cgroup; to kill those of other users than root it needs the drop-in of docs/vgpu.md."""
    root, other = ({"start": True, "cgroup": True, "signals": may} for may in (True, False))

    assert node["processes"]["as shipped"] == {"may_kill": False, "processes": [root, other]}
    assert node["processes"]["with CAP_KILL"] == {"may_kill": True, "processes": [root, root]}


def test_stopping_criproxy_stops_nothing_else(node: dict[str, Any]) -> None:
    """The socket is gone, the kubelet runs, and so do the containers."""
    assert "criproxy.sock" not in node["stopped"]["left"]
    assert (node["stopped"]["kubelet"], node["stopped"]["cpus"]) == ("active", WHERE)


def test_the_second_socket_serves_images(node: dict[str, Any]) -> None:
    """The kubelet's image service comes through a socket of systemd, too, once its unit is started."""
    assert "criproxy-image.socket" in node["sockets of the service"]
    assert IMAGE in node["images"]


def test_it_is_a_plugin_by_the_same_units(node: dict[str, Any]) -> None:
    """It answers the runtime without any right; who comes to the socket that systemd holds is told at once."""
    assert node["plugin"] == {
        "process": {"CapEff": "0" * 16, "CapBnd": "0" * 16, "Seccomp": "2"},
        "told": "",
        "placed": WHERE["web"],
        "socket": "active",
    }


def test_what_docs_tell_to_type_installs_it(node: dict[str, Any]) -> None:
    """The commands of docs/install.md, as they stand there, make a node that places containers and tells about them."""
    assert node["install"]["status"] == 0, node["install"]["said"]
    assert node["enabled"] == ["enabled", "enabled"]
    assert node["status"]["status"] == 0, node["status"]["said"]
    for pod in ("web", "trader", "late"):
        assert f"default/{pod}" in node["status"]["said"]
    assert node["explain"]["status"] == 0, node["explain"]["said"]
    assert "What it requested, as the kubelet sent it" in node["explain"]["said"]


@pytest.mark.parametrize("how", ["If criproxy works", "If criproxy is broken"])
def test_what_docs_tell_to_type_takes_it_out(node: dict[str, Any], how: str) -> None:
    """Containers run on, pinned nowhere, the kubelet runs, and its restart does not bring criproxy back."""
    assert node[how]["status"] == 0, node[how]["said"]
    assert (node[how]["cpus"], node[how]["kubelet"]) == (dict.fromkeys(WHERE, format_cpuset(ALL)), "active")
    assert (node[how]["socket"], node[how]["service"]) == (["active", "inactive"], "inactive")
