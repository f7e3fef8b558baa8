"""``criproxy devices``: asked of the daemon, of the state that it left, or of the machine alone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.api.views.devices import Inventory, to_values
from criproxy.cli.queries.devices import add_peers, render
from criproxy.devices.classes.builtin import AMD, NVIDIA
from criproxy.devices.classes.cards import Card, Distance, NvLinks, Peers, Stock
from criproxy.devices.holdings import Facts, Holdings
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.simulate.hosts import machine
from tests.asking import LIMIT_S, answering, invoke, places, printed
from tests.node.devices.test_guard import Podresources, create, knows, world
from tests.sysfs import write_sysfs

PAGE = Path(__file__).parents[3] / "docs/devices.md"
HEAD: dict[str, Any] = {
    "source": "daemon",
    "version": "1.0",
    "pid": 7,
    "time": "2026-11-20T09:27:36.123Z",
    "started": "2026-11-20T06:15:36.123Z",
    "notices": [],
    "guarded": True,
    "holders_known": True,
}
EIGHT = tuple(
    Card(
        number,
        (f"/dev/nvidia{number}",),
        f"GPU-{number}3f6e2a1-58b4-9d0c-77aa-0c1d2e3f4a5b",
        f"0000:{number + 1}7:00.0",
        (f"pci0000:{number // 2}0", f"0000:{number // 2}0:01.0", "0000:02:00.0", f"0000:03:0{number}.0"),
        numa_node=number // 4,
    )
    for number in range(8)
)
STOCKS = {"nvidia": Stock(EIGHT, ("/dev/nvidiactl",))}


def container(name: str, state: ContainerState = ContainerState.RUNNING) -> Container:
    """A container of the pod of the same name."""
    return Container(key=f"id-{name}", pod=f"s-{name}", name="main", pod_name=name, namespace="shop", state=state)


def tell(**facts: Facts | None) -> dict[str, Any]:
    """What a daemon would say of containers by name, with what was found of each; None: nobody remembers."""
    holdings = Holdings()
    containers = {f"id-{name}": container(name) for name in facts}
    for name, found in facts.items():
        if found is not None:
            holdings.note(f"s-{name}", "main", found)
    node = Node(machine(), containers=containers)
    return {**HEAD, **to_values(Inventory(classes=[NVIDIA, AMD], stocks=STOCKS, holdings=holdings), node)}


def lines(values: dict[str, Any], width: int = 160) -> list[str]:
    """What a terminal of that width shows, line by line."""
    return printed(render(values, width), width)


def given(*ids: str, source: str = "podresources", **more: str) -> Facts:
    """What is found of a container that was given cards."""
    return {"nvidia": "allocated", "nvidia_ids": ",".join(ids), "nvidia_source": source, **more}


async def run(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await invoke("devices", *arguments, *places(directory)[:4], "--host-root", str(directory))


@pytest.mark.parametrize("width", [80, 119, 120, 160])
def test_eight_cards_fit_the_terminal(width: int) -> None:
    """No line is too long; every card has its place, those who have it with the evidence, and its way to others."""
    shown = lines(tell(web=given(EIGHT[5].id), api=given(EIGHT[5].id, source="nodes")), width)

    assert max(map(len, shown)) <= width
    assert "nvidia: 8 cards, 7 idle; shared nodes: /dev/nvidiactl" in shown
    (at,) = [number for number, line in enumerate(shown) if "0000:67:00.0" in line]
    assert "shop/api/main (nodes)" in shown[at]
    assert "shop/web/main (podresources)" in shown[at + 1]
    assert sum(line.endswith("none") for line in shown) == 7
    assert "  0      -     PIX   NODE  NODE  SYS   SYS   SYS   SYS" in shown
    legend = "PIX = within one PCIe switch, NODE = across the host bridges of a NUMA node, SYS = across NUMA nodes"
    assert f"{legend}, or unknown" in " ".join(shown)
    assert "no cards: amd" in shown


def test_what_is_odd_is_told() -> None:
    """Cards that the machine has not, cards of which nobody knows which, and who may see more than was given."""
    shown = lines(
        tell(
            gone=given("GPU-gone", source="checkpoint"),
            some=given(source="cdi"),
            asks={"nvidia": "no-evidence"},
            dcgm={"container": "exempt"},
            root={"container": "privileged", "nvidia": "hidden"},
            early=None,
        )
    )

    assert "  shop/gone/main was allocated GPU-gone, which is not a card of this machine (checkpoint)" in shown
    assert "  shop/some/main was allocated an unknown card (cdi)" in shown
    assert "  shop/asks/main may see more than was allocated to it: no-evidence" in shown
    assert "exempt, so nothing is hidden: shop/dcgm/main" in shown
    assert "privileged, so nothing is hidden: shop/root/main" in shown
    assert "the cards of 1 container are unknown: shop/early/main" in shown


def test_many_of_whom_nothing_is_known() -> None:
    """Ten names are enough to know what they are."""
    said = "the cards of 25 containers are unknown: shop/p00/main, shop/p01/main"
    values = tell(**{f"p{number:02}": None for number in range(25)})

    (line,) = [line for line in lines(values, 400) if line.startswith(said)]

    assert line.endswith("shop/p09/main, 15 more")


def test_a_card_is_known_by_its_address_too() -> None:
    """Where ids say nothing, as those of plugins that pass nodes only, the PCI address leads to the card."""
    values = tell(web=given(source="nodes", nvidia_pci="0000:17:00.0"))

    assert [len(card["containers"]) for card in values["classes"][0]["cards"]] == [1, *[0] * 7]
    assert values["classes"][0]["elsewhere"] == []


def test_the_driver_knows_links_and_parts() -> None:
    """NVLinks go before the bus, and who was given a MIG device has a part of its card."""
    values = tell(web=given("MIG-a"), odd=given("MIG-a", "MIG-gone"))
    first, second = EIGHT[0].id, EIGHT[1].id
    add_peers(
        values,
        {
            first: Peers({second: Distance.SYS}, NvLinks({EIGHT[1].pci: 4}), parts=("MIG-a", "MIG-b")),
            second: Peers({first: Distance.SYS}),
        },
    )
    shown = lines(values)

    assert values["classes"][0]["links"][0] == {"from": 0, "to": 1, "link": "NV4", "distance": "SYS", "nvlinks": 4}
    assert any("shop/web/main (MIG-a, podresources)" in line for line in shown)
    odd = "shop/odd/main was allocated MIG-a, MIG-gone, not all of which are cards of this machine (podresources)"
    assert f"  {odd}" in shown
    assert any("between two cards: NV# = that many NVLinks, PIX = " in line for line in shown)


def test_who_has_ended_has_no_card() -> None:
    """Its card is idle again, though it is still there."""
    holdings = Holdings()
    holdings.note("s-web", "main", given(EIGHT[0].id))
    node = Node(machine(), containers={"id-web": container("web", ContainerState.EXITED)})

    values = to_values(Inventory(classes=[NVIDIA], stocks=STOCKS, holdings=holdings), node)

    assert [card["containers"] for card in values["classes"][0]["cards"]] == [[]] * 8


async def test_the_daemon_tells(tmp_path: Path) -> None:
    """With classes of the policy file, cards of the machine, and what was found at creates; as JSON and as a table."""
    async with asyncio.timeout(LIMIT_S), world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        async with answering(node, tmp_path):
            answered = await run(tmp_path, "--format", "json")
            shown = await run(tmp_path)

    values = json.loads(answered.output)
    assert (values["source"], values["guarded"], values["holders_known"]) == ("daemon", True, True)
    (kind,) = values["classes"]
    idle, held = kind["cards"]
    assert (kind["name"], idle["id"], idle["containers"]) == ("nvidia", "GPU-a", [])
    (holder,) = held["containers"]
    assert (holder["pod"], holder["ids"], holder["evidence"]) == ("pod-0", ["GPU-b"], "podresources")
    assert held["nodes"] == ["/dev/nvidia1"]
    assert [notice["kind"] for notice in values["notices"]] == ["nvml"]  # no driver here
    assert "nvidia: 2 cards, 1 idle; shared nodes: /dev/nvidiactl" in shown.output
    assert shown.exit_code == 0


async def test_without_the_section_it_tells_of_the_machine(tmp_path: Path) -> None:
    """All classes that are built in, and that nobody guards them."""
    async with asyncio.timeout(LIMIT_S), world(tmp_path, rules=None) as node:
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        async with answering(node, tmp_path):
            shown = await run(tmp_path)

    assert "Note: the policy file has no devices section: criproxy does not restrict access to cards" in shown.output
    assert "no cards: ascend, amd, intel-gpu, intel-npu, habana, cambricon" in shown.output
    assert "default/pod-0/main" not in shown.output


async def test_the_state_tells_while_the_daemon_is_down(tmp_path: Path) -> None:
    """Who has what comes from the history, and the classes from the policy file."""
    async with asyncio.timeout(LIMIT_S), world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")
        await node.controller.context.state.find_history("")  # all of it is on disk
        await node.stop_criproxy()
        write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
        policy = tmp_path / "policy.yaml"
        policy.write_text("policy: none\ndevices: {classes: [amd, nvidia]}\n")
        answered = await run(tmp_path, "--format", "json", "--config", str(policy))
        policy.write_text("policy: none\ndevices: {classes: [nvidai]}\n")
        mistaken = await run(tmp_path, "--config", str(policy))
        await node.start_criproxy()

    values = json.loads(answered.output)
    assert (values["source"], values["guarded"], values["holders_known"]) == ("store", None, True)
    assert [kind["name"] for kind in values["classes"]] == ["amd", "nvidia"]
    assert [len(card["containers"]) for card in values["classes"][1]["cards"]] == [0, 1]
    assert values["notices"][0]["kind"] == "daemon-down"
    assert "only the built-in classes are shown, as the policy file cannot be used" in mistaken.output
    assert "did you mean 'nvidia'?" in mistaken.output


def test_without_daemon_and_state_the_machine_is_shown(tmp_path: Path) -> None:
    """Who has which card is unknown then, and nobody is called idle."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()

    shown = asyncio.run(run(tmp_path))
    values = json.loads(asyncio.run(run(tmp_path, "--format", "json")).output)

    assert shown.exit_code == 0
    assert "WRONG: the cards of containers are unknown: no criproxy daemon listens on" in shown.output
    assert "there is no state database" in shown.output
    assert "nvidia: 1 card\n" in shown.output
    assert " ?\n" in shown.output
    assert (values["source"], values["holders_known"]) == ("machine", False)
    assert values["classes"][0]["cards"][0]["containers"] is None


def test_the_example_of_the_page_is_what_is_printed() -> None:
    """docs/devices.md shows this; copy the lines there where they change."""
    cards = tuple(
        Card(
            number,
            (f"/dev/nvidia{number}",),
            f"GPU-{uuid}",
            f"0000:{bus}:00.0",
            (f"pci0000:{bus}",),
            numa_node=number // 2,
        )
        for number, (uuid, bus) in enumerate((("4f0c…", "17"), ("91be…", "31"), ("a2d3…", "b1"), ("f7e8…", "ca")))
    )
    holdings = Holdings()
    facts = {"web": given(cards[0].id), "train": given(cards[2].id, cards[3].id), "dcgm": {"container": "exempt"}}
    for name, found in facts.items():
        holdings.note(f"s-{name}", "main", found)
    node = Node(machine(), containers={f"id-{name}": container(name) for name in facts})
    stocks = {"nvidia": Stock(cards, ("/dev/nvidiactl", "/dev/nvidia-uvm"))}
    values = {**HEAD, **to_values(Inventory(classes=[NVIDIA, AMD], stocks=stocks, holdings=holdings), node)}
    add_peers(values, {cards[at].id: Peers(nvlinks=NvLinks({cards[at ^ 1].pci: 4})) for at in range(4)})

    example = [line.removeprefix("    ") for line in PAGE.read_text().splitlines() if line.startswith("    ")]

    shown = [line for line in lines(values)[2:] if line]
    start = example.index(shown[0])
    assert example[start : start + len(shown)] == shown
