"""``criproxy release``: through the daemon, and without one."""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.cli.operate.release import _of_none
from criproxy.daemon.offline_release import release
from criproxy.model.record import Kind
from criproxy.node.settings import InForce, Loaded, Trial
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import machine
from criproxy.store.history import find
from criproxy.store.store import Store
from lab.kubelet.kubelet import MiniKubelet
from tests.asking import serving
from tests.denied import WITHOUT_PRIVILEGES, closed
from tests.disks import fill, free, small_disk
from tests.node.record.test_disk import QUICK
from tests.node.world import FAST, World, owner, sharer
from tests.sysfs import write_sysfs


def answering(world: World, directory: Path) -> AbstractAsyncContextManager[Any]:
    """The daemon's side of the control socket in *directory*."""
    return serving(directory, {"release": world.controller.policy_switch.command})


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that it said."""
        return self.stdout + self.stderr


async def call(directory: Path, *arguments: str, before: tuple[str, ...] = ()) -> Result:
    """Call the command as a process of its own: without a daemon it sets up its log for all of its process."""
    places = [
        *("--control-socket", str(directory / "control.sock"), "--state-dir", str(directory / "state")),
        *("--host-root", str(directory), "--runtime-endpoint", f"{directory}/runtime.sock"),
    ]
    command = [*before, sys.executable, "-m", "criproxy", "release", *places, *arguments]
    environ = {**os.environ, "COLUMNS": "200"}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ)
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Result(process.returncode, stdout.decode(), stderr.decode())


async def ask(directory: Path, *arguments: str) -> Result:
    """Call the command in a thread of this process, where a daemon answers."""
    places = ("--control-socket", str(directory / "control.sock"), "--state-dir", str(directory / "state"))
    told = await asyncio.to_thread(CliRunner().invoke, main, ["release", *places, *arguments], env={"COLUMNS": "200"})
    return Result(told.exit_code, told.stdout, told.stderr)


async def called(directory: Path, *arguments: str, way: Callable[..., Awaitable[Result]] = call) -> dict[str, Any]:
    """The answer as data, of a call that went well."""
    result = await way(directory, "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


async def gone_on(world: World) -> None:
    """Wait until a start has gone on as the node was left."""
    context = world.controller.context
    await world.poll(lambda: "go on as the node was left" not in {each.get_name() for each in context.tasks._running})
    await context.state.settled()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Criproxy on a machine that can also be discovered."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
    async with World(tmp_path) as running:
        yield running


async def test_the_daemon_lets_everybody_go_and_places_them_again(tmp_path: Path, world: World) -> None:
    """A table with what each had, and a sentence that says how it ends."""
    first, shared = await world.run(owner("first")), await world.run(sharer("shared"))
    async with answering(world, tmp_path):
        result = await ask(tmp_path)

        assert result.exit_code == 0, result.output
        *table, summary = result.stdout.splitlines()
        assert [line.split() for line in table] == [
            ["CONTAINER", "CPUS", "BEFORE", "CPUS", "NOW", "OUTCOME"],
            ["default/first/main", "1", "0-3", "released"],
            ["default/shared/main", "0,2-3", "0-3", "released"],
        ]
        until = "No container is placed until 'criproxy release --undo' or a changed policy file."
        assert summary == f"2 containers released, 0 left. {until}"
        assert (world.cpus(first), world.cpus(shared)) == ("0-3", "0-3")

        answer = await called(tmp_path, "--undo", way=ask)
        assert answer["source"] == "daemon"
        assert [row["outcome"] for row in answer["containers"]] == ["placed", "placed"]
        assert (world.cpus(first), world.cpus(shared)) == ("1", "0,2-3")
        assert (await ask(tmp_path, "--undo")).stdout == "Nothing to undo: the node is not released.\n"


UNTIL = {
    "no-file": (Loaded(), None, "There is no policy file, so no container is placed until there is one."),
    "policy-file": (
        Loaded("/p.yaml", "0"),
        None,
        "The policy file has 'policy: none', so no container is placed until it names another policy.",
    ),
    "try": (
        Loaded("/new.yaml", "1"),
        Trial("/p.yaml", "0", until_s=1_800_000_000.0),
        (
            "/new.yaml, which is being tried until 2027-01-15T08:00:00Z, has 'policy: none', "
            "so no container is placed.\nAfter the try, the release continues until 'criproxy release --undo'. "
            "Run 'criproxy reload' to end the try now."
        ),
    ),
    "kept": (
        Loaded("/new.yaml", "1"),
        Trial("/p.yaml", "0"),
        (
            "/new.yaml, which was kept, has 'policy: none', so no container is placed. "
            "Run 'criproxy reload' to go back to the policy file."
        ),
    ),
}


@pytest.mark.parametrize(("loaded", "trial", "until"), UNTIL.values(), ids=UNTIL)
def test_with_the_policy_none_nothing_is_to_be_undone(loaded: Loaded, trial: Trial | None, until: str) -> None:
    """Containers are placed again only by another policy; the sentence says where it is to come from."""
    assert _of_none(InForce(FAST, loaded=loaded, trial=trial).said()) == until


async def test_the_policy_none(tmp_path: Path) -> None:
    """The daemon says that there is nothing to release."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
    async with World(tmp_path, policy=NonePolicy(Options())) as world, answering(world, tmp_path):
        result = await ask(tmp_path)

    until = "There is no policy file, so no container is placed until there is one."
    assert result.stdout == f"0 containers released, 0 left. {until}\n"


async def test_a_daemon_that_ends_before_it_answers_may_have_ended_the_release(tmp_path: Path, world: World) -> None:
    """What the state says then may be what the call has done: it is not said that there was nothing to do."""
    await world.run(owner("first"))
    await world.controller.policy_switch.release("somebody asked")

    async def killed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await world.controller.policy_switch.undo()
        await world.stop_criproxy()
        writer.close()

    async with await asyncio.start_unix_server(killed, tmp_path / "control.sock"):
        result = await call(tmp_path, "--undo")

    ended = "The node is not released: the daemon exited before it answered, and may have ended the release."
    assert (result.exit_code, result.stdout) == (0, f"{ended} Containers are placed when criproxy starts.\n")


async def test_what_is_left_is_said(tmp_path: Path, world: World) -> None:
    """With the runtime away, the exit status is 1."""
    await world.run(owner("first"))
    await world.runtime.stop()
    async with answering(world, tmp_path):
        result = await ask(tmp_path)

    assert result.exit_code == 1
    assert "  left: " in result.stdout
    assert f"no runtime listens on {tmp_path}" in result.stdout
    assert "0 containers released, 1 left." in result.stdout
    assert "The daemon keeps trying to release the others." in result.stdout


async def test_what_an_undo_leaves_is_to_be_placed(tmp_path: Path, world: World) -> None:
    """The daemon goes on with the end of the release, not with the release."""
    await world.run(owner("first"))
    async with answering(world, tmp_path):
        await called(tmp_path, way=ask)
        await world.runtime.stop()
        result = await ask(tmp_path, "--undo")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "The release has ended: 0 containers placed again, 1 left.",
        "The daemon keeps trying to place the others.",
    ]


async def test_where_neither_store_nor_runtime_knows_who_runs_nobody_is_said_to_be_free(tmp_path: Path) -> None:
    """The state is new, and the runtime's socket another one: exit status 1, and what would help."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))

    result = await call(tmp_path)

    assert result.exit_code == 1
    assert "There may be others: the runtime could not be asked which containers are running: " in result.stdout
    assert f"{tmp_path}/runtime.sock" in result.stdout
    assert "--runtime-endpoint" in result.stdout


async def test_without_a_daemon(tmp_path: Path, world: World) -> None:
    """The same from here; what came while it was away is let go, too, and the next daemon places nobody."""
    first = await world.run(owner("first"))
    await world.stop_criproxy()
    late = (await MiniKubelet(world.direct).run_pod(sharer("late")))[1]["main"]

    answer = await called(tmp_path)

    assert answer["source"] == "store"
    assert [(row["container"], row["outcome"], row["cpus_before"]) for row in answer["containers"]] == [
        ("default/first/main", "released", "1"),
        ("default/late/main", "released", "0-3"),
    ]
    with closing(Store(tmp_path / "state")) as store:
        stories = [await store.read(find, key) for key in (first, late)]
    released = [each.sentences[0] for each in stories[0] if each.kind is Kind.RELEASED]
    assert released == ["CPUs 1 → 0-3, because the node was released; read back"]
    assert not [each.sentences[0] for each in stories[1] if "→ 0,2-3" in each.sentences[0]], "it was narrowed first"
    await world.start_criproxy()
    second = await world.run(owner("second"))
    assert {world.cpus(key) for key in (first, late, second)} == {"0-3"}

    await world.stop_criproxy()
    result = await call(tmp_path, "--undo")

    assert result.stdout == "The release has ended: containers are placed when criproxy starts.\n"
    await world.start_criproxy()
    async with asyncio.timeout(60):
        while world.cpus(first) != "1":
            await world.controller.context.state.changed()


@pytest.mark.parametrize(("configuration", "goes_on"), [("before", True), ("another", False)])
async def test_released_again_without_a_daemon(tmp_path: Path, world: World, configuration: str, goes_on: bool) -> None:
    """That an earlier release was undone does not end this one at the next start; another policy file does."""
    await world.stop_criproxy()
    world.use(configuration="before")
    await world.start_criproxy()
    await world.run(owner("first"))
    assert world.controller.node.configuration == "before"
    await world.stop_criproxy()

    for undo in (False, True, False):
        address, log = f"unix://{tmp_path}/runtime.sock", structlog.get_logger("test")
        await release(tmp_path / "state", address, tmp_path, log, undo=undo)
    world.use(configuration=configuration)
    await world.start_criproxy()

    await gone_on(world)
    assert bool(world.controller.node.released) is goes_on


async def test_what_a_full_disk_does_not_take(tmp_path: Path) -> None:
    """The daemon says what a restart makes of a release and of its end."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
    with small_disk(tmp_path / "state") as disk:
        async with World(tmp_path, settings=QUICK) as world, answering(world, tmp_path):
            await world.run(owner("first"))
            await world.run(sharer("shared"))
            await called(tmp_path, way=ask)
            fill(disk)
            undone, released = await ask(tmp_path, "--undo"), await ask(tmp_path)

    assert (undone.exit_code, released.exit_code) == (1, 1)
    assert [line.split(maxsplit=3)[1:] for line in undone.stdout.splitlines()[1:3]] == [
        ["0-3", "0-3", "shares: the policy was not asked where to place it, and is asked as soon as it can be"]
    ] * 2
    assert (
        "The release has ended: 0 containers placed again, 2 sharing CPUs without having been placed, 0 left."
        in undone.stdout
    )
    end = "The end of the release could not be stored, and until it is, a restart may bring the release back: "
    assert end in undone.stdout
    assert "The release could not be stored" not in undone.stdout
    ends = "The release could not be stored, and ends with the next restart unless the disk works again before: "
    assert ends in released.stdout


async def test_a_release_goes_on_where_a_full_disk_does_not_take_its_end(tmp_path: Path) -> None:
    """Without a daemon that is an error, and the next one places nobody."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
    with small_disk(tmp_path / "state") as disk:
        async with World(tmp_path) as world:
            await world.controller.policy_switch.release("somebody asked")
            await world.stop_criproxy()
            with closing(sqlite3.connect(disk / "criproxy.db")) as reader:  # as after a kill: its log is there
                reader.execute("PRAGMA user_version").fetchall()
                fill(disk)
                result = await call(tmp_path, "--undo")
            free(disk)
            await world.start_criproxy()
            await gone_on(world)

            assert world.controller.node.released
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the release stays in effect, since its end could not be stored: the state database " in result.stderr


async def test_a_disk_so_full_that_the_state_cannot_be_opened_keeps_nobody_pinned(tmp_path: Path) -> None:
    """Everybody that the runtime knows is let go, and the answer says that the next start places them again."""
    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))
    with small_disk(tmp_path / "state") as disk:
        async with World(tmp_path) as world:
            first, shared = await world.run(owner("first")), await world.run(sharer("shared"))
            await world.stop_criproxy()
            fill(disk)
            result, undone = await call(tmp_path), await call(tmp_path, "--undo")

            assert (world.cpus(first), world.cpus(shared)) == ("0-3", "0-3")
            free(disk)
            await world.start_criproxy()
            await world.until(lambda: world.cpus(first) == "1")

    assert result.exit_code == 1
    assert "2 containers released, 0 left. The next start of criproxy places containers again." in result.stdout
    unopened = f"the state database {disk}/criproxy.db cannot be used: "
    assert f"The release could not be stored, and ends with the next restart: {unopened}" in result.stdout
    assert (undone.exit_code, undone.stdout) == (1, "")
    assert unopened in undone.stderr


async def test_without_daemon_and_runtime(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is left, and that is let go when both are back."""
    monkeypatch.setattr("criproxy.node.configuration.policy_switch.DISCOVER_S", 0.5)
    first = await world.run(owner("first"))
    await world.stop_criproxy()
    await world.runtime.stop()

    result = await call(tmp_path)

    assert result.exit_code == 1
    assert "default/first/main" in result.stdout
    assert "The others stay pinned until you run this command again" in result.stdout
    await world.runtime.start()
    await world.start_criproxy()
    await world.until(lambda: not world.controller.node.grants)
    assert world.cpus(first) == "0-3"


async def test_a_daemon_that_hangs_keeps_its_state(tmp_path: Path, world: World) -> None:
    """Nobody takes the state directory from a process that has it."""
    result = await call(tmp_path)

    assert result.exit_code == 1
    assert "no criproxy daemon listens on" in result.stderr
    assert "and without a daemon: the state directory" in result.stderr
    assert "is in use by another criproxy" in result.stderr


async def test_who_may_not_ask_the_daemon_does_not_go_on_without_it(tmp_path: Path) -> None:
    """That needs root as well: nothing is released, and nothing is said about the state or the runtime."""
    path = closed(tmp_path / "run") / "control.sock"

    result = await call(tmp_path, "--control-socket", str(path), before=WITHOUT_PRIVILEGES)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {path}: permission denied; this command needs root\n"


async def test_an_address_that_is_none(tmp_path: Path) -> None:
    """Wrong use, with what would be right."""
    result = await call(tmp_path, "--runtime-endpoint", "containerd")

    assert result.exit_code == 2
    assert "--runtime-endpoint: 'containerd' is not a Unix socket; use unix:///PATH" in result.stderr


async def test_a_directory_in_which_criproxy_has_not_run_is_not_made(tmp_path: Path, world: World) -> None:
    """Everybody is let go all the same, since the state may be lost; that it is not remembered is said, exit status 1.

    A mistyped directory is one that the daemon never reads.
    """
    first = await world.run(owner("first"))
    await world.stop_criproxy()

    result = await call(tmp_path, "--state-dir", str(tmp_path / "mistyped"))

    assert result.exit_code == 1
    assert world.cpus(first) == "0-3"
    assert "1 container released, 0 left. The next start of criproxy places containers again." in result.stdout
    unknown = (
        f"there is no state database {tmp_path}/mistyped/criproxy.db: criproxy has not run with this state directory"
    )
    assert f"The release could not be stored, and ends with the next restart: {unknown}; " in result.stdout
    assert "name the daemon's with --state-dir" in result.stdout
    assert not (tmp_path / "mistyped").exists()


async def test_without_a_daemon_what_the_controls_service_has_stays_and_is_told(tmp_path: Path, world: World) -> None:
    """With what puts it back; the mark is there while the service may have something."""
    await world.stop_criproxy()
    world.controller.controls.mark.touch()

    assert "'criproxy controls --put-back'" in (await called(tmp_path))["not_put_back"]
    assert "What classes have set outside of CRI stays: no criproxy runs" in (await call(tmp_path)).stdout
    assert (await called(tmp_path, "--undo"))["not_put_back"] == ""


async def test_nothing_is_undone_where_criproxy_has_not_run(tmp_path: Path, world: World) -> None:
    """It is an error to look in a wrong place, not the answer that nothing is released."""
    await world.stop_criproxy()

    result = await call(tmp_path, "--undo", "--state-dir", str(tmp_path / "mistyped"))

    assert result.exit_code == 1
    assert "criproxy has not run with this state directory" in result.stderr
    assert not (tmp_path / "mistyped").exists()


async def test_state_that_is_lost_is_made_anew_in_the_usual_place(tmp_path: Path, world: World) -> None:
    """The default directory is the daemon's: there the release is remembered."""
    await world.run(owner("first"))
    await world.stop_criproxy()
    rmtree(tmp_path / "state")

    address, log = f"unix://{tmp_path}/runtime.sock", structlog.get_logger("test")
    answer = await release(tmp_path / "state", address, tmp_path, log, may_create=True)

    assert answer["not_remembered"] == ""
    for configuration, goes_on in (("unknown then", True), ("another", False)):
        world.use(configuration=configuration)
        await world.start_criproxy()
        await gone_on(world)
        assert bool(world.controller.node.released) is goes_on
        assert world.controller.node.configuration == configuration
        await world.stop_criproxy()
