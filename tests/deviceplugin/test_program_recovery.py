"""`criproxy device-plugin` and GPUs that recover: the real processes and pynvml, beside a made-up NVML."""

from pathlib import Path

from tests.deviceplugin.program import Program
from tests.deviceplugin.test_program_health import FIRST, SECOND, Nvml

GPU = "nvidia.com/gpu"
LOST, UNKNOWN = 15, 999
FALLEN_OFF = 79


async def start(program: Program) -> None:
    """Start it with a kubelet; a card without a cause is healthy again at once."""
    await program.begin("{advertise: [nvidia], health: {holdDown: 10ms}}")


async def test_a_gpu_that_answers_again_is_watched_again(folder: Path, fake_nvml: Nvml) -> None:
    """Its loss ends the wait for events, which goes on without it; after its recovery its events count."""
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        await start(program)
        await nvml.until_watched(2)
        await program.kubelet.until_capacity(GPU, 2)
        nvml.say("lost 1")
        nvml.answer("deaf", 1, LOST)
        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        await program.until_said("NVML events are received again")
        nvml.answer("deaf", 1, 0)
        nvml.say()
        await program.kubelet.until_capacity(GPU, 2)
        nvml.answer("recovery", 1, 2)  # so that it stays unhealthy after the event
        nvml.xid(1, FALLEN_OFF)
        await program.until_said(f"XID {FALLEN_OFF}")

        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        assert program.kubelet.unhealthy(GPU) == {SECOND}


async def test_a_registration_for_events_that_fails_is_repeated(folder: Path, fake_nvml: Nvml) -> None:
    """The card is unhealthy until it works; events of other GPUs arrive all the time."""
    nvml = fake_nvml("p100")
    nvml.answer("refused", 1, UNKNOWN)
    async with Program(folder, driver=nvml) as program:
        await start(program)
        await program.until_said("nvmlDeviceRegisterEvents: Unknown Error")
        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        assert program.kubelet.unhealthy(GPU) == {SECOND}
        nvml.xid(0, FALLEN_OFF)
        await program.until_said("a card is healthy again")
        assert program.kubelet.unhealthy(GPU) >= {SECOND}
        nvml.answer("refused", 1, 0)
        await program.until_said("a card is healthy again", times=2)
        nvml.xid(1, FALLEN_OFF)
        await program.until_said("a card is healthy again", times=3)
        await program.kubelet.until_capacity(GPU, 2)

    found = [(line["card"], line.get("reason", "")) for line in program.lines if "a card is" in line["event"]]
    xid = f"XID {FALLEN_OFF}"
    assert found[1:] == [(FIRST, xid), (FIRST, ""), (SECOND, ""), (SECOND, xid), (SECOND, "")]


async def test_a_process_for_which_a_gpu_stays_lost_is_replaced(folder: Path, fake_nvml: Nvml) -> None:
    """After a reset, only a new process can use the GPU: the card is healthy, and its events count."""
    nvml = fake_nvml("p100")
    nvml.make_stale()
    async with Program(folder, driver=nvml) as program:
        await start(program)
        await nvml.until_watched(2)
        await program.kubelet.until_capacity(GPU, 2)
        nvml.say("lost 1")
        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        await program.until_said("NVML cannot describe GPU 1: GPU is lost")
        nvml.say()

        await program.kubelet.until_capacity(GPU, 2)
        nvml.xid(1, FALLEN_OFF)
        await program.until_said(f"XID {FALLEN_OFF}")
