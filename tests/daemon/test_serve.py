"""The daemon from outside: a process between a client and the embedded runtime."""

import asyncio
import json
import os
import resource
import signal
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc.aio
import pytest

from criproxy.cli.client import ask
from criproxy.cri import api_pb2
from criproxy.cri.here import criproxy_behind
from criproxy.cri.runtime import RuntimeCallError
from criproxy.daemon.commands import DEVICE_PLUGIN, MODULES
from criproxy.daemon.serve import READERS_MAX
from criproxy.errors import CriproxyError, StatusCode, UsageError
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.daemons import LIMIT_S, Serve, client_at, kubelet_at, until
from tests.node.world import Slow

STATIC = 'policy: static\nreservedCpus: "0"\n'
TWO_CPUS = ContainerSpec("main", IMAGE, cpu_limit_milli=2000, memory_limit_bytes=1 << 30)
SHARING = ContainerSpec("main", IMAGE)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[EmbeddedRuntime]:
    """The runtime behind the proxy."""
    options = RuntimeOptions(containers=3, host_root=tmp_path)
    async with EmbeddedRuntime(tmp_path / "runtime.sock", options) as serving:
        yield serving


@pytest.fixture
def activated(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that systemd keeps, at ``activated.sock``."""
    with socket.socket(socket.AF_UNIX) as kept:
        kept.bind(str(tmp_path / "activated.sock"))
        kept.listen(128)
        yield kept


async def version(path: Path) -> str:
    """The name of the runtime that answers behind *path*, over a connection of its own."""
    async with client_at(path) as client:
        return (await client.version()).runtime_name


def lines(serve: Serve) -> list[dict[str, Any]]:
    """The lines of a log in JSON."""
    return [json.loads(line) for line in serve.log.read_text().splitlines()]


async def failed(serve: Serve, status: int = 1) -> str:
    """The log of a daemon that ends at its start, with this status and without sockets."""
    await serve.spawn()
    assert await serve.exit_status() == status
    assert not serve.socket.exists()
    return serve.log.read_text()


def cpus(runtime: EmbeddedRuntime, container_id: str) -> frozenset[int]:
    """The CPUs of a running container."""
    cpuset = runtime.cpuset(container_id)
    assert cpuset is not None
    return cpuset.cpus


# ---------------------------------------------------------------- its start, its end, and its sockets


async def test_calls_pass_and_the_end_is_clean(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Ready, a call through it, SIGTERM: systemd is told, the status is 0, and no socket is left behind."""
    async with Serve(tmp_path) as serve:
        assert await version(serve.socket) == "criproxy-sim"
        modes = [path.stat().st_mode for path in (serve.socket, serve.control)]
        assert [(stat.S_ISSOCK(mode), mode & 0o777) for mode in modes] == [(True, 0o660), (True, 0o600)]

        serve.signal(signal.SIGTERM)
        await serve.message("STOPPING=1")

        assert await serve.exit_status() == 0
        assert not serve.socket.exists()
        assert not serve.control.exists()
        assert serve.log.read_text().splitlines()[-1].split()[-2:] == ["stopped", "[criproxy.daemon]"]


async def test_an_absent_runtime_is_waited_for(tmp_path: Path) -> None:
    """We are ready before the runtime is; it may come, go and come back under a client that stays."""
    late = EmbeddedRuntime(tmp_path / "runtime.sock")
    async with Serve(tmp_path) as serve:
        with pytest.raises(CriproxyError, match="UNAVAILABLE"):
            await version(serve.socket)
        for _ in range(2):
            await late.start()
            assert await version(serve.socket) == "criproxy-sim"
            await late.stop()
        assert await serve.stop() == 0


@pytest.mark.parametrize(("latency_s", "answered"), [(0.7, True), (60.0, False)])
async def test_a_call_under_way_gets_two_seconds(tmp_path: Path, latency_s: float, answered: bool) -> None:
    """At SIGTERM a call that ends soon is answered; one that does not is cut, and we end all the same."""
    slow = Slow(ListContainers=latency_s)
    options = RuntimeOptions(latency_s=slow)
    async with EmbeddedRuntime(tmp_path / "runtime.sock", options), Serve(tmp_path) as serve, serve.client() as client:
        await client.version()
        call = asyncio.create_task(client.list_containers())
        await slow.asked.wait()

        begin = time.monotonic()
        assert await serve.stop() == 0
        took_s = time.monotonic() - begin

        if answered:
            assert list(await call) == []
        else:
            with pytest.raises(CriproxyError):
                await call
            assert took_s > 1.9


class Kubelet:
    """Calls all the time, over one channel and by new connections; any failure ends the test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.answers = 0
        self.ended = False

    async def call(self) -> None:
        """Ask for the version until the end."""
        async with grpc.aio.insecure_channel(f"unix://{self._path}") as channel:
            version: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            version = channel.unary_unary("/runtime.v1.RuntimeService/Version")
            while not self.ended:
                await version(b"", timeout=LIMIT_S)
                self.answers += 1

    def is_heard(self, count: int) -> bool:
        """Whether it has had so many answers."""
        return self.answers >= count

    async def connect(self) -> None:
        """Open connections until the end."""
        while not self.ended:
            _, writer = await asyncio.open_unix_connection(self._path)
            writer.close()
            await asyncio.sleep(0.005)  # a pace, so that the backlog holds them


async def test_a_restart_with_socket_activation_refuses_nobody(
    tmp_path: Path, runtime: EmbeddedRuntime, activated: socket.socket
) -> None:
    """While systemd keeps the socket, a client that calls all the time sees no failure over two restarts."""
    path = tmp_path / "activated.sock"
    kubelet = Kubelet(path)
    work = asyncio.gather(kubelet.call(), kubelet.connect())
    for last in (False, False, True):
        async with Serve(tmp_path, passed=activated) as serve:
            await until(partial(kubelet.is_heard, kubelet.answers + 20))
            assert not serve.socket.exists(), "the socket that was passed is used, and no other"
            if last:
                kubelet.ended = True
                await work
            assert await serve.stop() == 0
            assert path.exists(), "systemd's socket is not ours to remove"


async def test_the_watchdog_is_fed(tmp_path: Path) -> None:
    """The manager hears from the event loop twice per period."""
    async with Serve(tmp_path, WATCHDOG_USEC="20000") as serve:
        begin = time.monotonic()
        for _ in range(10):
            await serve.message("WATCHDOG=1")

        assert time.monotonic() - begin < 3  # 0.1 s; at the pace without a watchdog 4.5 s


async def test_one_socket_has_one_daemon(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """A second daemon says whose the socket is and leaves it alone; after a crash the next one takes it over."""
    async with Serve(tmp_path) as serve:
        second = Serve(tmp_path)
        await second.spawn()
        assert await second.exit_status() == 1
        assert "criproxy.sock is in use by another criproxy process" in serve.log.read_text()
        assert await version(serve.socket) == "criproxy-sim"

        serve.signal(signal.SIGKILL)
        await serve.exit_status()
        assert serve.socket.exists()

    async with Serve(tmp_path) as serve:
        assert await version(serve.socket) == "criproxy-sim"


def test_every_command_of_a_module_is_known() -> None:
    """The modules are imported when they are asked; until then only their names are there."""
    assert {module: set(import_module(module).commands(Mock())) for module in MODULES} == {
        module: set(names) for module, names in MODULES.items()
    }


async def test_a_second_socket_answers_only_what_changes_nothing(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Commands that change something are not known there.

    It lies alone in a directory that a container of any user may see; on the node, only root reaches that directory.
    """
    changes = ("bypass", "release", "reload", "reload-try", "reload-keep", "reload-dry-run", "record")
    async with Serve(tmp_path) as serve:
        place = serve.control.parent / "read-only/pod" / serve.control.name
        modes = [path.stat().st_mode & 0o777 for path in (place.parent.parent, place.parent, place)]
        beside = {path.suffix for path in place.parent.iterdir()}
        answers = [await asyncio.to_thread(ask, str(place), command) for command in ("status", "usage")]
        for command in (*changes, *MODULES[DEVICE_PLUGIN]):
            with pytest.raises(UsageError, match=r"^this daemon knows no command"):
                await asyncio.to_thread(ask, str(place), command, {"state": "on"})

    assert [answer["source"] for answer in answers] == ["daemon", "daemon"]
    assert (modes, beside) == ([0o700, 0o755, 0o666], {".sock", ".lock"})


async def test_the_agents_socket_answers_what_the_agent_needs(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Queries, polls, and what a NodePolicy brings; who has it can neither stop criproxy nor speak for another part."""
    async with Serve(tmp_path) as serve:
        place = serve.control.parent / "agent/pod" / serve.control.name
        modes = [path.stat().st_mode & 0o777 for path in (place.parent.parent, place.parent, place)]
        answers = [await asyncio.to_thread(ask, str(place), command) for command in ("status", "usage", "agent")]
        for command in ("bypass", "release", "record", *MODULES[DEVICE_PLUGIN]):
            with pytest.raises(UsageError, match=r"^this daemon knows no command"):
                await asyncio.to_thread(ask, str(place), command, {"state": "on"})
        for command in ("reload-keep", "reload-back"):
            with pytest.raises(CriproxyError, match="only try, keep and end what a NodePolicy says"):
                await asyncio.to_thread(ask, str(place), command)

    assert [answer["source"] for answer in answers] == ["daemon"] * 3
    assert modes == [0o700, 0o755, 0o666]


def is_answered(place: str) -> bool:
    """Whether there is room for one more client on a socket."""
    with suppress(CriproxyError):
        return bool(ask(place, "status"))
    return False


async def test_many_clients_of_the_agents_socket_hold_nobody_up(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Those beyond the limit are turned away, garbage is answered or ends, and the control socket answers meanwhile."""
    async with Serve(tmp_path) as serve:
        place = str(serve.control.parent / "agent/pod" / serve.control.name)
        poll = b'{"command": "agent", "arguments": {"after": %d, "wait_s": 30}}\n'
        revision = (await asyncio.to_thread(ask, place, "agent"))["revision"]
        clients = [await asyncio.open_unix_connection(place, limit=1 << 20) for _ in range(40)]
        for _, writer in clients:
            writer.write(poll % revision)
        ended = [asyncio.ensure_future(reader.read(1)) for reader, _ in clients]
        turned_away = 0
        async with asyncio.timeout(LIMIT_S):
            while turned_away < 40 - READERS_MAX:
                done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
                ended = [each for each in ended if each not in done]
                turned_away += len([each for each in done if each.exception() or not each.result()])
        assert (await asyncio.to_thread(ask, str(serve.control), "status"))["source"] == "daemon"
        for each in ended:
            each.cancel()
        for _, writer in clients:
            writer.close()
        await until(partial(asyncio.to_thread, is_answered, place))  # as soon as the daemon has seen that they are gone
        for line in (b"\x00\xff\n", b"[]\n", b'{"command": ["agent"]}\n', b'{"command": "agent", "arguments": 1}\n'):
            reader, writer = await asyncio.open_unix_connection(place)
            writer.write(line)
            assert b'"error"' in await asyncio.wait_for(reader.readline(), LIMIT_S)
            writer.close()
        assert "failed" not in serve.log.read_text()


RUN = "runpy.run_module('criproxy', run_name='__main__', alter_sys=True)"


@pytest.mark.parametrize(("limits", "warned"), [((300, 300), True), ((300, 4096), False)])
async def test_too_few_descriptors_are_said_at_the_start(
    tmp_path: Path, runtime: EmbeddedRuntime, limits: tuple[int, int], warned: bool
) -> None:
    """A soft limit is raised as far as it may be; with a low hard one, the log says what it may prevent."""
    program = ("-c", f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, {limits}); {RUN}")
    async with Serve(tmp_path, program=program) as serve:
        text = serve.log.read_text()
        assert serve.process is not None
        soft, _ = resource.prlimit(serve.process.pid, resource.RLIMIT_NOFILE)

    assert ("few open files" in text, "LimitNOFILE" in text) == (warned, warned), text
    assert soft == limits[1]


# ---------------------------------------------------------------- starts that fail


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "tcp://0.0.0.0:1"], "--listen: 'tcp://0.0.0.0:1' is not a Unix socket"),
        (["--http", "everywhere"], "--http: 'everywhere' is not an address"),
        (["--trace-calls", "Verzion"], "CRI has no method 'Verzion'; did you mean Version?"),
    ],
)
async def test_wrong_use_ends_with_a_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    """The status is 2, and one sentence, without a traceback, says what would be right."""
    log = await failed(Serve(tmp_path, *arguments), 2)

    assert said in log
    assert "Traceback" not in log


@pytest.mark.parametrize("log_format", ["auto", "json", "journal"])
async def test_a_policy_file_that_is_named_and_missing(tmp_path: Path, log_format: str) -> None:
    """Who names a file wants that file; programs get the error in their form and no other line."""
    file = tmp_path / "none.yaml"
    log = await failed(Serve(tmp_path, "--config", str(file), "--log-format", log_format))

    assert f"{file}: there is no such file" in log
    if log_format == "json":
        entry = json.loads(log)
        assert (entry["level"], entry["event"]) == ("critical", "cannot serve")
    elif log_format == "journal":
        assert log.startswith("<2>cannot serve error=")
        assert len(log.splitlines()) == 1


async def test_a_port_in_use_is_found_at_the_start(tmp_path: Path) -> None:
    """What was asked for and cannot be had ends the start, with nothing left behind."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        log = await failed(Serve(tmp_path, "--http", address))

    assert f"Error: --http: cannot listen on http://{address}" in log


async def test_a_fault_of_ours_is_one_line_for_programs(tmp_path: Path) -> None:
    """What nobody expected is one JSON line, too, with the traceback in it."""
    (tmp_path / "uvloop.py").write_text("raise RuntimeError('planted')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    entry = json.loads(await failed(Serve(tmp_path, "--log-format", "json", PYTHONPATH=path)))

    assert entry["error"] == "RuntimeError('planted')"
    assert "Traceback" in entry["exception"]


async def test_a_token_file_without_http_keeps_no_daemon_from_starting(
    tmp_path: Path, runtime: EmbeddedRuntime
) -> None:
    """A node that has such options must start after an upgrade; the log says that they have no effect."""
    async with Serve(tmp_path, "--http-token-file", str(tmp_path / "token")) as serve:
        assert await version(serve.socket) == "criproxy-sim"
        await serve.stop()

    assert "--http-token-file has no effect without --http" in serve.log.read_text()


async def test_who_waits_for_a_failing_start_is_told_why(
    tmp_path: Path, runtime: EmbeddedRuntime, activated: socket.socket
) -> None:
    """A pod that came while the policy file was read is refused with what is wrong in it."""
    serve = Serve(tmp_path, policy="policy: statik\n", passed=activated)
    async with kubelet_at(tmp_path / "activated.sock") as kubelet:
        pod = asyncio.create_task(kubelet.run_pod(PodSpec("early", (SHARING,))))
        await serve.spawn()
        with pytest.raises(RuntimeCallError, match=r"criproxy cannot serve: .*statik") as refused:
            await pod
        assert refused.value.code is StatusCode.UNAVAILABLE
        assert await serve.exit_status() == 1


# ---------------------------------------------------------------- containers


async def test_calls_pass_before_the_machine_is_known(
    tmp_path: Path, runtime: EmbeddedRuntime, activated: socket.socket
) -> None:
    """Version is answered and a pod waits while the machine is still read; it is placed when that is known.

    Another criproxy in front of this one finds out even now that this is no runtime.
    """
    path = tmp_path / "activated.sock"
    serve = Serve(tmp_path, policy=STATIC, cpus="0-3", passed=activated)
    slow = hanging(tmp_path / "sys/devices/system/cpu/online")
    async with starting(serve) as ready, client_at(path) as front, kubelet_at(path) as kubelet:
        assert await version(path) == "criproxy-sim"
        assert await criproxy_behind(front), "it is told from a runtime already"
        pod = asyncio.create_task(kubelet.run_pod(PodSpec("owner", (TWO_CPUS,))))
        assert await version(path) == "criproxy-sim"
        await serve.logged("/sys or /proc does not answer")
        assert not pod.done()
        assert not ready.done()

        await asyncio.to_thread(tell, slow, "0-3\n")

        _, owner = await pod
        assert cpus(runtime, owner["main"]) == {1, 2}
        await ready


def hanging(file: Path) -> Path:
    """Let who reads *file* wait, until `tell` is called."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    return file


def tell(fifo: Path, text: str) -> None:
    """Let who reads *fifo* read *text*, and whoever comes later an ordinary file with it; waits for the reader."""
    with fifo.open("w") as writer:
        later = fifo.with_suffix(".later")
        later.write_text(text)
        later.rename(fifo)
        writer.write(text)


@asynccontextmanager
async def starting(serve: Serve) -> AsyncIterator["asyncio.Task[Serve]"]:
    """Start it without waiting until it is ready, which the task does."""
    ready = asyncio.create_task(serve.__aenter__())
    try:
        yield ready
    finally:
        await serve.__aexit__(None, None, None)
        ready.cancel()


# ---------------------------------------------------------------- commands, logs and HTTP


async def test_a_separate_image_service(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Each socket leads to its own service."""
    images = tmp_path / "run" / "images.sock"
    async with EmbeddedRuntime(tmp_path / "image-runtime.sock") as other:
        other.core.images.pull("example.test/only-here:1")
        options = ("--image-listen", f"unix://{images}", "--image-endpoint", f"unix://{tmp_path}/image-runtime.sock")
        async with Serve(tmp_path, *options) as serve:
            assert "example.test/only-here:1" in await image_tags(images)
            assert "example.test/only-here:1" not in await image_tags(serve.socket)
            await other.stop()
            away = f"the image service on {other.path} cannot be reached: No such file or directory"
            assert away in (await serve.ask("status", check=True))["problems"]
            assert await serve.stop() == 0
            assert not images.exists()


async def image_tags(path: Path) -> set[str]:
    """The names of all images of the service behind *path*."""
    async with client_at(path) as client:
        reply = await client.call("ListImages", api_pb2.ListImagesRequest(), api_pb2.ListImagesResponse)
    return {tag for image in reply.images for tag in image.repo_tags}


async def test_traced_calls_are_logged_without_secrets(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """The log has request, reply and outcome of the chosen method, and nothing of others."""
    async with Serve(tmp_path, "--trace-calls", "PullImage", "--log-format", "json") as serve:
        async with serve.client() as client:
            await client.version()
            auth = api_pb2.AuthConfig(username="joe", password="x", server_address="example.test")  # noqa: S106
            request = api_pb2.PullImageRequest(image=api_pb2.ImageSpec(image="example.test/app:1"), auth=auth)
            await client.call("PullImage", request, api_pb2.PullImageResponse)
        await serve.stop()

    (call,) = (line for line in lines(serve) if line["event"] == "call")
    hidden = {"username": "<hidden>", "password": "<hidden>", "server_address": "example.test"}
    assert call["request"] == {"image": {"image": "example.test/app:1"}, "auth": hidden}
    assert call["outcome"] == "ok"
    assert call["reply"]["image_ref"]


async def test_a_log_that_nobody_reads_holds_up_no_call(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """With standard error full, calls go on, and the daemon ends when told to."""
    reader, stderr = os.pipe()
    async with Serve(tmp_path, "--trace-calls", "ListContainers", stderr=stderr) as serve:
        async with serve.client() as client:
            for _ in range(100):  # 2.5 kB of log each; a pipe takes 64 kB, less what its pages leave free
                await client.list_containers()

        assert len(os.read(reader, 1 << 20)) >= 50_000
        assert await serve.stop() == 0
    os.close(reader)
    os.close(stderr)


def put(file: Path, text: str) -> None:
    """Replace a file, so that nobody reads half of it."""
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)


async def test_sighup_reads_the_policy_file_again(tmp_path: Path, runtime: EmbeddedRuntime) -> None:
    """Systemd is told when it begins and ends, and of a file that cannot be used, and of a bypass; calls pass."""
    async with Serve(tmp_path, policy="policy: none\n") as serve:
        put(serve.policy, "policy: statik\n")
        serve.signal(signal.SIGHUP)
        begun = await serve.message("RELOADING=1")
        assert any(line.startswith("MONOTONIC_USEC=") for line in begun)
        ended = await serve.message("READY=1")
        (status,) = [line for line in ended if line.startswith("STATUS=")]
        assert status.startswith("STATUS=POLICY FILE NOT USED, the previous one stays in effect: ")
        assert f"{serve.policy}:1:9: policy: unknown policy 'statik'" in status
        assert await version(serve.socket) == "criproxy-sim"

        put(serve.policy, "policy: none\n")
        serve.signal(signal.SIGHUP)
        assert any(line.startswith("STATUS=serving on ") for line in await serve.message("READY=1"))

        await serve.ask("bypass", state="on")
        await serve.message("STATUS=BYPASS (ordered) since 20")
        await serve.ask("bypass", state="off")
        await serve.message("STATUS=serving on ")
