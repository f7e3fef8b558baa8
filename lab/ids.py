"""Measures the device plugin with many ids: ``python -m lab.ids``; exits with status 1 above a limit.

Its start, its memory, and the list that the kubelet gets.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from lab.figures import Figure, judge
from lab.kubelet.device_endpoint import LARGEST_BYTES
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.node import GPU
from tests.deviceplugin.program import NPU, Program, policy
from tests.nvml import Driver

CARDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is offered: each of eight cards in so many replicas."""

    kind: str
    """The class."""
    resource: str
    replicas: int

    @property
    def ids(self) -> int:
        """How many the kubelet gets."""
        return CARDS * self.replicas


GPUS = Case(kind="nvidia", resource=GPU, replicas=48)
NPUS = Case(kind="ali-npu", resource=NPU, replicas=1250)


MEMORY_MIB, START_S, LIST_MS = 128, 10.0, 500.0
"""Limits, far above what was measured: they find what grows with the square of the ids."""


async def measure(case: Case) -> list[Figure]:
    """Start the program on a made-up machine, beside a made-up kubelet, which takes all ids in one message."""
    with TemporaryDirectory(prefix="i") as name:
        async with Program(Path(name)) as program:
            _plug(program, case)
            await program.kubelet.start()
            began_s = monotonic()
            await program.start()
            await program.kubelet.until_capacity(case.resource, case.ids)
            start_s = monotonic() - began_s
            list_s, list_bytes = await _listed(_socket(program))
            memory_mib, peak_mib = _memory_mib(program)
            if program.said("the kubelet becomes slow with this many devices"):
                raise RuntimeError("so many ids bring a warning")
            what = f"{case.ids} ids of {CARDS} cards"
            return [
                Figure(what, case.kind, "start until all are known", start_s, "s", START_S),
                Figure(what, case.kind, "memory", memory_mib, "MiB"),
                Figure(what, case.kind, "memory at most", peak_mib, "MiB", MEMORY_MIB),
                Figure(what, case.kind, "ListAndWatch", 1000 * list_s, "ms", LIST_MS),
                Figure(what, case.kind, "its message", list_bytes, "bytes", LARGEST_BYTES),
            ]


def _plug(program: Program, case: Case) -> None:
    sharing = f"[{{resource: {case.resource}, replicas: {case.replicas}}}]"
    program.policy.write_text(policy(f"{{advertise: [{case.kind}], sharing: {sharing}}}"))
    gpus = tuple(t4(index, index % 2) for index in range(CARDS)) if case is GPUS else ()
    program.host.use(Driver(gpus=gpus))
    for gpu in gpus:
        program.host.gpu(gpu)
    for number in range(CARDS if case is not GPUS else 0):
        program.host.plug(f"/dev/npu{number}", f"0000:3{number}:00.0", numa_node=number % 2)


def _socket(program: Program) -> Path:
    kubelet = program.kubelet
    (found,) = [path for path in kubelet.plugins_dir.iterdir() if path.is_socket() and path != kubelet.socket]
    return found


async def _listed(socket: Path) -> tuple[float, int]:
    """Ask as a kubelet does, and return the time until the first message, and its size."""
    options = (("grpc.max_receive_message_length", LARGEST_BYTES), ("grpc.default_authority", "localhost"))
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=options) as channel:
        await channel.channel_ready()
        method: Any = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
        began_s = monotonic()
        stream = method(api.Empty().SerializeToString())
        message: bytes = await stream.read()
        took_s = monotonic() - began_s
        stream.cancel()
    return took_s, len(message)


def _memory_mib(program: Program) -> tuple[float, float]:
    """The resident memory of the program now, and at most."""
    assert program.process is not None
    lines = Path(f"/proc/{program.process.pid}/status").read_text().splitlines()
    found = {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.split()}
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024


if __name__ == "__main__":
    measured = [figure for case in (GPUS, NPUS) for figure in asyncio.run(measure(case))]
    sys.exit(judge("criproxy device-plugin with many ids", measured))
