"""``python -m lab.bench.annotate RUNTIME LISTEN``: a proxy that holds CreateContainer and adds an annotation.

The price of holding alone: parse, edit, serialise, without policy and store.
"""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import uvloop

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import paths
from criproxy.process.systemd import Notifier
from criproxy.wire.calls import Call, Proceed, Rule, Verdict
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import listen

ANNOTATION = "bench.criproxy.io/annotated"


async def annotate(call: Call, message: bytes) -> Verdict:
    """Add one annotation to the container."""
    request = api.CreateContainerRequest.FromString(message)
    request.config.annotations[ANNOTATION] = "true"
    return Proceed(request.SerializeToString())


async def serve(runtime: Path, path: Path) -> None:
    """Listen at *path* until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    proxy = Proxy(str(runtime), dict.fromkeys(paths("CreateContainer"), Rule(hold=annotate)))
    listener = listen(str(path), 0o660)
    try:
        await proxy.start(listener.sock)
        gc.freeze()
        Notifier(os.environ).ready("annotating")
        await ended.wait()
        await proxy.drain()
    finally:
        listener.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
