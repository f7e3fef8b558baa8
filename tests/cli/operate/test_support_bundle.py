"""``criproxy support-bundle``: with a daemon, without one, with one that hangs, and on a broken disk."""

import asyncio
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from criproxy.cli.bundle import collect
from criproxy.cri.runtime import RuntimeCallError
from criproxy.node.settings import Loaded
from criproxy.simulate.hosts import machine
from tests.asking import LIMIT_S, NAMED, criproxy, daemon, invoke, places
from tests.disks import fill, small_disk
from tests.node.world import World, owner, sharer
from tests.sysfs import write_sysfs


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each part take as long as a busy machine makes it take, on which six of them begin at once."""
    limited = collect.Part
    monkeypatch.setattr(collect, "Part", lambda *values: replace(limited(*values), limit_s=LIMIT_S))


def arguments(directory: Path, *more: str) -> list[str]:
    """The command on the node below *directory*."""
    write_sysfs(directory / "host", machine(nodes=1, cores=4, threads=1))
    (directory / "policy.yaml").write_text("policy: static\nreservedCpus: 0\n")
    output = ["--output", str(directory / "bundle.tar.gz"), "--config", str(directory / "policy.yaml")]
    runtime = ["--runtime-endpoint", f"unix://{directory}/runtime.sock"]
    return ["support-bundle", *output, *runtime, *places(directory), *more]


async def bundle(directory: Path, *more: str) -> Result:
    """Run the command in a thread: the daemon lives on this one's loop."""
    return await invoke(*arguments(directory, *more))


def unpacked(directory: Path) -> dict[str, str]:
    """The files in the archive, by their names below its folder."""
    with tarfile.open(directory / "bundle.tar.gz") as tar:
        found = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar}
        return {name: file.read().decode() for name, file in found.items() if file}


async def test_what_a_helper_needs_is_in_it(tmp_path: Path, patient: None) -> None:
    """The answers of the daemon, the history of who is refused, the policy file, versions; the list names all files."""
    async with daemon(tmp_path) as world:
        await world.run(sharer("web"))
        with pytest.raises(RuntimeCallError):
            await world.run(owner("greedy", 4))
        result = await bundle(tmp_path)

    files = unpacked(tmp_path)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE((tmp_path / "bundle.tar.gz").stat().st_mode) == 0o600
    assert json.loads(files["status.json"])["source"] == "daemon"
    assert "default/greedy/main" in files["status.txt"]
    assert "refused" in files["events.txt"]
    assert json.loads(files["explain/0.json"])["container"]["pod"] == "greedy"
    assert files["policy/policy.yaml"] == "policy: static\nreservedCpus: 0\n"
    assert json.loads(files["state/integrity.json"])["wrong"] == []
    assert json.loads(files["topology.json"])["allowed_cpus"] == [0, 1, 2, 3]
    assert f"Python {sys.version_info.major}." in files["versions.txt"]
    assert "Avail" in files["disks.txt"]
    listed = files["MANIFEST"]
    assert all(name in listed and name in result.stdout for name in files if name != "MANIFEST")
    assert "Look through it before you send it" in result.stdout
    assert "state/content.json" not in files
    assert [name for name, text in files.items() if "<hidden>" in text] == []


async def test_names_are_replaced(tmp_path: Path, patient: None) -> None:
    """With --anonymous, no file has the name of a pod or of the host, also not the content of the state."""
    async with daemon(tmp_path) as world:
        await world.run(sharer("bakery"))
        with pytest.raises(RuntimeCallError):
            await world.run(owner("jewels", 4))
        result = await bundle(tmp_path, "--anonymous", "--with-state")

    files = unpacked(tmp_path)
    assert result.exit_code == 0, result.output
    assert "state/content.json" in files
    hosts = {os.uname().nodename} - {"localhost"}
    for word in {"bakery", "jewels", *hosts}:
        assert [name for name, text in files.items() if re.search(rf"\b{re.escape(word)}\b", text)] == [], word
    assert "pod-" in files["status.txt"]


async def test_without_a_daemon_the_state_is_shown(tmp_path: Path, patient: None) -> None:
    """What cannot be collected is an entry in errors.txt, and the bundle is written."""
    async with asyncio.timeout(LIMIT_S), World(tmp_path, settings=NAMED) as world:
        await world.run(sharer("web"))
        await world.stop_criproxy()
        result = await bundle(tmp_path)
        await world.start_criproxy()

    files = unpacked(tmp_path)
    assert result.exit_code == 0, result.output
    assert json.loads(files["status.json"])["source"] == "store"
    assert "criproxy usage: Error: no criproxy daemon listens" in files["errors.txt"]
    assert "errors.txt has the reasons" in result.stdout


async def test_the_policy_file_is_that_of_the_daemon(tmp_path: Path, patient: None) -> None:
    """Only the daemon knows which file it was started with; that of the unit is in the archive as well."""
    words, own = arguments(tmp_path), "own/policy.yaml"
    at = words.index("--config")
    (tmp_path / "host/own").mkdir()
    (tmp_path / "host" / own).write_text("policy: none\n")
    (tmp_path / "host/etc/default").mkdir(parents=True)
    (tmp_path / "host/etc/default/criproxy").write_text('CRIPROXY_OPTIONS="--config /policy.yaml"\n')
    (tmp_path / "host/policy.yaml").write_text("policy: static\n")
    async with daemon(tmp_path) as world:
        world.controller.context.in_force.loaded = Loaded(file=f"/{own}", hash="a0", at_s=0.0)
        result = await invoke(*words[:at], *words[at + 2 :])

    files = unpacked(tmp_path)
    assert result.exit_code == 0, result.output
    assert files["policy/policy.yaml"] == "policy: none\n"
    assert files["policy/2-policy.yaml"] == "policy: static\n"
    assert "policy.yaml" not in files["errors.txt"]


@contextmanager
def deaf(path: Path) -> Iterator[None]:
    """A daemon that accepts connections and never answers."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen(100)
        yield


@pytest.mark.slow
def test_a_daemon_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    """Neither do a policy file that is a pipe, a state that is no database, and an address without an answer."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/criproxy.db").write_bytes(b"no database" * 1000)
    with deaf(tmp_path / "control.sock"), deaf(tmp_path / "http.sock"):
        words = arguments(tmp_path, "--http", f"unix://{tmp_path}/http.sock")
        (tmp_path / "policy.yaml").unlink()
        os.mkfifo(tmp_path / "policy.yaml")
        result = criproxy(*words)

    files = unpacked(tmp_path)
    assert result.exit_code == 0, result.output
    assert {"MANIFEST", "errors.txt", "versions.txt", "topology.json", "disks.txt"} <= set(files)
    assert "did not answer within 5 s" in files["errors.txt"]
    assert "it was not ready within 5 s" in files["errors.txt"]
    assert "Traceback" not in files["errors.txt"]


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    """The user has to name another one."""
    (tmp_path / "bundle.tar.gz").write_text("old")
    result = criproxy(*arguments(tmp_path))

    assert (result.exit_code, (tmp_path / "bundle.tar.gz").read_text()) == (2, "old")
    assert "already exists: name another file with --output" in result.output


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """That is said before anything is collected."""
    result = criproxy("support-bundle", "--output", tmp_path / "no/such.tar.gz")

    assert result.exit_code == 1
    assert "cannot be written (No such file or directory): name another file with --output" in result.output


def test_a_place_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file can be made, but not written: it is named, what helps is said, and nothing is left."""
    monkeypatch.setattr(collect, "parts", lambda _: [])
    with small_disk(tmp_path / "small") as disk:
        fill(disk)
        words = [
            word if word != str(tmp_path / "bundle.tar.gz") else f"{disk}/b.tar.gz" for word in arguments(tmp_path)
        ]
        result = criproxy(*words)
        left = [path.name for path in disk.iterdir()]

    assert (result.exit_code, left) == (1, ["filler"])
    text = f"Error: {disk}/b.tar.gz cannot be written (No space left on device): name another file with --output"
    assert text in result.output.replace("\n", " ")


def test_standard_output_has_only_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it can be written on another machine; the list goes to standard error."""
    monkeypatch.setattr(collect, "parts", lambda _: [])
    done = criproxy("support-bundle", "--output", "-")

    with tarfile.open(fileobj=io.BytesIO(done.stdout_bytes)) as tar:
        assert any(name.endswith("/MANIFEST") for name in tar.getnames())
    assert "support bundle of" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bundle_that_is_interrupted_leaves_no_file(tmp_path: Path, number: int) -> None:
    """Neither does it leave processes: the daemon that hangs has no client any more."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "control.sock"))
        sock.listen(100)
        with subprocess.Popen(
            [sys.executable, "-m", "criproxy", *arguments(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            client, _ = sock.accept()
            process.send_signal(number)
            process.wait()
        client.settimeout(LIMIT_S)
        with client:
            while client.recv(1 << 16):
                pass

    assert process.returncode in (1, 128 + number)
    assert not (tmp_path / "bundle.tar.gz").exists()
