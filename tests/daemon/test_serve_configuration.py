"""The daemon with a policy file that `criproxy check` refuses: at its start, at a reload, and with a good one again."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from criproxy.cli import main
from criproxy.daemon.offline_release import release
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests import failing_reader
from tests.daemons import Serve, node_files

GOOD = 'policy: static\nreservedCpus: "0"\n'
EVERY_CPU = 'policy: static\nreservedCpus: "0-3"\n'
ELSEWHERE = 'policy: static\navailableResources:\n  cpu: "cpuset:2000-3000"\n'
TOO_LARGE = 'policy: balloons\nreservedResources: {cpu: "cpuset:0"}\nballoonTypes:\n- {name: big, minCPUs: 9}\n'
VANISHED = "policy: vendors-own\ncolor: red\n"
BAD = {
    "elsewhere": (ELSEWHERE, "availableResources.cpu: CPUs 2000-3000 are not online"),
    "every-cpu": (EVERY_CPU, "reservedCpus: reserves every CPU that pods may use (0-3)"),
    "too-large": (TOO_LARGE, "a balloon of type big needs 9 CPUs"),
    "vanished": (VANISHED, "policy: unknown policy 'vendors-own'"),
    "no-yaml": ("policy: [", "a bracket is not closed"),
    "missing": (None, "there is no such file"),
    "unreadable": ("", "can be written by every user"),
}
"""Text of the file and what is said of it, by name."""


def bad(*names: str, more: Iterable[str] = BAD) -> list[Any]:
    """Those with *names*, and *more* for `make thorough`: they differ in what is wrong, not in what follows."""
    return [*names, *(pytest.param(name, marks=pytest.mark.thorough) for name in more if name not in names)]


class Scene:
    """A node of four CPUs, whose daemon is started again and again."""

    def __init__(self, directory: Path, runtime: EmbeddedRuntime) -> None:
        self.directory = directory
        self.runtime = runtime
        self.file = directory / "policy.yaml"
        node_files(directory)
        self.put(GOOD)

    def put(self, text: str | None, mode: int = 0o644) -> None:
        """Give the policy file that text."""
        if text is None:
            self.file.unlink()
            return
        new = self.directory / "policy.new"
        new.write_text(text)
        new.chmod(mode)
        new.rename(self.file)

    def spoil(self, name: str) -> str:
        """Make the policy file bad; what is said of it."""
        text, said = BAD[name]
        self.put(text, 0o666 if name == "unreadable" else 0o644)
        return said

    def serve(self, module: str = "criproxy") -> Serve:
        """A daemon on this node."""
        options = ("--config", str(self.file), "--host-root", str(self.directory))
        return Serve(self.directory, *options, "--http", str(self.directory / "http.sock"), program=("-m", module))

    def command(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output of a command."""
        result = CliRunner().invoke(main, list(arguments))
        return result.exit_code, result.output

    def forget_good_file(self) -> None:
        """Let the daemon know no file that was good."""
        (self.directory / "state" / "last-good.json").unlink(missing_ok=True)

    def check(self) -> tuple[int, str]:
        """Exit status and output of `criproxy check` of the policy file on this machine."""
        return self.command("check", str(self.file), "--host-root", str(self.directory))

    def cpus(self, container_id: str) -> set[int]:
        """The CPUs of a running container."""
        cpuset = self.runtime.cpuset(container_id)
        assert cpuset is not None
        return set(cpuset.cpus)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """The node, with a good policy file and no daemon."""
    async with EmbeddedRuntime(tmp_path / "runtime.sock", RuntimeOptions(host_root=tmp_path)) as runtime:
        yield Scene(tmp_path, runtime)


async def run(serve: Serve, name: str, cpus: int = 1) -> str:
    """Run a pod that asks for whole CPUs; the id of its container."""
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=1 << 30)
    async with serve.kubelet() as kubelet:
        _, ids = await kubelet.run_pod(PodSpec(name, (spec,)))
    return ids["main"]


async def run_first(scene: Scene, *orders: str) -> str:
    """Let a daemon run the pod ``first``, give it *orders*, and end it; the id of the container."""
    async with scene.serve() as serve:
        first = await run(serve, "first")
        for order in orders:
            await serve.command(order)
        assert await serve.stop() == 0
    return first


async def metrics_line(serve: Serve, beginning: str) -> str:
    """The line of the metrics that begins so."""
    reader, writer = await asyncio.open_unix_connection(serve.directory / "http.sock")
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    (line,) = [line for line in text.splitlines() if line.startswith(beginning)]
    return line


async def metric(serve: Serve, name: str) -> str:
    """The value of a metric without labels."""
    return (await metrics_line(serve, f"{name} ")).split()[1]


async def reload(serve: Serve) -> None:
    """Let the daemon read its policy file again, and wait for the end of that."""
    asked_us, begun_us = time.monotonic_ns() // 1000, 0
    serve.signal(signal.SIGHUP)
    while begun_us < asked_us:  # the file may have been noticed before an earlier signal, which was told of later
        lines = await serve.message("RELOADING=1")
        begun_us = next(int(text) for name, _, text in (line.partition("=") for line in lines) if "USEC" in name)
    await serve.message("READY=1")


async def assert_told(scene: Scene, serve: Serve, said: str) -> None:
    """Everybody who asks hears that the policy file is not in force, and why."""
    status, values = await serve.json("status", "--check")
    notices = [notice["text"] for notice in values["notices"] if notice["kind"] == "config"]
    assert any(said in text for text in notices), values["notices"]
    assert (status, [text for text in values["problems"] if said in text]) == (1, notices)
    assert float(await metric(serve, "criproxy_config_problem")) == 1
    assert said in serve.log.read_text()


@pytest.mark.parametrize("name", bad("elsewhere", "missing", more=("every-cpu", "too-large")))
async def test_a_first_start_with_a_bad_file_fails(scene: Scene, name: str) -> None:
    """Without any state the daemon ends with the mistakes that `check` tells, however often it is started."""
    said = scene.spoil(name)
    refused, told = scene.check()
    assert (refused, said in told) == (1, True)
    for _ in range(2):
        serve = scene.serve()
        await serve.spawn()
        assert await serve.exit_status() == 1
        assert told.removeprefix("Error: ").strip() in serve.log.read_text()


@pytest.mark.parametrize("name", bad("vanished", "missing", "every-cpu"))
async def test_a_restart_with_a_bad_file_goes_on_with_the_last_good_one(scene: Scene, name: str) -> None:
    """Owners stay, newcomers get CPUs of their own as before, everybody is told, until there is a good file again."""
    first = await run_first(scene)
    said = scene.spoil(name)
    assert scene.check()[0] == 1
    async with scene.serve() as serve:
        second = await run(serve, "second")
        assert (scene.cpus(first), scene.cpus(second)) == ({1}, {2})
        await assert_told(scene, serve, said)
        assert (await serve.json("status"))[1]["policy"] == "static"

        scene.put(GOOD)
        await reload(serve)

        assert (await serve.ask("status", check=True))["problems"] == []
        assert float(await metric(serve, "criproxy_config_problem")) == 0
        assert (scene.cpus(first), scene.cpus(second), await serve.stop()) == ({1}, {2}, 0)


@pytest.mark.parametrize(
    ("good", "policy", "cpus"),
    [
        pytest.param(GOOD, "static", {2}, id="last-good"),
        pytest.param(f"# {failing_reader.WORD}\n{GOOD}", "fallback", {0, 2, 3}, id="fallback"),
    ],
)
async def test_a_restart_at_whose_file_criproxy_fails(scene: Scene, good: str, policy: str, cpus: set[int]) -> None:
    """A defect of criproxy in reading a file, or also the last good one, does not cost the node its CRI socket."""
    scene.put(good)
    first = await run_first(scene)
    scene.put(f"# {failing_reader.WORD}\n{GOOD}")
    async with scene.serve("tests.failing_reader") as serve:
        second = await run(serve, "second")
        assert (scene.cpus(first), scene.cpus(second)) == ({1}, cpus)
        await assert_told(scene, serve, f"criproxy failed at the policy file: {failing_reader.RAISED}")
        assert (await serve.json("status"))[1]["policy"] == policy
        assert "Traceback" in serve.log.read_text()

        scene.put(GOOD)
        await reload(serve)

        assert float(await metric(serve, "criproxy_config_problem")) == 0
        assert (await serve.json("status"))[1]["policy"] == "static"


@pytest.mark.parametrize("known", [True, False], ids=["last-good", "fallback"])
async def test_a_release_outlasts_a_bad_file(scene: Scene, known: bool) -> None:
    """It ends neither at the start nor when the file is again what it was, but with another good one."""
    first = await run_first(scene, "release")
    assert scene.cpus(first) == {0, 1, 2, 3}
    if not known:
        scene.forget_good_file()
    scene.spoil("every-cpu")
    async with scene.serve() as serve:
        second = await run(serve, "second")
        assert (scene.cpus(first), scene.cpus(second)) == ({0, 1, 2, 3}, {0, 1, 2, 3})
        scene.put(GOOD)
        await reload(serve)
        assert "released" in await serve.notices()

        scene.put('policy: static\nreservedCpus: "0-1"\napply: all\n')
        await reload(serve)

        assert "released" not in await serve.notices()


async def test_a_release_under_the_fallback_outlasts_the_undo_before_it(scene: Scene) -> None:
    """An earlier release was undone without a daemon; the good file that comes back ends none."""
    first = await run_first(scene, "release")
    state, log = scene.directory / "state", structlog.get_logger("test")
    await release(state, f"unix://{scene.runtime.path}", scene.directory, log, undo=True)
    (state / "last-good.json").unlink()
    scene.spoil("vanished")
    async with scene.serve() as serve:
        await run(serve, "second")
        assert scene.cpus(first) == {0, 1, 2, 3}
        await serve.json("release")

        scene.put(GOOD)
        await reload(serve)

        assert "released" in await serve.notices()


async def test_a_machine_that_lost_a_cpu_is_trimmed(scene: Scene) -> None:
    """A file that was good stays in force where a CPU that it names is no more, with a line of --check."""
    scene.put('policy: static\nreservedCpus: "0,3"\n')
    first = await run_first(scene)
    node_files(scene.directory, "0-2")
    async with scene.serve() as serve:
        second = await run(serve, "second")
        assert (scene.cpus(first), scene.cpus(second)) == ({1}, {2})
        status, values = await serve.json("status", "--check")
        (text,) = values["problems"]
        assert (status, "reservedCpus: CPU 3 is not online in this machine" in text) == (1, True)
        assert float(await metric(serve, "criproxy_config_problem")) == 0
        await reload(serve)
        assert float(await metric(serve, "criproxy_config_problem")) == 0


async def test_a_machine_that_lost_all_of_them_places_nobody_elsewhere(scene: Scene) -> None:
    """With nothing left of what the good file names the fallback is in force: what is available never widens alone."""
    scene.put('policy: static\navailableResources: {cpu: "cpuset:2-3"}\n')
    async with scene.serve() as serve:
        assert await serve.stop() == 0
    node_files(scene.directory, "0-1")
    async with scene.serve() as serve:
        assert (await serve.json("status"))[1]["policy"] == "fallback"
        await assert_told(scene, serve, "availableResources.cpu: CPUs 2-3 are not online")


async def test_a_restart_with_the_same_file_says_nothing_new(scene: Scene) -> None:
    """What is in force is no change of the policy, whether containers have come before or nobody has."""
    log = scene.directory / "serve.log"
    for name in ("", "first", "second"):
        before = log.stat().st_size if name else 1 << 20
        async with scene.serve() as serve:
            if name:
                await run(serve, name)
            assert await serve.stop() == 0
        assert "policy changed" not in log.read_text()[before:]
