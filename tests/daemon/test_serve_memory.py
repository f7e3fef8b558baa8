"""How much memory a daemon has with many large pods: bounded at its start, and given back after a peak."""

import asyncio
from pathlib import Path

from criproxy.cri.runtime import RuntimeClient
from lab.emulator.runtime import EmbeddedRuntime
from lab.kubelet.kubelet import MiniKubelet, PodSpec
from tests.daemons import LIMIT_S, Serve, until

PODS, ANNOTATION_BYTES = 40, 3_000_000
LIST_MIB, OWN_MIB = PODS * ANNOTATION_BYTES >> 20, 100
"""What criproxy reads from the runtime when it starts, and what it needs without."""
KEPT_MIB = 64
"""Less than this is not worth it."""
LOOKS_OFTEN = """
from criproxy.process import allocator
allocator.POLL_S = 0.2
from criproxy.cli import main
main(prog_name="criproxy")
"""


def memory_mib(process: int) -> tuple[int, int]:
    """What a process has resident, now and at most."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    found = {name: int(kib) // 1024 for name, kib, *_ in (line for line in lines if line[0].startswith("Vm"))}
    return found["VmRSS:"], found["VmHWM:"]


async def test_memory_is_given_back_after_a_peak(tmp_path: Path) -> None:
    """A list of sandboxes with large annotations makes a peak of a few times its size, of which nothing stays."""
    async with asyncio.timeout(LIMIT_S), EmbeddedRuntime(tmp_path / "runtime.sock") as runtime:
        kubelet = MiniKubelet(client := RuntimeClient(f"unix://{runtime.path}"))
        for number in range(PODS):
            await kubelet.run_sandbox(PodSpec(f"pod-{number}", annotations={"notes": "x" * ANNOTATION_BYTES}))
        async with Serve(tmp_path, policy="policy: static\n", program=("-c", LOOKS_OFTEN)) as serve:
            assert serve.process is not None
            pid = serve.process.pid

            async def is_in_sync() -> bool:
                return "resync" not in await serve.notices()

            await until(is_in_sync)
            assert 2 * LIST_MIB < memory_mib(pid)[1] < OWN_MIB + 4 * LIST_MIB

            await until(lambda: memory_mib(pid)[0] <= OWN_MIB + KEPT_MIB)
            assert await serve.stop() == 0
        await client.close()
