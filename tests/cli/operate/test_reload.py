"""``criproxy reload`` and ``criproxy history`` with a daemon as a process of its own, which is killed in between."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from criproxy.cli.operate.reload import _sentence
from criproxy.cri.runtime import RuntimeClient
from criproxy.model.cpuset import format_cpuset
from criproxy.store.configurations import InForceOnce, add, read_tried, write_tried
from lab.emulator.runtime import EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.asking import criproxy, invoke
from tests.cli.test_hostile_text import is_harmless
from tests.daemons import LIMIT_S, Serve, node_files
from tests.denied import WITHOUT_PRIVILEGES, closed
from tests.node.world import owner, sharer

STATIC = 'policy: static\nreservedCpus: "0"\n'
MOVES = 'policy: static\nreservedCpus: "0-1"\napply: all\n'


class Scene:
    """A node of four CPUs, on which an owner has CPU 1."""

    def __init__(self, directory: Path, runtime: EmbeddedRuntime) -> None:
        self.directory, self.runtime = directory, runtime
        self.file, self.new = directory / "policy.yaml", directory / "new.yaml"
        self.file.write_text(STATIC)
        self.new.write_text(MOVES)
        self.first = self.web = ""
        node_files(directory)

    def serve(self) -> Serve:
        """The daemon on what the last one has left."""
        return Serve(self.directory, "--config", str(self.file), "--host-root", str(self.directory))

    async def populate(self, serve: Serve) -> None:
        """Run two containers."""
        client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)
        kubelet = MiniKubelet(client)
        self.first = (await kubelet.run_pod(owner("first")))[1]["main"]
        self.web = (await kubelet.run_pod(sharer("web")))[1]["main"]
        await client.close()
        await self.at("1")

    async def at(self, cpus: str) -> None:
        """Wait until the owner runs there."""
        async with asyncio.timeout(LIMIT_S):
            while not self._is_at(cpus):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)

    def _is_at(self, cpus: str) -> bool:
        cpuset = self.runtime.cpuset(self.first)
        return cpuset is not None and format_cpuset(cpuset.cpus) == cpus

    async def command(self, *arguments: str) -> Result:
        """Run a command."""
        place = ("--control-socket", str(self.directory / "run/control.sock"))
        if arguments[0] == "history":
            place = ("--state-dir", str(self.directory / "state"))
        return await invoke(*arguments, *place)

    async def listed(self, count: int) -> Result:
        """Wait until `criproxy history config` lists so many configurations; they are written after the answer."""
        async with asyncio.timeout(LIMIT_S):
            while len((found := await self.command("history", "config")).output.splitlines()) <= count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found

    async def status(self) -> dict[str, Any]:
        """What `criproxy status` says of the configuration."""
        values = json.loads((await self.command("status", "--format", "json")).output)
        return dict(values["configuration"])


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Scene]:
    """A runtime, and the files of a node."""
    options = RuntimeOptions(cpus="0-3", mems="0", host_root=directory)
    async with EmbeddedRuntime(directory / "runtime.sock", options) as runtime:
        yield Scene(directory, runtime)


async def test_a_dry_run_and_a_try_over_a_crash(tmp_path: Path) -> None:
    """What is shown first happens then; a killed daemon goes on with the try, and the policy file was never touched."""
    async with running(tmp_path) as scene:
        async with scene.serve() as serve:
            await scene.populate(serve)
            shown = await scene.command("reload", "--dry-run", str(scene.new))
            values = json.loads((await scene.command("reload", "--dry-run", str(scene.new), "--format", "json")).output)
            assert (await scene.status())["try"] is None
            tried = await scene.command("reload", "--try", "10m", str(scene.new))
            await scene.at("2")
            checked, status = await scene.command("status", "--check"), await scene.command("status")
        async with scene.serve():
            assert (await scene.status())["try"]["back"]["file"] == str(scene.file)
            await scene.at("2")
            ended = await scene.command("reload")
            await scene.at("1")
            listed = await scene.listed(3)
            second = await scene.command("history", "config", "2")

    assert (shown.exit_code, tried.exit_code, checked.exit_code, ended.exit_code) == (0, 0, 0, 0), tried.output
    assert "would come into effect: 2 containers would move, and 0 containers would have no place." in shown.output
    assert "default/first/main: CPUs 1 → 2" in shown.output
    assert {each["pod"] for each in values["moved"]} == {"first", "web"}
    assert tried.output.startswith(f"Being tried: {scene.new}, hash {values['hash']}, policy static, until 20")
    assert "Note: " in checked.output
    assert "BEING TRIED: the former configuration comes back in 9 min" in status.output
    assert ended.output.startswith(f"In effect: {scene.file}, hash ")
    assert [line.split()[0] for line in listed.output.splitlines()] == ["NUMBER", "1", "2", "3"]
    assert second.output == MOVES
    assert scene.file.read_text() == STATIC


async def test_it_goes_back_while_the_daemon_is_dead(tmp_path: Path) -> None:
    """The next start ends a try whose time is over."""
    async with running(tmp_path) as scene:
        async with scene.serve() as serve:
            await scene.populate(serve)
            assert (await scene.command("reload", "--try", "10m", str(scene.new))).exit_code == 0
            await scene.at("2")
        tried = read_tried(tmp_path / "state")
        assert tried is not None
        write_tried(tmp_path / "state", replace(tried, until_s=time.time()))  # as if ten minutes had passed
        await scene.at("2")
        async with scene.serve():
            await scene.at("1")
            late = await scene.command("reload", "--keep")
            assert (await scene.status())["try"] is None

    assert (late.exit_code, late.output) == (1, "Error: no configuration is being tried\n")


async def test_keep(tmp_path: Path) -> None:
    """It stays, `status --check` asks for the policy file to be written, and that ends it."""
    async with running(tmp_path) as scene, scene.serve() as serve:
        await scene.populate(serve)
        await scene.command("reload", "--try", "10m", str(scene.new))
        kept = await scene.command("reload", "--keep")
        checked, status = await scene.command("status", "--check"), await scene.status()
        await scene.at("2")
        scene.new.rename(scene.file)
        again = await scene.command("reload")
        well = await scene.command("status", "--check")

    assert (kept.exit_code, checked.exit_code, again.exit_code, well.exit_code) == (0, 1, 0, 0)
    assert kept.output.startswith("Kept: ")
    assert "but the content of the policy file is different" in checked.output
    assert (status["kept"], status["try"]) == (True, None)


async def test_who_would_have_no_place(tmp_path: Path) -> None:
    """Exit status 1, and the policy's sentence; a file that is wrong is told with all its mistakes."""
    async with running(tmp_path) as scene, scene.serve() as serve:
        await scene.populate(serve)
        results = []
        for text in ('policy: static\nreservedCpus: "0-2"\n', "policy: statik\n", f"# the same\n{STATIC}"):
            scene.new.write_text(text)
            results.append(await scene.command("reload", "--dry-run", str(scene.new)))
        client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)
        await MiniKubelet(client).run_pod(owner("second"))
        await client.close()
        scene.new.write_text('policy: static\nreservedCpus: "0-2"\n')
        refused = await scene.command("reload", "--dry-run", str(scene.new))

    assert [result.exit_code for result in (*results, refused)] == [0, 1, 0, 1]
    assert "0 containers would move" in results[0].output
    assert f"{scene.new}:1:9: policy: unknown policy 'statik'" in results[1].output
    assert "is equivalent to the configuration in effect" in results[2].output
    assert "would be refused when they are created again" in refused.output
    assert "default/second/main: container default/second/main asks for 1" in refused.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--dry-run",), "--dry-run needs a FILE", id="no-file"),
        pytest.param(("--try", "10m"), "--try needs a FILE", id="no-file-to-try"),
        pytest.param(("--keep", "/x"), "FILE is for --dry-run and --try", id="keep-a-file"),
        pytest.param(("/x",), "'criproxy reload --dry-run FILE' shows", id="only-a-file"),
        pytest.param(("/x",), "'criproxy reload --try 10m FILE' brings", id="only-a-file-to-try"),
        pytest.param(("--dry-run", "--keep"), "--dry-run and --keep cannot be used together", id="two"),
        pytest.param(("--try", "soon", "/x"), "soon", id="no-time"),
        pytest.param(("--try", "10", "/x"), "'10' must be a duration such as 30s, 10m or 168h: a", id="no-unit"),
        pytest.param(("--try", "10m", ""), "must not be empty", id="empty"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2 and a sentence."""
    result = criproxy("reload", *arguments)

    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The command says so without asking the daemon."""
    open_to_all = tmp_path / "open.yaml"
    open_to_all.write_text(STATIC)
    open_to_all.chmod(0o666)
    for file, said in (
        (tmp_path / "none.yaml", "there is no such file"),
        (open_to_all, "can be written by every user"),
    ):
        result = criproxy("reload", "--dry-run", file)
        assert (result.exit_code, said in result.output) == (1, True), result.output


async def test_an_interrupted_try_may_have_begun(tmp_path: Path) -> None:
    """Whoever presses Ctrl-C before the daemon has answered reads that, and what to do about it."""
    asked, new, path = asyncio.Event(), tmp_path / "new.yaml", tmp_path / "control.sock"
    new.write_text(MOVES)
    new.chmod(0o600)

    async def daemon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await reader.read()  # it answers when nobody listens any more
        writer.close()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_unix_server(daemon, path):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", "reload", "--try", "10m", str(new), "--control-socket", str(path)),
            stderr=asyncio.subprocess.PIPE,
        )
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()

    assert process.returncode == 1
    text = "Error: interrupted: the try may have begun; 'criproxy status' shows it, and 'criproxy reload' ends it\n"
    assert said.decode() == text


def test_a_number_that_is_none() -> None:
    """It is called what people call it."""
    result = criproxy("history", "config", "x")

    assert (result.exit_code, "'x' is not a valid whole number" in result.output) == (2, True), result.output


def test_history_needs_root(tmp_path: Path) -> None:
    """A user who may not look into the state directory hears that."""
    state = closed(tmp_path / "state")
    command = [*WITHOUT_PRIVILEGES, sys.executable, "-m", "criproxy", "history", "config", "--state-dir", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {state}/configurations cannot be read: Permission denied; this needs root\n"


def test_history_of_a_node_without_one(tmp_path: Path) -> None:
    """It says so; a number that is not there is an error."""
    (tmp_path / "criproxy.db").touch()
    none = criproxy("history", "config", "--state-dir", tmp_path)
    wrong = criproxy("history", "config", "3", "--state-dir", tmp_path)

    assert (none.exit_code, wrong.exit_code) == (0, 1)
    assert "No configuration was in effect yet" in none.output
    assert "no configuration has the number 3: there is none" in wrong.output
    assert is_harmless(none.output)


def test_history_of_a_directory_without_state(tmp_path: Path) -> None:
    """Where criproxy has never run, nothing is known: that is no history without configurations."""
    for directory, said in ((tmp_path, "has no state: criproxy has not run with"), (tmp_path / "typo", "no directory")):
        result = criproxy("history", "config", "--state-dir", directory)
        assert (result.exit_code, said in result.output) == (1, True), result.output


def test_history_as_json(tmp_path: Path) -> None:
    """The time is one for people, too; one alone has its text."""
    once = InForceOnce(text=STATIC, source="/p.yaml", hash="a0", policy="static", at_s=1.5, how="file")
    add(tmp_path, once)
    command = ["history", "config", "--format", "json", "--state-dir", str(tmp_path)]
    (listed,) = json.loads(criproxy(*command).output)["configurations"]
    alone = json.loads(criproxy(*command, "1").output)

    assert (listed["since"], listed["at_s"]) == ("1970-01-01T00:00:01.500Z", 1.5)
    assert alone == {**listed, "text": STATIC}


EFFECTS = {
    "nothing": (0, 0, ""),
    "one-moves": (1, 0, "; 1 container moves"),
    "two-move": (2, 0, "; 2 containers move"),
    "no-place": (2, 1, "; 2 containers move; 1 container has no place and shares CPUs, see 'criproxy status --check'"),
}


@pytest.mark.parametrize(("moved", "no_place", "said"), EFFECTS.values(), ids=EFFECTS)
def test_what_a_try_does_is_said(moved: int, no_place: int, said: str) -> None:
    """Also that containers lose their exclusive CPUs."""
    known = {"file": "/n.yaml", "hash": "a0", "policy": "static", "until": "2026-11-24T14:00:03.000Z", "kept": False}

    sentence = _sentence({**known, "moved": moved, "no_place": no_place})

    assert sentence.startswith(
        f"Being tried: /n.yaml, hash a0, policy static, until 2026-11-24T14:00:03Z{said}. 'criproxy reload --keep'"
    )


@pytest.mark.parametrize(
    ("policy_file", "said"),
    [
        pytest.param({"policy_file": "different"}, "The content of the policy file is different: write", id="other"),
        pytest.param({}, "The content of the policy file is different: write", id="an-earlier-version"),
        pytest.param({"policy_file": "invalid"}, "The policy file cannot be used: write", id="invalid"),
        pytest.param({"policy_file": "missing"}, "There is no policy file: write", id="missing"),
    ],
)
def test_what_to_do_about_the_policy_file_is_said_when_a_try_is_kept(policy_file: dict[str, str], said: str) -> None:
    """It depends on what the policy file is."""
    known = {"file": "/n.yaml", "hash": "a0", "policy": "static", "until": None, "kept": True}

    assert _sentence({**known, **policy_file}).startswith(f"Kept: /n.yaml, hash a0, policy static. {said}")


def test_a_node_policy_that_is_kept_needs_no_file() -> None:
    """The cluster has it: nobody is told to write it to the policy file."""
    known = {"file": "NodePolicy/all", "hash": "a0", "policy": "static", "until": None, "kept": True}

    assert _sentence({**known, "policy_file": "different"}) == "Kept: NodePolicy/all, hash a0, policy static."
