"""What an operator is told if the runtime's NRI, or what is beside it, does not go with criproxy as a plugin."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from criproxy.cri.stamp import ANNOTATION, Stamp
from criproxy.nri import api_pb2 as nri
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.plugin import MANY_ENDED
from lab.emulator.runtime import EmbeddedRuntime
from tests.daemons import Serve, until
from tests.nri.peer import Peer, Runtime
from tests.nri.test_messages import POD, container

STATIC = 'policy: static\nreservedCpus: "0"\n'


@asynccontextmanager
async def plugin(directory: Path, passed: socket.socket | None = None) -> AsyncIterator[tuple[Serve, Runtime]]:
    """Criproxy as a plugin of a runtime, whose side of NRI does not listen yet."""
    runtime = Runtime(directory / "nri.sock")
    serve = Serve(directory, "--nri", f"unix://{runtime.path}", policy=STATIC, cpus="0-3", passed=passed)
    async with asyncio.timeout(30), EmbeddedRuntime(serve.runtime), serve:
        yield serve, runtime


async def connected(serve: Serve, runtime: Runtime, timeout_ms: int) -> Peer:
    """Take criproxy as a plugin, with that much time for an answer."""
    peer = await runtime.peers.get()
    await peer.call("Configure", nri.ConfigureRequest(request_timeout=timeout_ms))
    await peer.call("Synchronize", nri.SynchronizeRequest())
    await says(serve, "the runtime does not ask criproxy", wanted=False)
    return peer


async def says(serve: Serve, text: str, *, wanted: bool = True) -> None:
    """Wait until `status --check` says so, or does not any more."""

    async def is_so() -> bool:
        return (text in " ".join((await serve.command("status", "--check"))[1].split())) is wanted

    await until(is_so)


async def test_no_socket(tmp_path: Path) -> None:
    """What to set, for each runtime."""
    async with plugin(tmp_path) as (serve, _):
        await says(serve, 'containerd, disable = false in [plugins."io.containerd.nri.v1.nri"]')
        await says(serve, "CRI-O, enable_nri = true in [crio.nri]")
        assert (await serve.command("status", "--check"))[0] == 1


async def test_a_runtime_that_waits_shortly(tmp_path: Path) -> None:
    """A note; not from a runtime that waits longer, or does not tell."""
    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        for timeout_ms, wanted in ((2000, True), (10_000, False), (0, False)):
            peer = await connected(serve, runtime, timeout_ms)
            await says(serve, "Note: the runtime waits 2 s for criproxy", wanted=wanted)
            status, said = await serve.command("status", "--check")
            assert (status, "All is well" in said) == (0, True), said
            peer.writer.close()


async def test_another_plugin_that_sets_the_same(tmp_path: Path) -> None:
    """The runtime fails each create that both have answered; a single one, and those of others, say nothing."""
    text = "another plugin may set the same fields"
    other = nri.Container(id="c2", pod_sandbox_id=POD.id, name="other")
    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        peer = await connected(serve, runtime, 10_000)
        await ends(peer, container(), failed=True)
        await ends(peer, other, failed=True)  # as a kubelet that gives up two, each once
        assert text not in " ".join((await serve.command("status", "--check"))[1].split())
        await ends(peer, other, failed=False)
        await ends(peer, container(), failed=True)
        await says(
            serve, f"the runtime has failed the last 2 creates of shop/web/main after criproxy had answered: {text}"
        )
        await says(serve, "or the kubelet has given them up")
        assert (await serve.command("status", "--check"))[0] == 1

        await ends(peer, container(), failed=False)
        await says(serve, text, wanted=False)
        await ends(peer, container(), failed=True)
        await ends(peer, container(), failed=True)
        await says(serve, text)
        await peer.call("StateChange", nri.StateChangeEvent(event=nri.REMOVE_POD_SANDBOX, pod=POD))
        await says(serve, text, wanted=False)

        await ends(peer, container(), failed=True)
        await ends(peer, container(), failed=True)
        await says(serve, text)
        peer.writer.close()  # until there is another connection, nobody tells that the pod is removed
        await connected(serve, runtime, 10_000)
        await says(serve, text, wanted=False)


async def ends(peer: Peer, created: nri.Container, *, failed: bool) -> None:
    """Ask about a create, and tell how it has ended."""
    await peer.call("CreateContainer", nri.CreateContainerRequest(pod=POD, container=created))
    if failed:
        await peer.call("StopContainer", nri.StopContainerRequest(pod=POD, container=created))
    else:
        event = nri.StateChangeEvent(event=nri.POST_CREATE_CONTAINER, pod=POD, container=created)
        await peer.call("StateChange", event)


async def test_another_criproxy_in_front(tmp_path: Path) -> None:
    """It writes its stamp, which pods cannot; the next create without one ends it."""
    text = "another criproxy, between the kubelet and the runtime, has placed"
    stamped, pod = container(), nri.PodSandbox()
    stamped.annotations[ANNOTATION] = Stamp("r-1", "Guaranteed").to_text()
    pod.CopyFrom(POD)
    pod.annotations[ANNOTATION] = stamped.annotations[ANNOTATION]
    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        peer = await connected(serve, runtime, 10_000)
        for of, asked, wanted in ((POD, stamped, True), (POD, container(), False), (pod, stamped, False)):
            await peer.call("CreateContainer", nri.CreateContainerRequest(pod=of, container=asked))
            await says(serve, text, wanted=wanted)
            assert (await serve.command("status", "--check"))[0] == wanted


async def test_connections_that_end_again_and_again(tmp_path: Path) -> None:
    """Also a look between two ends shows it."""
    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        for _ in range(MANY_ENDED):
            peer = await connected(serve, runtime, 10_000)
            assert "has ended 3 connections" not in (await serve.command("status", "--check"))[1]
            peer.writer.close()
        await connected(serve, runtime, 10_000)
        await says(serve, "Note: the runtime has ended 3 connections within a minute, most recently at")


async def test_the_sockets_of_two_runtimes(tmp_path: Path) -> None:
    """The one that lists containers does not have those of the one that asks; until they are gone."""
    text = "lists none of the containers of which the one behind the NRI socket"
    told = nri.SynchronizeRequest(pods=[POD], containers=[container()])

    async def taken() -> Peer:
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        await peer.call("Synchronize", told)
        await says(serve, "the runtime does not ask criproxy", wanted=False)
        return peer

    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        peer = await taken()
        while text not in " ".join((await serve.command("status", "--check"))[1].split()):
            peer.writer.close()  # each connection makes criproxy look what runs
            peer = await taken()
        assert (await serve.command("status", "--check"))[0] == 1
        removed = nri.StateChangeEvent(event=nri.REMOVE_CONTAINER, pod=POD, container=container())
        await peer.call("StateChange", removed)
        await says(serve, text, wanted=False)


async def test_what_is_no_socket(tmp_path: Path) -> None:
    """Or refuses: it says so."""
    (tmp_path / "nri.sock").mkdir()
    async with plugin(tmp_path) as (serve, runtime):
        await says(serve, "nri.sock: it is not a socket")
        await says(serve, "if NRI is off", wanted=False)
        runtime.path.rmdir()
        runtime.on_call = lambda _: ttrpc.Response(status=ttrpc.Status(code=3, message="invalid plugin index"))
        async with runtime.listening():
            await says(serve, "the runtime refuses to register criproxy: invalid plugin index")


async def test_what_is_beside(tmp_path: Path) -> None:
    """A kubelet that still calls criproxy, and other programs that place containers."""
    files = {
        "etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --config=/kubelet.json\n",
        "kubelet.json": json.dumps({"containerRuntimeEndpoint": "unix:///run/criproxy/criproxy.sock"}),
        "proc/77/cmdline": "/usr/bin/nri-resource-policy-balloons\0-idx\0000\0",
        "opt/nri/plugins/10-topology-aware": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    async with plugin(tmp_path) as (serve, runtime), runtime.listening():
        await connected(serve, runtime, 10_000)
        await says(serve, "the kubelet calls criproxy at unix:///run/criproxy/criproxy.sock, which is a plugin")
        await says(serve, "nri-resource-policy-balloons runs on this node")
        await says(serve, "the runtime starts the NRI plugin /opt/nri/plugins/10-topology-aware")
        assert (await serve.command("status", "--check"))[0] == 1


async def test_the_socket_of_systemd_is_served_by_nobody(tmp_path: Path) -> None:
    """A plugin starts although systemd passes the socket of the unit; who connects there is told at once."""
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(tmp_path / "passed.sock"))
        passed.listen()
        async with plugin(tmp_path, passed):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "passed.sock")
            assert await reader.read() == b""
            writer.close()
