"""``criproxy status``: asked of the daemon or read from its state, on any terminal, once, watched, or as a check."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from click.testing import Result

from criproxy.api.views.situation import Situation
from criproxy.api.views.status import rows, summary
from criproxy.cli.queries import status
from criproxy.cli.queries.status import render
from criproxy.cli.render.console import UNLIMITED
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.text.notices import Notice, Refusal, Trouble
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreated, ContainerCreating, ContainerStarted, PodCreated, UpdateApplied
from criproxy.simulate.hosts import machine
from criproxy.wire.sockets import listen
from tests import asking
from tests.asking import LIMIT_S, NAMED, answering, criproxy, daemon, places, printed
from tests.node.world import STATIC, World, owner, sharer


@cache
def node_with(count: int) -> Node:
    """A node with *count* pods of one container, with names as they are in clusters."""
    node = Node(machine(nodes=2, cores=32))
    for number in range(count):
        own = number % 20 == 0
        new = Container(
            key=f"r-{number}",
            pod=f"s{number}",
            name="node-exporter",
            pod_name=f"node-exporter-5d78c9869d-{number:05d}",
            namespace="observability",
            qos=QosClass.GUARANTEED if own else QosClass.BURSTABLE,
            cpu_milli=1000 if own else 250,
            cpu_limit_milli=1000,
        )
        key = f"{number:064x}"
        pod = Pod(key=new.pod, name=new.pod_name, namespace=new.namespace)
        for event in (PodCreated(pod), ContainerCreating(new), ContainerCreated(new.key, key), ContainerStarted(key)):
            node = step(node, event, STATIC).node
    for key, grant in node.grants.items():
        node = step(node, UpdateApplied(key, Applied(grant.cpus, grant.mems)), STATIC).node
    return node


def answer(situation: Situation) -> dict[str, Any]:
    """What a daemon would say of *situation*."""
    head = {"source": "daemon", "version": "1.0", "pid": 7}
    times = {"time": "2026-11-20T09:27:36.123Z", "started": "2026-11-20T06:15:36.123Z"}
    return {**head, **times, **summary(situation), "containers": list(rows(situation)), "omitted": 0}


def lines(values: dict[str, Any], width: int, height: int | None = None, *, every: bool = False) -> list[str]:
    """What a terminal of that size shows, line by line."""
    return printed(render(values, width, height, every_refusal=every), width)


async def run(directory: Path, *arguments: str) -> Result:
    """Run the command."""
    return await asking.run(directory, "status", *arguments)


@pytest.mark.parametrize("width", [80, 119, 120, 160])
def test_two_hundred_containers_fit_the_terminal(width: int) -> None:
    """No line is too long, nobody is missing, no name is broken, and who owns CPUs is said with them."""
    shown = lines(answer(Situation(node=node_with(200), policy="static")), width)

    assert max(map(len, shown)) <= width
    whole = "observability/node-exporter-5d78c9869d-{:05d}"
    assert all(any(whole.format(number) in line for line in shown) for number in range(200))
    assert sum(" exclusive " in line and line.endswith("running") for line in shown) == 10
    assert "200 pods, 200 containers: 10 with exclusive CPUs, 190 sharing" in shown


def test_a_terminal_that_has_room_for_the_whole_table_shows_it() -> None:
    """How wide it has to be depends on the names."""
    values = answer(Situation(node=node_with(3)))
    values["containers"] = [{**row, "pod": "web"} for row in values["containers"]]
    needed = max(map(len, lines(values, 160)[-4:]))
    assert needed < 119

    for width, expected in ((needed, True), (needed - 1, False)):
        shown = lines(values, width)
        assert any(line.split()[:2] == ["CONTAINER", "ID"] for line in shown) is expected
        assert max(map(len, shown)) <= width


def test_a_file_gets_a_line_for_each_container() -> None:
    """Where nobody's screen ends, ids and whole sets are in the line, for grep."""
    node = node_with(3)
    shown = [line for line in lines(answer(Situation(node=node)), 1 << 16) if "node-exporter" in line]

    assert len(shown) == 3
    assert "0" * 12 in shown[0]
    assert "0-63,65-127 shared" in shown[1]


def test_free_cpus_may_be_unknown() -> None:
    """Where it is unknown which CPUs are reserved, none is called free, and the number of free ones is not told."""
    values = answer(Situation(node=node_with(3), knows_reserved=False))
    shown = lines(values, 160)

    assert (values["cpus"]["reserved"], values["cpus"]["free"]) == (None, None)
    assert values["cpu_counts"] == {"exclusive": 1, "capacity": None, "free": None}
    assert "Exclusive CPUs: 1; free: unknown" in shown
    assert [line.split()[4] for line in shown if line.endswith("GiB")] == ["?", "?"]


def test_who_is_in_trouble_stands_out() -> None:
    """What is wrong comes before all tables, in sentences; the container's line says where it still is."""
    node = node_with(3)
    key = f"{1:064x}"
    node = step(node, UpdateApplied(key, Applied(frozenset({5}), frozenset({0}))), STATIC).node
    notice = Notice("store", "the disk is full")
    troubles = {key: Trouble("UpdateContainerResources: UNAVAILABLE: gone", 4)}
    shown = lines(answer(Situation(node=node, troubles=troubles, notices=[notice])), 160)

    assert shown[2] == "WRONG: the disk is full"
    assert shown[3].startswith("WRONG: observability/node-exporter-5d78c9869d-00001/node-exporter: 4 updates failed")
    assert "UNAVAILABLE: gone" in shown[3]
    assert any(line.endswith("running, still on CPU 5, 4 updates failed") for line in shown)
    assert any("1 not in place" in line for line in shown)


def test_who_cannot_be_created_is_told_with_the_reason() -> None:
    """Whoever asks why a pod does not start finds it here, however often the kubelet has tried."""
    now_s = time.time()
    refusals = [Refusal("shop/a/main", "container shop/a/main asks for 4", 12, now_s - 130)]
    refusals += [Refusal(f"shop/b{number}/main", "no room", 1, now_s - 3600) for number in range(6)]
    shown = lines(answer(Situation(node=node_with(1), refusals=refusals)), 160)

    assert shown[2] == "REFUSED 12 times, last 2 min 10 s ago: container shop/a/main asks for 4"
    assert shown[3] == "REFUSED 1 h ago: no room"
    assert shown[7] == "REFUSED: 2 more containers; --refused shows all"


def test_a_namespace_does_not_hide_the_refusals_of_others() -> None:
    """Of the five that are shown, the newest of each namespace come first."""
    newest = [Refusal(f"team/b{number}/main", f"team {number}", 1, time.time() - 60) for number in range(6)]
    older = [Refusal("shop/a/main", "shop asks for 64", 1, time.time() - 120)]
    values = answer(Situation(node=node_with(1), refusals=[*newest, *older]))

    shown = [line.partition("ago: ")[2] for line in lines(values, 160) if line.startswith("REFUSED ")]
    assert shown == ["team 0", "shop asks for 64", "team 1", "team 2", "team 3"]


@pytest.mark.parametrize(
    ("listed", "omitted", "every", "last"),
    [
        pytest.param(6, 40, False, "REFUSED: 41 more containers; --refused shows 1 of them", id="newest"),
        pytest.param(6, 40, True, "REFUSED: 40 more containers; criproxy keeps only a limited", id="all-that-it-has"),
        pytest.param(6, 0, True, "REFUSED 1 h ago: no room", id="all"),
        pytest.param(2, 1, False, "REFUSED: 1 more container; criproxy keeps only a limited", id="nothing-to-show"),
    ],
)
def test_who_was_left_out_is_counted(listed: int, omitted: int, *, every: bool, last: str) -> None:
    """`--refused` promises only what it shows, and JSON has the number."""
    refusals = [Refusal(f"shop/b{number}/main", "no room", 1, time.time() - 3600) for number in range(listed)]
    values = answer(Situation(node=node_with(1), refusals=refusals, refusals_omitted=omitted))
    assert values["refusals_omitted"] == omitted

    shown = lines(values, 160, every=every)
    assert [line for line in shown if line.startswith("REFUSED")][-1].startswith(last)


@pytest.mark.parametrize("width", [80, 160, UNLIMITED])
def test_a_very_long_name_makes_no_other_line_long(width: int) -> None:
    """Its cell has the beginning and the end of each part; JSON has all of it."""
    node = node_with(50)
    long = replace(node.containers[f"{1:064x}"], pod_name=f"web-{'x' * 1500}-7d4b9", name="y" * 1500)
    values = answer(Situation(node=node.replace(containers={**node.containers, long.key: long})))
    text = "\n".join(lines(values, width))

    assert len(text) < 50 * 200 + 5000
    if width == UNLIMITED:
        assert f"/web-{'x' * 38}…{'x' * 14}-7d4b9/{'y' * 42}…{'y' * 20}" in text
    assert max(len(row["pod"]) for row in values["containers"]) > 1500


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 60), (160, 24)])
def test_a_screen_shows_those_in_trouble_first(width: int, height: int) -> None:
    """What does not fit is counted; owners and those in trouble are never left out for others."""
    node = node_with(200)
    node = step(node, UpdateApplied(f"{199:064x}", Applied(frozenset({5}), frozenset({0}))), STATIC).node
    shown = lines(answer(Situation(node=node, policy="static")), width, height)

    assert len(shown) <= height
    assert any("d-00199" in line for line in shown)
    assert shown[-1].startswith("… and ")
    listed = sum(" running" in line for line in shown)
    assert f"… and {200 - listed} more containers" == shown[-1]
    assert listed > 1


async def test_the_daemon_is_asked(tmp_path: Path) -> None:
    """The table has who owns what, JSON everything, filters choose."""
    async with daemon(tmp_path) as world:
        web = await world.run(sharer("web"))
        await world.run(owner("trader", 2))
        await world.until(lambda: world.controller.node.applied[web].cpus == frozenset({0, 3}))

        table = await run(tmp_path)
        values = json.loads((await run(tmp_path, "--format", "json", "--namespace", "default", "--pod", "web")).output)
        none = await run(tmp_path, "-n", "kube-system")

    assert table.exit_code == 0
    assert "policy static" in table.output
    assert "1-2 exclusive" in table.output
    assert [row["id"] for row in values["containers"]] == [web]
    assert "trader" not in none.output
    assert "2 containers: 1 with exclusive CPUs, 1 sharing" in none.output


async def test_without_a_daemon_its_state_is_read(tmp_path: Path) -> None:
    """It is said so, with the reason and the time; nothing is locked, so it works beside the daemon, too."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        await world.run(owner("trader", 2))
        beside = await run(tmp_path)
        await world.stop_criproxy()
        down, checked = await run(tmp_path), await run(tmp_path, "--check")
        await world.start_criproxy()

    assert beside.exit_code == down.exit_code == 0
    has = f"process {os.getpid()} uses the state directory {tmp_path}/state"
    assert f"{has}: it hangs, or listens on another control socket" in beside.output
    for result in (beside, down):
        assert "the daemon does not answer" in result.output
        assert f"no criproxy daemon listens on {tmp_path}/control.sock" in result.output
        assert "1-2 exclusive" in result.output
    assert "listens on another control socket" not in down.output
    assert checked.exit_code == 1
    assert checked.output.startswith("no criproxy daemon listens on")


async def test_a_daemon_whose_control_socket_was_removed(tmp_path: Path) -> None:
    """It is no daemon that has to be started: it is named, with what it does about its socket."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED):
        listener = listen(str(tmp_path / "control.sock"), 0o600)
        (tmp_path / "control.sock").unlink()
        checked = await run(tmp_path, "--check")
        listener.close()

    assert checked.exit_code == 1
    assert checked.output.startswith(
        f"the file of the socket {tmp_path}/control.sock is gone, although a process listens there: criproxy makes it "
        f"again within 5 s; if it is still gone then, restart criproxy; process {os.getpid()} uses the state "
        f"directory {tmp_path}/state. The rest was stored in "
    )


async def test_a_state_of_another_version(tmp_path: Path) -> None:
    """Neither the daemon nor its state can be asked: both reasons are told."""
    (tmp_path / "state").mkdir()
    connection = sqlite3.connect(tmp_path / "state/criproxy.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    result = await run(tmp_path)

    assert result.exit_code == 1
    assert "no criproxy daemon listens on" in result.output
    assert "is of version 999, and this criproxy reads version" in result.output


async def test_the_check(tmp_path: Path) -> None:
    """All is well; then something is wrong, in a sentence and in the exit status; some notices are always printed."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        await world.run(owner("trader", 1))
        async with answering(world, tmp_path):
            well = await run(tmp_path, "--check")
        async with answering(world, tmp_path, [Notice("bypass", "bypass is on")]):
            wrong, values = await run(tmp_path, "--check"), await run(tmp_path, "--check", "--format", "json")
        for kind in ("try", "withheld"):  # the configuration goes back soon, or nobody can get exclusive CPUs
            async with answering(world, tmp_path, [Notice(kind, "the text of the notice", wrong=False)]):
                noted = await run(tmp_path, "--check")
            assert (noted.exit_code, noted.output) == (0, f"{well.output}Note: the text of the notice\n")

    assert (well.exit_code, well.output) == (
        0,
        "All is well: 1 container, 1 with exclusive CPUs, all where they should be.\n",
    )
    assert (wrong.exit_code, wrong.output) == (1, "bypass is on\n")
    assert values.exit_code == 1
    assert json.loads(values.output)["problems"] == ["bypass is on"]


async def test_the_check_is_bounded(tmp_path: Path) -> None:
    """However many problems there are, some of each kind are printed, and how many more there are."""
    counts = {"a": 200, "b": 200, "c": 21}
    many = [Notice(kind, f"{kind} {number} " + "x" * 2000) for kind in counts for number in range(counts[kind])]
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world, answering(world, tmp_path, many):
        printed, values = await run(tmp_path, "--check"), await run(tmp_path, "--check", "--format", "json")

    assert printed.exit_code == values.exit_code == 1
    assert printed.output.count("a 1 x") == printed.output.count("b 1 x") == 1
    words = " ".join(printed.output.split())
    assert "180 more problems of the kind a" in words
    assert "1 more problem of the kind c" in words
    assert max(len(printed.output), len(json.dumps(json.loads(values.output)["problems"]))) < 200_000


def test_the_check_waits_for_updates_that_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves just now is looked at again; what does not arrive in time is wrong."""
    monkeypatch.setattr(status, "PAUSE_S", 0.001)
    moving: dict[str, Any] = {"problems": [], "under_way": ["web moves"]}
    there: dict[str, Any] = {"problems": [], "under_way": []}
    answers = iter([moving, moving, there])
    assert status.settled(lambda: next(answers)) == there

    monkeypatch.setattr(status, "SETTLE_S", 0.02)
    assert status.settled(lambda: moving) == moving


def test_check_and_watch_exclude_each_other() -> None:
    """Wrong use is told as such."""
    result = criproxy("status", "--check", "--watch")

    assert result.exit_code == 2
    assert "cannot be combined" in result.output


@pytest.mark.parametrize("command", ["status", "devices"])
def test_watch_into_a_pipe_writes_each_look_at_once(tmp_path: Path, command: str) -> None:
    """Whoever reads a pipe or a file sees each answer when it comes, not the last one when all is over."""
    arguments = [sys.executable, "-m", "criproxy", command, "--watch", "--interval", "0.2", *places(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as watching:
        watchdog = Timer(LIMIT_S, watching.kill)
        watchdog.start()
        assert watching.stdout
        seen = 0
        while seen < 2 and (line := watching.stdout.readline()):
            seen += "no criproxy daemon listens" in line
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        watchdog.cancel()
    assert (seen, watching.returncode) == (2, 0)


def test_watch_into_a_pipe_that_is_closed_ends(tmp_path: Path) -> None:
    """`criproxy status --watch | head` comes to an end, without a traceback."""
    arguments = [sys.executable, "-m", "criproxy", "status", "--watch", "--interval", "0.2", *places(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        assert watching.stderr
        watching.stdout.close()
        try:
            assert watching.wait(LIMIT_S) == 1
        finally:
            watching.kill()
        assert watching.stderr.read() == ""


@pytest.mark.parametrize("interval", ["nan", "inf", "-inf", "1e300", "0.1", "soon"])
def test_a_pause_that_nobody_can_wait_is_wrong_use(interval: str) -> None:
    """It is refused before anything is shown."""
    result = criproxy("status", "--watch", "--interval", interval)

    assert result.exit_code == 2
    assert "Invalid value for '--interval'" in result.output


def test_watch_on_a_terminal_ends_with_ctrl_c(tmp_path: Path) -> None:
    """A screen of its own is opened and closed again, and nothing is said of the interruption."""
    main_end, other_end = pty.openpty()
    command = [sys.executable, "-m", "criproxy", "status", "--watch", *places(tmp_path)]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdin=other_end, stdout=other_end, stderr=other_end, env=environ) as process:
        os.close(other_end)
        said = b""
        while b"trying again" not in said:
            said += os.read(main_end, 4096)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # when the command has ended, and all of it is read
            while more := os.read(main_end, 4096):
                said += more
        assert process.wait(LIMIT_S) == 0
    os.close(main_end)

    assert b"\x1b[?1049h" in said
    assert said.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in said
    assert b"Traceback" not in said
    assert b"Aborted" not in said
