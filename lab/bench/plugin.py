"""What a container costs that is created and started while the runtime asks a plugin over NRI.

    python -m lab.bench.plugin --rounds 5
    python -m lab.bench.plugin --peer PROGRAM    # a plugin that connects to the socket that is its only argument

Three containerds 1.7, in turn: without a plugin, with one that does nothing, and with criproxy; a fourth with a
peer. The second shows what NRI itself costs: all that criproxy can be compared with. How long the runtime waits for the
answers is measured beside that: a busy machine does not blur it as much.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from criproxy.cri import api_pb2 as api
from criproxy.nri import api_pb2 as nri
from criproxy.nri.connection import Connection
from criproxy.nri.front import NriFront
from criproxy.nri.plugin import Plugin
from lab.bench.answers import Answers
from lab.bench.pods import Pods, Sandbox, container_id
from lab.bench.ways import Batch, Way, round_robin
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.provenance import ROOT
from tests.runtimes import store

NONE, IDLE, CRIPROXY, PEER = "no plugin", "a plugin that does nothing", "criproxy", "the peer"
_REGISTERED_S = 20.0


async def be_idle(path: str) -> None:
    """Be a plugin that hears of all that criproxy hears of, and does nothing, until the runtime ends."""
    reader, writer = await asyncio.open_unix_connection(path)
    events = Plugin(path, NriFront(Path("/")))

    async def answer(method: str, request: bytes) -> bytes:
        if method == "Configure":
            return events._configure(nri.ConfigureRequest.FromString(request))
        return b""

    connection = Connection(reader, writer, answer, lambda *_: None)
    reading = asyncio.create_task(connection.run())
    request = nri.RegisterPluginRequest(plugin_name="idle", plugin_idx="90")
    await connection.call("RegisterPlugin", request.SerializeToString())
    await reading


@contextmanager
def plugged(name: str, folder: Path, peer: Path | None) -> Iterator[tuple[Way, Pods, Answers]]:
    """A containerd with the plugin of that *name*, the pods for it, and what measures the answers."""
    programs = store.find(store.cache_directory(), store.by_series("1.7"))
    with PrivateContainerd(programs=programs, nri=True) as containerd, ExitStack() as stack:
        (place := folder / name.replace(" ", "-")).mkdir()
        answers = stack.enter_context(Answers(place / "nri.sock", containerd.nri_socket))
        command = {
            IDLE: [sys.executable, "-m", "lab.bench.plugin", "--idle", str(answers.path)],
            PEER: [str(peer and peer.resolve()), str(answers.path)],
            CRIPROXY: [
                *(sys.executable, "-m", "criproxy", "serve", "--nri", f"unix://{answers.path}"),
                *("--runtime-endpoint", containerd.endpoint, "--control-socket", str(place / "control.sock")),
                *("--state-dir", str(place / "state"), "--config", str(ROOT / "policies/topology-aware.yaml")),
            ],
        }.get(name)
        pid = containerd.pid
        if command is not None:
            log = stack.enter_context((place / "log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            pid = process.pid
            _until_connected(containerd)
        way = stack.enter_context(Way(name, containerd.socket, pid))
        yield way, Pods(IMAGE, containerd.cgroups), answers


def _until_connected(containerd: PrivateContainerd) -> None:
    limit_s = time.monotonic() + _REGISTERED_S
    while "connected" not in containerd.log:
        if time.monotonic() > limit_s:
            raise SystemExit(f"the plugin is not registered after {_REGISTERED_S:g} s:\n{containerd.log[-1000:]}")
        time.sleep(0.05)  # nobody tells


def batch(way: Way, pods: Pods, count: int) -> Batch:
    """Create and start *count* containers of one pod, which is removed then."""
    sandbox, calls_ns = Sandbox(pods, way), []
    create, start = way.bytes_call("CreateContainer"), way.bytes_call("StartContainer")
    requests, before_ns = sandbox.requests(count), way.cpu_ns()
    for request in requests:
        begun_ns = time.perf_counter_ns()
        identifier = container_id(create(request))
        start(api.StartContainerRequest(container_id=identifier).SerializeToString())
        calls_ns.append(time.perf_counter_ns() - begun_ns)
    cpu_ns = way.cpu_ns() - before_ns
    sandbox.remove(way)
    return Batch(calls_ns, cpu_ns)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.plugin", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each way (default: %(default)s)")
    parser.add_argument("--count", type=int, default=10, help="containers in a round (default: %(default)s)")
    parser.add_argument("--peer", type=Path, metavar="PROGRAM", help="another plugin, measured as criproxy is")
    parser.add_argument("--idle", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.idle:
        asyncio.run(be_idle(options.idle))
        return
    with tempfile.TemporaryDirectory(prefix="criproxy-bench-") as folder, ExitStack() as stack:
        names = (NONE, IDLE, CRIPROXY) if options.peer is None else (NONE, IDLE, CRIPROXY, PEER)
        found = {name: stack.enter_context(plugged(name, Path(folder), options.peer)) for name in names}
        ways = [way for way, _, _ in found.values()]
        result = round_robin(ways, lambda way: batch(way, found[way.name][1], options.count), options.rounds)
    print(
        f"{options.rounds} rounds of {options.count} containers, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )
    for name, series in result.items():
        cpu = "" if name == NONE else f", CPU time of the plugin {series.cpu_us / 1000:.2f} ms"
        added = series.added_us(result[IDLE]) / 1000
        print(f"{name}: create and start {series.median_us / 1000:.1f} ms ({added:+.1f} ms beside {IDLE}){cpu}")
    idle_ms = found[IDLE][2].of_life_ms
    for name in names[1:]:
        took_ms = found[name][2].of_life_ms
        each = ", ".join(f"{event.lower()} {one_ms:.2f}" for event, one_ms in took_ms.items())
        beside_ms = sum(took_ms.values()) - sum(idle_ms.values())
        print(f"{name}: answers take {sum(took_ms.values()):.2f} ms ({beside_ms:+.2f} ms beside {IDLE}): {each}")


if __name__ == "__main__":
    main()
