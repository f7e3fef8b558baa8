"""`criproxy device-plugin` as a process that watches the use of made-up GPUs, beside a daemon that is told."""

from pathlib import Path

from criproxy.devices.classes.vgpu_profiles import Quota
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.program import Program, policy
from tests.deviceplugin.usage.hosts import Daemon, container_id, grant, put_process
from tests.nvml import Driver, Used

PROFILE = "{name: gpu-8g, class: nvidia, memory: 7Gi}"
QUOTA = Quota(profile="gpu-8g", memory_mib=7168, cores_percent=0)


async def test_a_container_over_its_quota_is_found_by_nvml(folder: Path) -> None:
    """The process that asks NVML runs by default where GPUs are cut; the other container on the card is within its."""
    driver = Driver(
        gpus=(t4(0),),
        used=(Used(card="GPU-0", pid=10, memory_mib=9000), Used(card="GPU-0", pid=20, memory_mib=7000)),
    )
    async with Program(folder) as program:
        put_process(program.host.root, 10, "web")
        put_process(program.host.root, 20, "batch")
        program.host.use(driver)
        program.host.gpu(driver.gpus[0])
        program.policy.write_text(policy(f"{{advertise: [nvidia], profiles: [{PROFILE}]}}"))
        grants = (grant(name, card="GPU-0", kind="nvidia", quota=QUOTA) for name in ("web", "batch"))
        daemon = Daemon(program.control, *grants)
        await daemon.start()
        await program.kubelet.start()
        await program.ready()
        (over,) = await daemon.until("quota-incident")
        (use,) = (await daemon.until_said("device-usage", "'memory_mib': 9000"))["classes"]
        await daemon.stop()

    assert (over["container_id"], over["device_class"], over["card"]) == (container_id("web"), "nvidia", "GPU-0")
    assert (over["used"], over["allowed"], over["action"]) == (9000, 7168, "stop")
    assert use["cards"] == [{"card": "GPU-0", "memory_mib": 16000, "total_mib": 15 * 1024, "cores_percent": 0.0}]
    assert [each["memory_mib"] for each in use["containers"]] == [9000, 7000]
    assert "problem" not in use


async def test_a_node_without_gpus_has_no_problem(folder: Path) -> None:
    """One policy file is for several kinds of nodes: nothing asks NVML where there is nothing to ask for."""
    async with Program(folder, "--http", f"unix://{folder}/http.sock") as program:
        program.policy.write_text(policy(f"{{advertise: [nvidia], profiles: [{PROFILE}]}}"))
        daemon = Daemon(program.control)
        await daemon.start()
        await program.kubelet.start()
        await program.ready()
        use = await daemon.until_said("device-usage", "'kind': 'nvidia', 'source': 'nvml'}")
        await daemon.stop()

    assert use["classes"] == [{"kind": "nvidia", "source": "nvml"}]
    assert not program.said("usage of cards is unknown")


async def test_use_is_unknown_while_the_driver_fails(folder: Path) -> None:
    """GPUs that NVML has not described since the start are not taken to be unused."""
    async with Program(folder) as program:
        program.host.use(Driver(fails=9))
        program.host.gpu(t4(0))
        program.policy.write_text(policy("{advertise: [nvidia], usage: [{class: nvidia, from: nvml}]}"))
        daemon = Daemon(program.control)
        await daemon.start()
        await program.kubelet.start()
        await program.ready()
        use = await daemon.until_said("device-usage", "'kind': 'nvidia'")
        await daemon.stop()

    assert use["classes"][0]["problem"] == "NVML does not list the NVIDIA cards of this machine"
