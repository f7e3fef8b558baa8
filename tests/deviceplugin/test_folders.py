"""What is wrong with the kubelet's folder is said in one sentence, once, and the plugin goes on when it is right."""

import socket
from dataclasses import replace

import pytest

from criproxy.deviceplugin.server import plugin
from criproxy.deviceplugin.server.state import State
from tests.deviceplugin.news import PATIENT_S
from tests.deviceplugin.node import GPU, QUICK, Node
from tests.disks import remount, small_disk

SOCKET = "criproxy-nvidia.com_gpu.sock"


async def troubled(node: Node) -> str:
    """Start the plugin, and return what it says against the folder."""
    node.start_plugins("a")
    return (await node.until_state(State.NO_SOCKET)).text


async def test_no_folder(node: Node) -> None:
    """What lies there is a file; it goes on when there is a folder."""
    node.kubelet.plugins_dir.write_text("")

    assert await troubled(node) == f"{node.kubelet.plugins_dir}: is not a directory"

    node.kubelet.plugins_dir.unlink()
    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)
    assert node.said("is not a directory") == 1


async def test_a_read_only_folder(node: Node) -> None:
    """It says what to look for under systemd."""
    with small_disk(node.kubelet.plugins_dir):
        await node.kubelet.start()
        remount(node.kubelet.plugins_dir, "ro")
        text = "is read-only for this process; under systemd, it must exist, and ReadWritePaths= must list it"
        assert text in await troubled(node)

        remount(node.kubelet.plugins_dir, "rw")
        await node.kubelet.until_capacity(GPU, 1)
        assert node.said("is read-only") == 1
        await node.stop()


def leave_socket(node: Node) -> None:
    """Leave the socket of a kubelet that was killed."""
    node.kubelet.plugins_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(node.kubelet.socket))


async def test_something_else_has_the_name(node: Node) -> None:
    """A file is left where it is."""
    await node.kubelet.start()
    file = node.kubelet.plugins_dir / SOCKET
    file.write_text("precious")

    assert await troubled(node) == f"{file}: exists, but is not a socket; remove it"

    assert file.read_text() == "precious"
    file.unlink()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_path_that_is_too_long(node: Node) -> None:
    """Sockets have short paths; that is said in place of what gRPC says."""
    long = Node(node.root / ("x" * 90))

    assert (await troubled(long)).endswith("device-plugins: has a path that is too long for a socket")

    await long.stop_plugins()


async def test_a_socket_that_is_always_removed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin does not fight for it without a pause, and says what happens."""
    monkeypatch.setattr(plugin, "SHORT_S", PATIENT_S)  # however long a registration takes on this machine
    await node.kubelet.start()
    node.start_plugins("a")

    for times in range(1, 7):
        await node.kubelet.until(lambda: len(node.kubelet.registered) >= times)  # noqa: B023 (it is over by then)
        (node.kubelet.plugins_dir / SOCKET).unlink()
    await node.log.until(lambda: node.said("is being removed again and again") == 1)

    await node.kubelet.until(lambda: len(node.kubelet.registered) == 7)


async def test_a_folder_that_is_replaced(node: Node) -> None:
    """The plugin follows the path, not the folder that it had."""
    node.times = replace(QUICK, beside_events_s=3600)
    await node.kubelet.start()
    node.start_plugins("a")
    await node.kubelet.until_capacity(GPU, 1)

    await node.kubelet.stop()
    node.kubelet.plugins_dir.rename(node.root / "former")
    await node.until_state(State.NO_SOCKET)
    node.kubelet.plugins_dir.mkdir()
    await node.until_state(State.NO_KUBELET)
    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_dead_kubelet_socket(node: Node) -> None:
    """A socket that a killed kubelet left behind is no refusal; the next kubelet has the plugin."""
    leave_socket(node)
    node.times = replace(QUICK, register_s=0.5)
    node.start_plugins("a")
    status = await node.until_state(State.NO_KUBELET)
    assert status.text == f"{node.kubelet.socket}: no kubelet listens on it"
    assert status.counts.refused == 0

    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)


async def test_a_registration_in_the_way_of_a_start(node: Node) -> None:
    """A call that waits for the next kubelet is repeated with the new socket, since that kubelet removed the former."""
    leave_socket(node)
    node.times = replace(QUICK, register_s=3600, first_pause_s=3600, longest_pause_s=3600)
    node.start_plugins("a")
    await node.log.until(lambda: node.status().counts.served == 1)

    await node.kubelet.start()
    await node.kubelet.until_capacity(GPU, 1)
