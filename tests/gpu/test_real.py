"""A real NVIDIA GPU: what is found is what its driver says, and the nodes in a create are what a container needs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Stock
from criproxy.host.cards import find_cards
from criproxy.host.nvml import address_of, ask_nvml
from tests.node.devices.test_guard import RULES, Podresources, create, envs, knows
from tests.node.world import FAST, World

COUNT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(0)
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
"""
"""Prints how many GPUs CUDA can use; 0 where it cannot begin."""


@pytest.fixture
def stock() -> Stock:
    """What is found on this machine."""
    return find_cards([NVIDIA])["nvidia"]


def test_the_cards_are_those_of_the_driver(nvml: None, stock: Stock) -> None:
    """UUIDs, minor numbers and PCI addresses, in the order of the driver's indexes; each has its node."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    assert [card.id for card in stock.cards] == list(map(pynvml.nvmlDeviceGetUUID, handles))
    assert [card.number for card in stock.cards] == list(map(pynvml.nvmlDeviceGetMinorNumber, handles))
    addresses = [address_of(pynvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
    assert [card.pci for card in stock.cards] == addresses
    assert all(f"/dev/nvidia{card.number}" in card.nodes for card in stock.cards)
    assert "/dev/nvidiactl" in stock.shared


def test_the_place_of_a_card_is_that_of_sysfs(stock: Stock) -> None:
    """The bridges begin with a host bridge, where sysfs has the card at all."""
    for card in stock.cards:
        folder = Path("/sys/bus/pci/devices") / card.pci
        if folder.exists():
            node = int((folder / "numa_node").read_text())
            assert card.numa_node == node
            assert card.bridges[:1] == () or card.bridges[0].startswith("pci")


def test_nvml_answers(stock: Stock) -> None:
    """In time, and of all cards; each may know its way to others, and never to itself."""
    told = ask_nvml()

    assert set(told) == {card.id for card in stock.cards}
    assert all(set(peers.distances) <= set(told) - {own} for own, peers in told.items())


def test_the_command_shows_them(tmp_path: Path, stock: Stock) -> None:
    """Without a daemon, too, and with nothing to complain of about NVML."""
    where = ("--control-socket", str(tmp_path / "none.sock"), "--state-dir", str(tmp_path))
    values = json.loads(CliRunner().invoke(main, ["devices", "--format", "json", *where]).output)
    shown = CliRunner().invoke(main, ["devices", *where])
    print(shown.output)

    (kind,) = [kind for kind in values["classes"] if kind["name"] == "nvidia"]
    assert [card["id"] for card in kind["cards"]] == [card.id for card in stock.cards]
    assert [notice["kind"] for notice in values["notices"]] == ["daemon-down"]
    assert all(card.pci in shown.output for card in stock.cards)


async def test_who_was_given_a_card_gets_its_nodes_and_no_others(tmp_path: Path, stock: Stock) -> None:
    """The create of a container with a real card has the card's nodes, and one without has the word that hides it."""
    with_devices_of_the_machine(tmp_path)
    card = stock.cards[0]
    async with World(tmp_path, settings=replace(FAST, devices=RULES)) as world:
        knows(world, Podresources(main=card.id))
        held = await create(world, f"NVIDIA_VISIBLE_DEVICES={card.id}", "NVIDIA_VISIBLE_DEVICES=all")
        knows(world, Podresources())
        other = await create(world, "NVIDIA_VISIBLE_DEVICES=all")

    assert envs(held) == {"NVIDIA_VISIBLE_DEVICES": card.id.encode()}
    assert [device.host_path for device in held.devices] == [*card.nodes, *stock.shared]
    assert envs(other) == {"NVIDIA_VISIBLE_DEVICES": b"void"}
    assert list(other.devices) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a /dev of its own, which needs root")
def test_the_nodes_of_a_card_are_enough_and_needed(stock: Stock) -> None:
    """With the nodes that are written into a create CUDA uses exactly that card; without them, none."""
    assert usable([]) == 0
    for card in stock.cards:
        assert usable([*card.nodes, *stock.shared]) == 1


def with_devices_of_the_machine(host_root: Path) -> None:
    """Let the world below *host_root* see the real cards."""
    for folder in ("dev", "sys/bus", "proc"):
        (host_root / folder).mkdir(parents=True)
    (host_root / "sys/bus/pci").symlink_to("/sys/bus/pci")
    (host_root / "proc/driver").symlink_to("/proc/driver")
    for node in Path("/dev").glob("nvidia*"):
        (host_root / "dev" / node.name).symlink_to(node)


def usable(nodes: Iterable[str]) -> int:
    """How many GPUs a process can use whose /dev has these nodes and no others of a GPU."""
    bound = "".join(f"touch $D{node[4:]} && mount --bind {node} $D{node[4:]} && " for node in ["/dev/null", *nodes])
    script = (
        f"D=$(mktemp -d) && mount -t tmpfs none $D && {bound}"
        'mount -o remount,ro,bind $D && mount --rbind $D /dev && exec "$0" -c "$1"'
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, sys.executable, COUNT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
