"""The program `criproxy device-plugin`, from its start to its end, as the kubelet and systemd see it."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGTERM

from criproxy.devices.classes.vgpu_profiles import Quota
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.news import PATIENT_S
from tests.deviceplugin.program import NPU, Program, policy
from tests.deviceplugin.test_program_http import ask, values
from tests.deviceplugin.usage.hosts import container_id, grant, put_process
from tests.nvml import Driver, Used

GPU = "nvidia.com/gpu"
BOTH = "{advertise: [nvidia, ali-npu]}"
SHARED = "{advertise: [ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 4}]}"


GOAWAY = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\7\0\0\0\0\0" + b"\0\0\0\0" + b"\0\0\0\x0b"
"""HTTP/2: the settings of a server that then wants no calls, for a reason that gRPC writes to standard error."""


async def test_nothing_but_lines_of_the_log(program: Program) -> None:
    """What gRPC would write beside the log, without level and time, is not written."""
    program.policy.write_text(policy("{advertise: [ali-npu]}"))
    program.host.plug("/dev/npu0")
    called, ended = asyncio.Event(), asyncio.Event()

    async def go_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # a look whether somebody listens ends at once
            writer.write(GOAWAY)
            while await reader.read(65_536):
                called.set()
        writer.close()
        if called.is_set():
            ended.set()

    socket = program.kubelet.plugins_dir / "kubelet.sock"
    socket.parent.mkdir(parents=True)
    async with await asyncio.start_unix_server(go_away, socket):
        await program.ready()
        async with asyncio.timeout(PATIENT_S):
            await ended.wait()
        program.signal(SIGTERM)
        assert await program.ended() == 0

    assert program.other == []


async def test_a_changed_file_counts_at_once(program: Program) -> None:
    """The plugin notices the file by itself; one that is wrong leaves the old one in force, and is told of."""
    await program.begin("{advertise: [ali-npu]}", "/dev/npu0")
    await program.kubelet.until_capacity(NPU, 1)

    program.policy.write_text(policy(SHARED))
    await program.kubelet.until_capacity(NPU, 4)
    program.policy.write_text(policy("{advertise: [ali-gpu]}"))
    await program.until_said("the configuration cannot be used")
    program.signal(SIGHUP)
    await program.until_said("the configuration cannot be used", times=2)

    assert program.kubelet.capacity(NPU) == (4, 4)
    assert program.said(f"{program.policy}:6:")
    await program.until(lambda: any(line.startswith("STATUS=CONFIGURATION NOT USED: ") for line in program.told))
    assert "RELOADING=1" in program.told


async def test_nvidias_flag_for_the_kubelets_socket(folder: Path) -> None:
    """The plugin makes its sockets beside it, and registers there; what has no effect is said."""
    socket = folder / "k" / "device-plugins" / "kubelet.sock"
    arguments = ("--kubelet-dir", str(folder / "other"), "--cdi-feature-flags", "a")
    async with Program(folder, *arguments, KUBELET_SOCKET=str(socket)) as program:
        await program.begin(BOTH, "/dev/npu0")
        assert program.kubelet.plugins_dir == socket.parent

        await program.kubelet.until_capacity(NPU, 1)
        assert program.said("--cdi-feature-flags=a has no effect") == 1


async def test_another_way_to_register_needs_a_restart(program: Program) -> None:
    """A changed `register` is not in force, which is said at each reload until it is as it was; all else is."""
    await program.begin(BOTH, "/dev/npu0")
    changed = BOTH.replace("{", "{register: plugins-registry, ", 1)
    for number, text in enumerate((changed, changed.replace("{", "{health: {holdDown: 5s}, ", 1), BOTH), start=1):
        program.policy.write_text(policy(text))
        await program.until_said("configuration reloaded", times=number)

    await program.kubelet.until_capacity(NPU, 1)
    assert program.said("devices.plugin.register is not in effect yet: restart the device plugin") == 2
    assert list(program.kubelet.registry_dir.iterdir()) == []


async def test_what_contradicts_the_machine_at_the_start_stays_a_problem(folder: Path) -> None:
    """The rest is offered; reading the same files again ends nothing, but the card that was missing does."""
    async with Program(folder, "--http", f"unix://{folder}/http.sock") as program:

        async def problem() -> float:
            return values((await ask(folder, "/metrics"))[1])["criproxy_device_plugin_config_problem[]"]

        section = "{advertise: [ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 4, devices: [7]}]}"
        await program.begin(section, "/dev/npu0")
        await program.kubelet.until_capacity(NPU, 1)

        agrees = "the files match the configuration in effect"
        program.signal(SIGHUP)
        await program.until(lambda: program.said("the configuration cannot be used") > 1 or program.said(agrees) > 0)
        assert not program.said(agrees)
        assert await problem() == 1

        program.host.plug("/dev/npu7")
        await program.until_said(agrees)
        await program.kubelet.until_capacity(NPU, 5)
        assert await problem() == 0


FIRST = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, devices: [%d]}]}}\n"


async def test_a_file_that_contradicts_cards_that_come_later(folder: Path) -> None:
    """A driver that is loaded after the start is compared with the files, too."""
    async with Program(folder, "--nvidia-config", str(folder / "nvidia.yaml")) as program:
        (folder / "nvidia.yaml").write_text(FIRST % 5)
        await program.begin("{advertise: [nvidia]}")
        assert program.said("cannot be used") == 0

        program.host.use(Driver(gpus=(t4(0),)))
        program.host.gpu(t4(0))
        await program.until_said(f"{folder}/nvidia.yaml: error updating device map")
        await program.kubelet.until_capacity(GPU, 1)


async def test_an_index_means_the_same_gpu_until_the_file_is_read_anew(folder: Path) -> None:
    """The GPU that gets the number of one that has left stays whole: a container may have it."""
    async with Program(
        folder, "--nvidia-config", str(folder / "nvidia.yaml"), driver=Driver(gpus=(t4(0), t4(1)))
    ) as program:
        (folder / "nvidia.yaml").write_text(FIRST % 0)
        await program.begin("{advertise: [nvidia]}")
        await program.kubelet.until(lambda: program.kubelet.healthy(GPU) == {"GPU-0::0", "GPU-0::1", "GPU-1"})

        program.host.use(Driver(gpus=(replace(t4(1), index=0),)))
        program.host.unplug("/dev/nvidia0")
        await program.until_said("the card GPU-0, which should be shared, does not exist")
        await program.kubelet.until(lambda: program.kubelet.healthy(GPU) == {"GPU-1"})

        (folder / "nvidia.yaml").write_text(FIRST.replace("2", "3") % 0)
        await program.kubelet.until(lambda: program.kubelet.healthy(GPU) == {f"GPU-1::{n}" for n in range(3)})


async def test_a_file_that_waits_for_a_card(program: Program) -> None:
    """It was refused since a card was not there, of a class that no file in force has: it counts when that comes."""
    await program.begin("{advertise: [nvidia]}", "/dev/npu0")

    sharing = "sharing: [{resource: aliyun.com/npu, replicas: 4, devices: [1]}]"
    program.policy.write_text(policy(f"{{advertise: [nvidia, ali-npu], {sharing}}}"))
    await program.until_said("the configuration cannot be used")
    assert NPU not in program.kubelet.registered
    program.host.plug("/dev/npu1")
    await program.kubelet.until_capacity(NPU, 5)


async def test_a_refused_file_that_is_read_again_at_once_is_refused_again(program: Program) -> None:
    """Also before the cards of its classes, which no file in force has, have been looked for anew."""
    await program.begin("{advertise: [nvidia]}", "/dev/npu0")

    sharing = "sharing: [{resource: aliyun.com/npu, replicas: 4, devices: [1]}]"
    program.policy.write_text(policy(f"{{advertise: [nvidia, ali-npu], {sharing}}}"))
    await program.until_said("the configuration cannot be used")
    program.signal(SIGHUP)
    reloaded = "configuration reloaded"
    await program.until(lambda: program.said("the configuration cannot be used") > 1 or program.said(reloaded) > 0)
    assert not program.said(reloaded)


async def test_cards_come_and_go(program: Program) -> None:
    """Capacity follows; an id that a pod has stays listed as unhealthy until the pod has ended."""
    await program.begin("{advertise: [ali-npu]}")
    await program.until_said("there is no card of this class to offer")

    program.host.plug("/dev/npu0")
    program.host.plug("/dev/npu1")
    await program.kubelet.until_capacity(NPU, 2)
    (mine,) = (await program.kubelet.admit(pod := Pod("one"), {NPU: 1}))[NPU].ids
    program.host.unplug(f"/dev/{mine}")
    await program.kubelet.until_capacity(NPU, 2, healthy=1)
    program.kubelet.remove(pod)
    await program.kubelet.until_capacity(NPU, 1)

    assert mine not in program.kubelet.healthy(NPU)


async def test_the_watchdog_hears_that_it_lives(folder: Path) -> None:
    """As often as systemd wants, and the status says how many resources the kubelet has."""
    async with Program(folder, WATCHDOG_USEC="200000") as program:
        await program.begin(BOTH, "/dev/npu0")

        await program.until(lambda: program.told.count("WATCHDOG=1") > 1)
        await program.until(lambda: "STATUS=1 of 1 resources registered" in program.told)


async def test_its_end_is_quick_and_leaves_nothing(program: Program) -> None:
    """SIGTERM removes its sockets; the kubelet sees its devices as unhealthy."""
    await program.begin(BOTH, "/dev/npu0")
    await program.kubelet.until_capacity(NPU, 1)

    program.signal(SIGTERM)

    assert await program.ended() == 0
    assert "STOPPING=1" in program.told
    assert program.lines[-1]["event"] == "stopped"
    assert [*program.kubelet.plugins_dir.glob("*criproxy*")] == []
    await program.kubelet.until(lambda: program.kubelet.capacity(NPU)[1] == 0)


PROFILE = "{name: gpu-8g, class: nvidia, memory: 7Gi}"
QUOTA = Quota(profile="gpu-8g", memory_mib=7168, cores_percent=0)


async def test_a_container_over_its_quota_is_found_by_nvml(folder: Path) -> None:
    """The process that asks NVML runs by default where GPUs are cut; the other container on the card is within its."""
    driver = Driver(
        gpus=(t4(0),), used=(Used(card="GPU-0", pid=10, memory_mib=9000), Used(card="GPU-0", pid=20, memory_mib=7000))
    )
    async with Program(folder, driver=driver) as program:
        put_process(program.host.root, 10, "web")
        put_process(program.host.root, 20, "batch")
        grants = (grant(name, card="GPU-0", kind="nvidia", quota=QUOTA) for name in ("web", "batch"))
        daemon = await program.with_daemon(*grants)
        await program.begin(f"{{advertise: [nvidia], profiles: [{PROFILE}]}}")
        (over,) = await daemon.until_said("quota-incident")
        (use,) = (await daemon.until_use("'memory_mib': 9000"))["classes"]

    assert (over["container_id"], over["device_class"], over["card"]) == (container_id("web"), "nvidia", "GPU-0")
    assert (over["used"], over["allowed"], over["action"]) == (9000, 7168, "stop")
    assert use["cards"] == [{"card": "GPU-0", "memory_mib": 16000, "total_mib": 15 * 1024, "cores_percent": 0.0}]
    assert [each["memory_mib"] for each in use["containers"]] == [9000, 7000]
    assert "problem" not in use
