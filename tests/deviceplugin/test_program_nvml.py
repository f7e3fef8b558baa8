"""`criproxy device-plugin` beside an NVML that fails, is slow, or loses cards, which recover: with the real pynvml."""

from collections.abc import Mapping
from pathlib import Path
from signal import SIGHUP, SIGKILL

import pytest

from criproxy.host.nvml import INITIALISED_S
from lab.kubelet.device_endpoint import AdmissionError
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.program import Program
from tests.deviceplugin.test_program_health import FIRST, SECOND, Nvml
from tests.deviceplugin.test_program_http import ask, values

GPU, SLICE, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
DIVIDED = {GPU: (1, 1), SLICE: (3, 3), LARGE: (1, 1)}
"""What is offered of the cards of a100.txt with ``mixed``: one GPU is whole, the other one has four MIG devices."""
MIXED = "--mig-strategy=mixed"
MISMATCH = "RM has detected an NVML/RM version mismatch."
HAS_MISMATCH = "fail 18"
FALLEN_OFF, A_PROGRAMS = 79, 31
A_RESET, RESET = 1, "NVML: the driver asks for a reset of the GPU"


def http(folder: Path) -> str:
    """Return the option with which metrics and health are served."""
    return f"--http=unix://{folder}/http.sock"


async def start(program: Program, more: str = "") -> None:
    """Start it with a kubelet; it advertises NVIDIA's cards, and containers with a card that fails are stopped."""
    await program.begin(f"{{advertise: [nvidia], health: {{holdDown: 10ms, onUnhealthy: stop}}{more}}}")


def offered(program: Program) -> Mapping[str, tuple[int, int]]:
    """Return how many devices the kubelet has of each resource, and how many of them are healthy."""
    return {name: program.kubelet.capacity(name) for name in sorted(set(program.kubelet.registered))}


async def test_an_error_of_nvml_changes_nothing(folder: Path, fake_nvml: Nvml) -> None:
    """After SIGHUP, and after a change in /dev, the cards are offered as NVML last described them, and none has failed.

    When NVML works again, what it says counts again.
    """
    nvml = fake_nvml("a100")
    async with Program(folder, MIXED, driver=nvml) as program:
        daemon = await program.with_daemon()
        await start(program)
        await program.kubelet.until(lambda: offered(program) == DIVIDED)
        nvml.say(HAS_MISMATCH)
        program.signal(SIGHUP)
        await program.until_said(MISMATCH)
        program.host.plug("/dev/nvidia7")
        await daemon.until_report(lambda report: MISMATCH in report.get("nvml", ""))
        program.signal(SIGHUP)
        await program.until_said("match the configuration in effect", times=2)

        assert offered(program) == DIVIDED
        assert program.said("a card is unhealthy") == 0
        nvml.cards = "\n".join(nvml.cards.splitlines()[:-1])
        nvml.say()
        program.signal(SIGHUP)
        await program.kubelet.until_capacity(LARGE, 0)
        assert [incident["card"] for incident in await daemon.until_said("device-incident", 1)] == [
            "MIG-00000000-0000-0000-0000-000000000003"
        ]


async def test_what_is_measured_without_an_answer_of_nvml(folder: Path, fake_nvml: Nvml) -> None:
    """No event can arrive, and no card counts as healthy, since none is offered."""
    nvml = fake_nvml("a100-7")
    nvml.say(HAS_MISMATCH)
    healthy, problem = "criproxy_device_plugin_cards['healthy', 'nvidia']", "criproxy_device_plugin_events_problem[]"
    async with Program(folder, "--http", f"unix://{folder}/http.sock", driver=nvml) as program:
        await start(program)
        await program.until_said("until NVML has answered")
        before = values((await ask(folder, "/metrics"))[1])

        nvml.say()
        program.signal(SIGHUP)
        await program.kubelet.until(lambda: bool(program.kubelet.registered))
        after = values((await ask(folder, "/metrics"))[1])
    assert (before[healthy], before[problem]) == (0, 1)
    assert (after[healthy] > 0, after[problem]) == (True, 0)


async def test_a_restart_while_nvml_fails(folder: Path, fake_nvml: Nvml) -> None:
    """No pod gets the card of which another one has a part; all is as before when NVML works."""
    nvml = fake_nvml("a100")
    async with Program(folder, MIXED, driver=nvml) as program:
        await start(program)
        await program.kubelet.until(lambda: offered(program) == DIVIDED)
        given = await program.kubelet.admit(Pod("one"), {SLICE: 1})
        program.signal(SIGKILL)
        await program.ended()
        nvml.say(HAS_MISMATCH)
        program.told.clear()
        await program.ready()
        await program.until_said("until NVML has answered")
        await program.kubelet.until(lambda: not any(healthy for _, healthy in offered(program).values()))

        with pytest.raises(AdmissionError):
            await program.kubelet.admit(Pod("two"), {GPU: 1})
        nvml.say()
        program.signal(SIGHUP)
        await program.kubelet.until(lambda: offered(program) == DIVIDED)
        assert (await program.kubelet.admit(Pod("one"), {SLICE: 1}))[SLICE].ids == given[SLICE].ids
        assert program.said("a card is unhealthy") == 0


async def test_a_first_answer_that_takes_long(folder: Path, fake_nvml: Nvml) -> None:
    """Nothing is offered meanwhile, /readyz says why and since when; then the cards are offered as they are divided."""
    nvml = fake_nvml("a100")
    nvml.hold()
    async with Program(folder, MIXED, http(folder), driver=nvml) as program:
        daemon = await program.with_daemon()
        await start(program)
        await program.until_said("NVML has not answered yet")
        status, text = await ask(folder, "/readyz")

        assert (status, text.startswith("NVML has not answered yet (since 2")) == (503, True), text
        assert offered(program) == {}
        assert (await daemon.until_report(lambda report: "nvml" in report))["nvml_pending"] is True
        daemon.told.clear()
        nvml.hold(held=False)
        await program.kubelet.until(lambda: offered(program) == DIVIDED)
        await program.until_said("the resource is registered", times=len(DIVIDED))
        assert await ask(folder, "/readyz") == (200, "ok\n")
        await daemon.until_report(lambda report: "nvml" not in report and "nvml_pending" not in report)


def test_an_answer_may_take_minutes() -> None:
    """Unused GPUs are initialised one after the other: a program that is ended early would never answer."""
    assert INITIALISED_S >= 300


async def test_the_end_of_a_hold_down_needs_an_answer_of_nvml(folder: Path, fake_nvml: Nvml) -> None:
    """A card is not healthy again while NVML fails, or while the driver wants a reset of the card."""
    nvml = fake_nvml("p100")
    async with Program(folder, driver=nvml) as program:
        daemon = await program.with_daemon()
        await start(program)
        await program.kubelet.until_capacity(GPU, 2)
        await nvml.until_watched(2)
        nvml.say(HAS_MISMATCH)
        nvml.xid(0, FALLEN_OFF)
        await program.kubelet.until_capacity(GPU, 2, healthy=1)
        await program.until_said(MISMATCH)  # the answer to the question at the end of the hold-down

        assert program.kubelet.healthy(GPU) == {SECOND}
        nvml.answer("recovery", 0, A_RESET)
        nvml.say()
        program.signal(SIGHUP)
        await daemon.until_report(lambda report: any(RESET in card.get("reason", "") for card in report["cards"]))
        assert program.kubelet.healthy(GPU) == {SECOND}
        nvml.answer("recovery", 0, 0)
        await program.kubelet.until_capacity(GPU, 2)
        assert [incident["card"] for incident in await daemon.until_said("device-incident", 2)] == [FIRST, FIRST]


async def test_a_gpu_whose_division_nvml_does_not_tell_is_not_offered_whole(folder: Path, fake_nvml: Nvml) -> None:
    """It is as it was before, with its MIG devices, and unhealthy."""
    nvml = fake_nvml("a100")
    async with Program(folder, MIXED, driver=nvml) as program:
        await start(program)
        await program.kubelet.until(lambda: offered(program) == DIVIDED)
        nvml.answer("broken", 0, 999)
        program.signal(SIGHUP)
        await program.until_said("NVML cannot describe GPU 0: Unknown Error")

        await program.kubelet.until(lambda: offered(program) == {GPU: (1, 1), SLICE: (3, 0), LARGE: (1, 0)})


LOST, UNKNOWN = 15, 999


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
