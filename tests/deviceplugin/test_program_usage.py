"""`criproxy device-plugin` as a process that watches the use of made-up GPUs, beside a daemon that is told."""

from pathlib import Path

from criproxy.devices.classes.vgpu_profiles import Quota
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.program import Program
from tests.deviceplugin.usage.hosts import container_id, grant, put_process
from tests.nvml import Driver, Used

PROFILE = "{name: gpu-8g, class: nvidia, memory: 7Gi}"
QUOTA = Quota(profile="gpu-8g", memory_mib=7168, cores_percent=0)


async def test_a_container_over_its_quota_is_found_by_nvml(folder: Path) -> None:
    """The process that asks NVML runs by default where GPUs are cut; the other container on the card is within its."""
    driver = Driver(
        gpus=(t4(0),),
        used=(Used(card="GPU-0", pid=10, memory_mib=9000), Used(card="GPU-0", pid=20, memory_mib=7000)),
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
