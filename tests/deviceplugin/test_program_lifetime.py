"""What the daemon is told of the beginning and the end of the program."""

from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from criproxy.deviceplugin.cards.vgpu_files import ASIDE, former_path
from criproxy.devices.plugin.enforcement import HAMI
from tests import failing_reader
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.program import NPU, Program, policy

FAILED = f"criproxy failed at the configuration: {failing_reader.RAISED}"


def lifetimes(daemon: Daemon) -> list[bool]:
    """What the daemon was told: a beginning is True, an end False."""
    return [arguments["running"] for arguments in daemon.said("device-plugin")]


@pytest.fixture
async def node(program: Program) -> tuple[Program, Daemon]:
    """Return a program that is not started yet, on a machine with an NPU, and a daemon."""
    program.policy.write_text(policy("{advertise: [ali-npu]}"))
    program.host.plug("/dev/npu0")
    await program.kubelet.start()
    return program, await program.with_daemon()


async def test_it_says_that_it_begins_and_ends(node: tuple[Program, Daemon]) -> None:
    """First of all and last of all: no report follows the end."""
    program, daemon = node
    await program.ready()
    await program.kubelet.until_capacity(NPU, 1)
    await daemon.until_said("device-inventory", 1)
    program.signal(SIGTERM)

    assert await program.ended() == 0
    await daemon.until_said("device-plugin", 2)
    assert daemon.told[-1][0] == "device-plugin"
    assert lifetimes(daemon) == [True, False]
    names = {arguments["instance"] for name, arguments in daemon.told if name in ("device-plugin", "device-inventory")}
    assert len(names) == 1, "each run has one name"
    assert names != {""}


async def test_it_reports_what_it_cannot_remove(node: tuple[Program, Daemon]) -> None:
    """The daemon shows it in `status --check`."""
    program, daemon = node
    vgpus = program.host.root / HAMI.containers[1:]
    vgpus.mkdir(parents=True)
    former_path(vgpus / "GPU-a_gpu-8g_0").touch()  # no folder
    await program.ready()

    report = await daemon.until_report(lambda each: "unremoved" in each)

    assert report["unremoved"].startswith(f"{vgpus}/{ASIDE}.GPU-a_gpu-8g_0.")
    assert report["unremoved"].endswith(": Not a directory")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(policy("{advertise: [ali-gpu]}"), "policy.yaml:6:", id="a-mistake"),
        pytest.param(f"# {failing_reader.WORD}\n", FAILED, id="a-defect-of-criproxy"),
    ],
)
async def test_it_says_no_goodbye_if_it_cannot_start(node: tuple[Program, Daemon], text: str, why: str) -> None:
    """It says why: `status --check` shows that there are no cards, and which file to correct."""
    program, daemon = node
    program.policy.write_text(text)
    await program.start()

    assert await program.ended() == 1
    await daemon.until_said("device-plugin", 2)
    assert lifetimes(daemon) == [True, True]
    (refused,) = (arguments["refused"] for _, arguments in daemon.told if "refused" in arguments)
    assert why in refused


async def test_a_reload_at_which_criproxy_fails(node: tuple[Program, Daemon]) -> None:
    """The configuration before stays, and the daemon is told why, until there is a good file."""
    program, daemon = node
    await program.ready()
    good = program.policy.read_text()
    program.policy.write_text(f"# {failing_reader.WORD}\n")

    report = await daemon.until_report(lambda each: "refused" in each)

    assert report["refused"] == FAILED
    program.policy.write_text(good)
    await program.until_said("the files match the configuration in effect")
    await program.kubelet.until_capacity(NPU, 1)


async def test_a_daemon_that_does_not_answer_delays_no_end_for_long(node: tuple[Program, Daemon]) -> None:
    """The program waits for its timeout, and ends with the same status and without a word about it."""
    program, daemon = node
    await program.ready()
    daemon.hangs = ["device-plugin"]
    program.signal(SIGTERM)

    assert await program.ended() == 0
    await daemon.until_said("device-plugin", 2)
    assert lifetimes(daemon) == [True, False]
    assert program.said("Traceback") == 0
    assert program.other == []


async def test_a_socket_of_a_former_resource_is_removed(folder: Path) -> None:
    """The kubelet would go on dialling what a killed program has left in plugins_registry."""
    async with Program(folder, "--register", "plugins-registry") as program:
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        for rename in ("former", "later"):
            sharing = f"[{{resource: {NPU}, replicas: 2, rename: aliyun.com/{rename}}}]"
            program.policy.write_text(policy(f"{{advertise: [ali-npu], sharing: {sharing}}}"))
            program.told.clear()
            await program.ready()
            await program.kubelet.until_capacity(f"aliyun.com/{rename}", 2)
            assert [each.name for each in program.kubelet.registry_dir.iterdir()] == [
                f"criproxy-aliyun.com_{rename}.sock"
            ]
            program.signal(SIGKILL)
            await program.ended()
