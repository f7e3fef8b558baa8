"""The program `criproxy device-plugin`, from its start to its end, as the kubelet and systemd see it."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGHUP, SIGTERM
from tempfile import TemporaryDirectory

import pytest

from tests.deviceplugin.hosts import t4
from tests.deviceplugin.kubelet import Pod
from tests.deviceplugin.program import NPU, Program, policy
from tests.nvml import Driver

GPU = "nvidia.com/gpu"
ANNOTATION = "devices.criproxy.io"
BOTH = "{advertise: [nvidia, ali-npu]}"
SHARED = "{advertise: [ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 4}]}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="p") as name:
        yield Path(name)


async def test_a_class_of_nodes_is_offered_and_allocated(folder: Path) -> None:
    """Two nodes of a class that no vendor's program knows are registered, listed, and allocated with evidence."""
    async with Program(folder) as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.host.plug("/dev/npu0", "0000:3b:00.0", numa_node=1)
        program.host.plug("/dev/npu3")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 2)

        given = await program.kubelet.admit(Pod("one"), {NPU: 2})

        assert program.kubelet.registered == [NPU]
        assert program.kubelet.healthy(NPU) == {"npu0", "npu3"}
        assert set(given[NPU].ids) == {"npu0", "npu3"}
        response = given[NPU].answer
        assert {spec.container_path for spec in response.devices} == {"/dev/npu0", "/dev/npu3"}
        (value,) = [value for key, value in response.annotations.items() if key == f"{ANNOTATION}/aliyun.com_npu"]
        assert set(value.split(",")) == {"npu0", "npu3"}


async def test_nvidia_cards_are_offered_as_nvidia_does(folder: Path) -> None:
    """NVML's GPUs have their UUIDs; flags count more than variables, and these more than the file."""
    driver = Driver(gpus=(t4(0), t4(1)))
    arguments = ("--nvidia-config", str(folder / "nvidia.yaml"), "--device-list-strategy=envvar")
    async with Program(
        folder, *arguments, driver=driver, DEVICE_LIST_STRATEGY="volume-mounts", DEVICE_ID_STRATEGY="index"
    ) as program:
        program.policy.write_text(policy(BOTH))
        (folder / "nvidia.yaml").write_text("version: v1\nflags: {plugin: {deviceIDStrategy: uuid}}\n")
        for gpu in driver.gpus:
            program.host.gpu(gpu)
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 2)

        given = await program.kubelet.admit(Pod("one"), {GPU: 1})

        (uuid,) = given[GPU].ids
        assert uuid in {"GPU-0", "GPU-1"}
        assert dict(given[GPU].answer.envs) == {"NVIDIA_VISIBLE_DEVICES": uuid.removeprefix("GPU-")}


async def test_a_kubelet_that_restarts_has_the_resource_again(folder: Path) -> None:
    """The plugin registers anew by itself, and what pods have stays theirs."""
    async with Program(folder) as program:
        program.policy.write_text(policy(SHARED))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 4)
        given = await program.kubelet.admit(Pod("one"), {NPU: 1})

        await program.kubelet.restart(killed=True)
        await program.kubelet.until_capacity(NPU, 4)

        assert program.kubelet.registered == [NPU, NPU]
        again = await program.kubelet.admit(Pod("one"), {NPU: 1})
        assert again[NPU].ids == given[NPU].ids
        assert await program.kubelet.admit(Pod("two"), {NPU: 3})


async def test_a_changed_file_counts_at_once(folder: Path) -> None:
    """The plugin notices the file by itself; one that is wrong leaves the old one in force, and is told of."""
    async with Program(folder) as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
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
        program.policy.write_text(policy(BOTH))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        assert program.kubelet.plugins_dir == socket.parent
        await program.ready()

        await program.kubelet.until_capacity(NPU, 1)
        assert program.said("cdi-feature-flags has no effect") == 1


async def test_another_way_to_register_needs_a_restart(folder: Path) -> None:
    """A changed `register` is not in force, which is said at each reload until it is as it was; all else is."""
    async with Program(folder) as program:
        program.policy.write_text(policy(BOTH))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
        changed = BOTH.replace("{", "{register: plugins-registry, ", 1)
        for number, text in enumerate((changed, changed.replace("{", "{health: {holdDown: 5s}, ", 1), BOTH), start=1):
            program.policy.write_text(policy(text))
            await program.until_said("configuration reloaded", times=number)

        await program.kubelet.until_capacity(NPU, 1)
        assert program.said("devices.plugin.register is not in force: restart the device plugin") == 2
        assert list(program.kubelet.registry_dir.iterdir()) == []


async def test_what_contradicts_the_machine_is_refused_at_a_reload(folder: Path) -> None:
    """A file that shares a card that is not there does not replace one that works."""
    async with Program(folder) as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 1)

        section = "{advertise: [ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 4, devices: [7]}]}"
        program.policy.write_text(policy(section))
        await program.until_said("the configuration cannot be used")

        assert program.said("cannot be shared as devices.plugin.sharing says")
        assert program.kubelet.capacity(NPU) == (1, 1)


async def test_a_file_may_share_cards_of_a_class_that_is_new(folder: Path) -> None:
    """Its cards are looked for before the file is judged; those of other classes stay as they are."""
    async with Program(folder, driver=Driver(gpus=(t4(0),))) as program:
        program.policy.write_text(policy("{advertise: [nvidia]}"))
        program.host.gpu(t4(0))
        program.host.plug("/dev/npu0")
        program.host.plug("/dev/npu1")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(GPU, 1)

        section = "{advertise: [nvidia, ali-npu], sharing: [{resource: aliyun.com/npu, replicas: 4, devices: [1]}]}"
        program.policy.write_text(policy(section))
        await program.kubelet.until_capacity(NPU, 5)
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        await program.kubelet.until(lambda: program.kubelet.capacity(GPU)[1] == 0)

        await program.kubelet.until_capacity(NPU, 2)
        assert program.kubelet.registered[:2] == [GPU, NPU]


async def test_what_pods_have_survives_a_restart_of_the_program(folder: Path) -> None:
    """A card that went meanwhile stays listed as unhealthy, and no other id is given twice."""
    async with Program(folder) as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        program.host.plug("/dev/npu0")
        program.host.plug("/dev/npu1")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 2)
        (mine,) = (await program.kubelet.admit(pod := Pod("one"), {NPU: 1}))[NPU].ids

        program.signal(SIGTERM)
        assert await program.ended() == 0
        program.host.unplug(f"/dev/{mine}")
        program.told.clear()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 2, healthy=1)
        assert program.kubelet.unhealthy(NPU) == {mine}
        assert (await program.kubelet.admit(Pod("two"), {NPU: 1}))[NPU].ids != (mine,)
        program.kubelet.remove(pod)
        await program.kubelet.until_capacity(NPU, 1)


async def test_a_bad_file_at_the_start_ends_the_program(folder: Path) -> None:
    """It says what is wrong and where, as `criproxy check` does, and exits with 1."""
    async with Program(folder, "--log-format", "console") as program:
        program.policy.write_text(policy("{advertise: [ali-gpu], registre: kubelet}"))
        await program.start()

        assert await program.ended() == 1
        assert program.other
        assert all(line.startswith(f"{program.policy}:6:") for line in program.other)


async def test_cards_come_and_go(folder: Path) -> None:
    """Capacity follows; an id that a pod has stays listed as unhealthy until the pod has ended."""
    async with Program(folder) as program:
        program.policy.write_text(policy("{advertise: [ali-npu]}"))
        await program.kubelet.start()
        await program.ready()
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


async def test_the_kubelet_may_come_later(folder: Path) -> None:
    """Without a kubelet, without its folder and without NVML the plugin is ready, and says once what is missing."""
    async with Program(folder, driver=Driver(fails=9)) as program:
        program.policy.write_text(policy(BOTH))
        program.host.plug("/dev/npu0")
        await program.ready()
        await program.until_said("device-plugins: is missing")
        assert program.said("NVML: ") == 1

        await program.kubelet.start()
        await program.kubelet.until_capacity(NPU, 1)


async def test_the_watchdog_hears_that_it_lives(folder: Path) -> None:
    """As often as systemd wants, and the status says how many resources the kubelet has."""
    async with Program(folder, WATCHDOG_USEC="200000") as program:
        program.policy.write_text(policy(BOTH))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()

        await program.until(lambda: program.told.count("WATCHDOG=1") > 1)
        await program.until(lambda: "STATUS=1 of 1 resources registered" in program.told)


@pytest.mark.parametrize("register", ["kubelet", "plugins-registry"])
async def test_its_end_is_quick_and_leaves_nothing(folder: Path, register: str) -> None:
    """SIGTERM removes its sockets; the kubelet sees its devices as unhealthy."""
    async with Program(folder, "--register", register) as program:
        program.policy.write_text(policy(BOTH))
        program.host.plug("/dev/npu0")
        await program.kubelet.start()
        await program.ready()
        await program.kubelet.until_capacity(NPU, 1)

        program.signal(SIGTERM)

        assert await program.ended() == 0
        assert "STOPPING=1" in program.told
        assert program.lines[-1]["event"] == "stopped"
        left = [*program.kubelet.plugins_dir.glob("*criproxy*"), *program.kubelet.registry_dir.iterdir()]
        assert left == []
        if register == "kubelet":
            await program.kubelet.until(lambda: program.kubelet.capacity(NPU)[1] == 0)
