"""``criproxy events``: asked of the daemon, read from what it left, and followed."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.cli.queries.events import line
from criproxy.cri.runtime import RuntimeCallError
from criproxy.simulate.hosts import machine
from tests.asking import LIMIT_S, NAMED, answering, daemon, places, run
from tests.cli.test_hostile_text import is_harmless
from tests.node.world import World, owner, sharer
from tests.sysfs import write_sysfs


async def events(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await run(directory, "events", *arguments)


async def test_what_happened_is_told_a_line_each(tmp_path: Path) -> None:
    """The newest last, of all containers and refusals; the store tells the same, and why it was asked."""
    async with daemon(tmp_path) as world:
        web = await world.run(sharer("web"))
        await world.run(owner("trader", 2))
        await world.until(lambda: world.controller.node.applied[web].cpus == frozenset({0, 3}))
        with pytest.raises(RuntimeCallError):
            await world.run(owner("greedy", 4))

        by_daemon = await events(tmp_path, "--since", "10m")
        await world.stop_criproxy()
        (tmp_path / "control.sock").rename(tmp_path / "elsewhere")
        by_store = await events(tmp_path)
        await world.start_criproxy()

    assert by_daemon.exit_code == by_store.exit_code == 0
    said = [each.split(maxsplit=2)[1:] for each in by_daemon.stdout.splitlines()]
    told = {(kind, text.partition(":")[0]) for kind, text in said}
    assert {
        ("granted", "default/web/main"),
        ("started", "default/trader/main"),
        ("updated", "default/web/main"),
    } <= told
    assert said[-1][0] == "refused"
    assert said[-1][1].startswith("default/greedy/main: container default/greedy/main asks for 4")
    assert "considered" not in by_daemon.stdout
    assert by_store.stdout == by_daemon.stdout
    assert by_store.stderr.startswith("WRONG: the file of the socket ")


async def test_events_of_one_namespace(tmp_path: Path) -> None:
    """The daemon and the store leave out those of all others."""
    async with daemon(tmp_path) as world:
        trader = await world.run(owner("trader", 1))
        mine = await events(tmp_path, "-n", "default", "--format", "json")
        other = await events(tmp_path, "-n", "shop")
        none = await events(tmp_path, "--since", "0ms", "--format", "json")
        await world.stop_criproxy()
        (tmp_path / "control.sock").rename(tmp_path / "elsewhere")
        stored = await events(tmp_path, "-n", "default", "--format", "json")
        await world.start_criproxy()

    values = [json.loads(each) for each in mine.stdout.splitlines()]
    assert [each["kind"] for each in values] == ["granted", "created", "started"]
    assert values == sorted(values, key=lambda each: each["time"])
    assert ({each["container"] for each in values}, values[-1]["id"]) == ({"default/trader/main"}, trader)
    assert (other.exit_code, other.stdout) == (0, "No events in namespace shop in the last 1 h.\n")
    assert (none.exit_code, none.output) == (0, "")
    assert stored.stdout == mine.stdout


async def test_follow_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    """Each event is told once, also those that come while no daemon answers and the store is read."""
    write_sysfs(tmp_path / "host", machine(nodes=1, cores=4, threads=1))
    arguments = ["events", "--follow", "--format", "json", *places(tmp_path)]
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        await world.run(sharer("first"))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", *arguments), stdout=pipe, stderr=pipe
        )
        assert process.stdout
        assert process.stderr

        async def until(pod: str) -> None:
            assert process.stdout
            while (f"default/{pod}/main", "started") not in seen:
                event = json.loads(await process.stdout.readline())
                seen.append((event["container"], event["kind"]))

        await until("first")
        async with answering(world, tmp_path):
            await world.run(sharer("second"))
            await until("second")
        await world.run(sharer("third"))
        await until("third")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        said = (await process.stderr.read()).decode()

    assert len(seen) == len(set(seen))
    assert "no criproxy daemon listens on" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("since", ["", "soon", "-5m", "10", "1e9s", "\x1b[2J", "9999999999h"])
async def test_wrong_input(tmp_path: Path, since: str) -> None:
    """What is no duration is said, as text."""
    result = await events(tmp_path, "--since", since)

    assert result.exit_code == 2
    assert "must be a duration such as" in result.output
    assert is_harmless(result.output)


async def test_nobody_can_be_asked(tmp_path: Path) -> None:
    """Neither a daemon nor a state: that is the only line."""
    result = await events(tmp_path)

    assert result.exit_code == 1
    assert "no criproxy daemon listens" in result.output
    assert "criproxy has not run with this state directory" in result.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({}, "T  updated    shop/web/main: one; two", id="of-a-container"),
        pytest.param({"sentences": ["shop/web/main gets 2"]}, "T  updated    shop/web/main: gets 2", id="named-twice"),
        pytest.param({"container": "", "kind": "node"}, "T  node       one; two", id="of-the-node"),
        pytest.param({"sentences": ["a\nWRONG: b"]}, "T  updated    shop/web/main: a\\nWRONG: b", id="hostile"),
    ],
)
def test_one_line(change: dict[str, Any], said: str) -> None:
    """Time, kind, container, and all sentences."""
    event = {"time": "T", "kind": "updated", "container": "shop/web/main", "sentences": ["one", "two"]}
    assert line(event | change) == said
