"""``criproxy who``: of the daemon, or of what it left on disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.cli.queries.who import render
from criproxy.host.machine import discover
from criproxy.node.configuration.load import candidate
from criproxy.node.settings import Settings
from criproxy.simulate.hosts import machine
from criproxy.store.configurations import GoodFile, write_good
from tests.asking import LIMIT_S, NAMED, answering, daemon, printed, run
from tests.node.world import World, owner, sharer
from tests.sysfs import write_sysfs


def left_with(options: str, directory: Path) -> GoodFile:
    """The last good file of a node whose policy `static` has *options*."""
    write_sysfs(directory / "host", machine(nodes=1, cores=4, threads=1))
    there = discover(directory / "host")
    return candidate(f"policy: static\n{options}\n", "policy.yaml", there, Settings(host_root=directory / "host")).good


async def who(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await run(directory, "who", *arguments)


async def test_an_exclusive_and_a_shared_cpu(tmp_path: Path) -> None:
    """The owner on its own, the others together; the store says the same, after a notice."""
    async with daemon(tmp_path) as world:
        web = await world.run(sharer("web"))
        await world.run(owner("trader", 2))
        await world.until(lambda: world.controller.node.applied[web].cpus == frozenset({0, 3}))

        by_daemon = await who(tmp_path, "0-1", "3", "9")
        await world.stop_criproxy()
        (tmp_path / "control.sock").rename(tmp_path / "elsewhere")
        by_store = await who(tmp_path, "0-1,3,9")
        await world.start_criproxy()

    assert by_daemon.exit_code == by_store.exit_code == 0
    assert by_daemon.output.splitlines() == [
        "CPU 0, NUMA node 0: shared, reserved",
        "  default/web/main  running  shared",
        "",
        "CPU 1, NUMA node 0: exclusive",
        "  default/trader/main  running  exclusive",
        "",
        "CPU 3, NUMA node 0: shared, free to become exclusive",
        "  default/web/main  running  shared",
        "",
        "CPU 9: not on this machine",
    ]
    assert by_store.output.startswith("WRONG: the file of the socket ")
    assert "CPU 1, NUMA node 0: exclusive\n  default/trader/main  running  exclusive\n" in by_store.output


@pytest.mark.parametrize("known", [True, False])
async def test_reserved_cpus_are_not_called_free_without_a_daemon(tmp_path: Path, known: bool) -> None:
    """They are those of the last configuration; if that is unknown, no CPU is called free, and a notice says why."""
    good = left_with("reservedCpus: '0'", tmp_path)
    named = replace(NAMED, configuration=good.configuration)
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=named) as world, answering(world, tmp_path):
        await world.run(sharer("web"))
        by_daemon = await who(tmp_path, "0-1")
        await world.stop_criproxy()
        (tmp_path / "control.sock").rename(tmp_path / "elsewhere")
        write_good(tmp_path / "state", good if known else replace(good, configuration="another"))
        by_store = await who(tmp_path, "0-1")
        await world.start_criproxy()

    if known:
        assert by_store.output.split("\n", 2)[2] == by_daemon.output
        assert "CPU 0, NUMA node 0: shared, reserved\n" in by_store.output
    else:
        assert "\nNote: it is unknown which CPUs are reserved or free: " in by_store.output
        assert "\nCPUs 0-1, NUMA node 0: shared\n" in by_store.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [pytest.param((), "Missing argument 'CPU...'", id="none"), pytest.param(("",), "Name one or more", id="empty")],
)
async def test_wrong_input(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2 and a sentence, without asking anybody."""
    result = await who(tmp_path, *arguments)

    assert result.exit_code == 2
    assert said in result.output


CONTAINER: dict[str, Any] = {
    "id": "1",
    "namespace": "shop",
    "pod": "web",
    "container": "main",
    "state": "running",
    "exclusive": False,
    "desired": True,
    "applied": True,
    "watched": False,
    "desired_cpus": "0-1",
    "applied_cpus": "0-1",
}


def lines(*containers: dict[str, Any], **row: Any) -> list[str]:  # noqa: ANN401 (an answer)
    """What is printed of one row."""
    here = {"cpus": "0-1", "numa_node": 0, "kinds": ["shared"], "kept": [], "containers": [*containers], **row}
    return printed(render({"notices": [], "rows": [here]}), 100)


HOW = {
    "comes": ({"applied": False, "applied_cpus": "4"}, "shared, but it is still on CPU 4"),
    "unknown": ({"applied": False, "applied_cpus": ""}, "shared, but criproxy does not know where it is"),
    "goes": ({"desired": False, "desired_cpus": "4-5"}, "still here, but should be on CPUs 4-5"),
    "watched": ({"watched": True}, "not placed"),
    "exclusive": ({"exclusive": True}, "exclusive"),
}


@pytest.mark.parametrize(("change", "said"), HOW.values(), ids=HOW)
def test_how_a_container_may_run_there(change: dict[str, Any], said: str) -> None:
    """Desired and applied are told where they differ."""
    assert lines(CONTAINER | change) == ["CPUs 0-1, NUMA node 0: shared", f"  shop/web/main  running  {said}"]


def test_of_many_the_ones_that_move_come_first() -> None:
    """The others are counted."""
    many = [CONTAINER | {"pod": f"web-{number}"} for number in range(40)]
    many[39] |= {"applied": False}
    shown = lines(*many)

    assert shown[1].startswith("  shop/web-39/main")
    assert shown[-1] == "  … and 16 more containers; --format json lists all"


def test_cpus_of_nobody() -> None:
    """What is kept, what pods may not use, and what nobody uses is told, too."""
    assert lines(kinds=["exclusive"], kept=["shop/db"]) == [
        "CPUs 0-1, NUMA node 0: exclusive, kept for shop/db, whose containers have ended",
        "  no container that criproxy knows may run here",
    ]
    assert lines(kinds=["offline"], numa_node=None) == ["CPUs 0-1: offline"]
    assert lines(kinds=["new-kind"])[0] == "CPUs 0-1, NUMA node 0: new-kind"
