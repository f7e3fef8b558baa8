"""Block I/O is limited as a class says, and as before when it goes: real loop devices in real cgroups."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.controls.block_io import V1_FILES, V1_WEIGHT, V2_LIMITS, V2_WEIGHT, BlockIoLimits
from criproxy.controls.journal import Journal
from criproxy.model.controls import NOTHING_DESIRED, BlockIo, ContainerControls, Throttle
from tests.controls.cgroups import UNIFIED, Cgroup
from tests.controls.disks import Disk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

MIB = 1 << 20


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Disk]]:
    """Two of them."""
    with Disk(tmp_path, "a") as one, Disk(tmp_path, "b") as other:
        yield [one, other]


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """The cgroup of a container."""
    with Cgroup() as made:
        yield made


@pytest.fixture
def part(tmp_path: Path) -> BlockIoLimits:
    """What is tested."""
    return again(tmp_path)


def again(state: Path) -> BlockIoLimits:
    """The same after a restart of the service, which may have been killed."""
    journal = Journal.open(state / "state", Path("/"))
    journal.keep_containers({"c": ContainerControls(cgroup="/", block_io=BlockIo())})  # as before each call of a part
    return BlockIoLimits(Path("/"), journal)


@pytest.fixture
def others(tmp_path: Path) -> BlockIoLimits:
    """Another program."""
    return again(tmp_path / "others")


def controls(cgroup: Cgroup, *throttles: Throttle, weight: int | None = None) -> ContainerControls:
    """Return the controls of a container with this cgroup."""
    return ContainerControls(cgroup=cgroup.path, block_io=BlockIo(weight=weight, throttles=throttles))


def limits(cgroup: Cgroup) -> dict[str, str]:
    """Return what the kernel shows, in the notation of cgroup v2: device → its limits."""
    if UNIFIED:
        lines = cgroup.file(V2_LIMITS).read_text().splitlines()
        return {device: rest for device, _, rest in (line.partition(" ") for line in lines)}
    found: dict[str, dict[str, str]] = {}
    for key, name in V1_FILES.items():
        if key != "weight":
            for line in cgroup.file(name).read_text().splitlines():
                device, value = line.split()
                found.setdefault(device, dict.fromkeys(list(V1_FILES)[:4], "max"))[key] = value
    return {device: " ".join(f"{key}={value}" for key, value in each.items()) for device, each in found.items()}


def weights(cgroup: Cgroup) -> list[str]:
    """Return the lines with the weights that the kernel shows."""
    return cgroup.file(V2_WEIGHT if UNIFIED else V1_FILES["weight"]).read_text().splitlines()


def test_limits_are_set_and_go(cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits) -> None:
    """Of several devices, and in the end none."""
    one, two = disks
    wanted = controls(
        cgroup,
        Throttle(devices=(one.path, two.path), read_bps=50 * MIB, write_bps=10 * MIB),
        Throttle(devices=(two.path,), read_bps=MIB, read_iops=1000, write_iops=500),
    )

    assert part.apply("c", wanted, None) == []
    assert limits(cgroup) == {
        one.number: "rbps=52428800 wbps=10485760 riops=max wiops=max",
        two.number: "rbps=1048576 wbps=10485760 riops=1000 wiops=500",
    }
    assert part.look("c", wanted) == []
    assert part.drift == 0

    assert part.forget("c", wanted) == []
    assert limits(cgroup) == {}


def test_a_limit_limits(cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits) -> None:
    """A MiB takes as long as it has to."""
    disk = disks[0]
    part.apply("c", controls(cgroup, Throttle(devices=(disk.path,), write_bps=2 * MIB)), None)

    began_s = time.monotonic()
    command = f"dd if=/dev/zero of={disk.path} bs=65536 count=16 oflag=direct 2>/dev/null"
    writer = cgroup.run("sh", "-c", command)

    assert writer.wait() == 0
    assert time.monotonic() - began_s > 0.3


def test_another_class_replaces_the_first(
    cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits, tmp_path: Path
) -> None:
    """What only the first one limits has no limit any more, also after a restart of the service."""
    one, two = disks
    first = controls(cgroup, Throttle(devices=(one.path, two.path), read_bps=MIB, write_iops=100))
    second = controls(cgroup, Throttle(devices=(two.path,), read_bps=2 * MIB))
    part.apply("c", first, None)

    assert again(tmp_path).apply("c", second, first) == []

    assert limits(cgroup) == {two.number: "rbps=2097152 wbps=max riops=max wiops=max"}
    assert part.apply("c", ContainerControls(cgroup=cgroup.path), second) == []
    assert limits(cgroup) == {}


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_others_limit_stays(
    cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits, others: BlockIoLimits, tmp_path: Path, *, is_killed: bool
) -> None:
    """What a class leaves out; what it has replaced comes back, also from a service that was killed meanwhile."""
    one, two = disks
    limited = Throttle(devices=(one.path,), read_bps=7 * MIB), Throttle(devices=(two.path,), write_iops=7)
    others.apply("c", controls(cgroup, *limited), None)
    before = limits(cgroup)
    wanted = controls(cgroup, Throttle(devices=(one.path,), read_bps=MIB, write_bps=MIB))

    part.apply("c", wanted, None)
    assert limits(cgroup) == before | {one.number: "rbps=1048576 wbps=1048576 riops=max wiops=max"}

    part = again(tmp_path) if is_killed else part
    part.look("c", wanted)
    part.forget("c", wanted)
    assert limits(cgroup) == before


@pytest.mark.parametrize("looks", [False, True])
def test_a_service_that_was_killed_before_its_first_write(
    cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits, others: BlockIoLimits, *, looks: bool
) -> None:
    """It had stored what the container shall have, and not what it had."""
    others.apply("c", controls(cgroup, Throttle(devices=(disks[0].path,), read_bps=7 * MIB)), None)
    before, wanted = limits(cgroup), controls(cgroup, Throttle(devices=(disks[0].path,), read_bps=MIB))

    assert (part.look("c", wanted) if looks else part.apply("c", wanted, wanted)) == []
    assert limits(cgroup) == {disks[0].number: "rbps=1048576 wbps=max riops=max wiops=max"}
    part.forget("c", wanted)
    assert limits(cgroup) == before


def test_a_look_repairs_what_others_have_changed(
    cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits, others: BlockIoLimits
) -> None:
    """And counts it; what they have changed since is not removed with the class."""
    disk = disks[0]
    wanted = controls(cgroup, Throttle(devices=(disk.path,), read_bps=MIB))
    other = controls(cgroup, Throttle(devices=(disk.path,), read_bps=2 * MIB))
    part.apply("c", wanted, None)
    others.apply("c", other, None)

    assert part.look("c", wanted) == []
    assert limits(cgroup) == {disk.number: "rbps=1048576 wbps=max riops=max wiops=max"}
    assert part.drift == 1

    others.apply("c", other, None)
    part.forget("c", wanted)
    assert limits(cgroup) == {disk.number: "rbps=2097152 wbps=max riops=max wiops=max"}


def test_a_device_that_appears_gets_its_limit(
    cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits, tmp_path: Path
) -> None:
    """Paths with * are looked up again; that is no drift. A link leads to its device, and other files are none."""
    links = tmp_path / "links"
    links.mkdir()
    (links / "disk0").touch()
    wanted = controls(cgroup, Throttle(devices=(f"{links}/disk*",), read_bps=MIB))
    assert part.apply("c", wanted, None) == [f"there is no disk {links}/disk*; partitions have no limits"]
    (links / "disk1").symlink_to(disks[0].path)

    part._devices._there = []  # as if a device had come
    assert part.configure(NOTHING_DESIRED) == []
    assert part.look("c", wanted) == []

    assert limits(cgroup) == {disks[0].number: "rbps=1048576 wbps=max riops=max wiops=max"}
    assert part.drift == 0


def test_weights_with_bfq(cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits) -> None:
    """Of all devices, and of one; the first that has another scheduler is said."""
    one, two = disks
    one.scheduler.write_text("bfq")
    wanted = controls(cgroup, Throttle(devices=(one.path,), weight=500), weight=300)

    assert part.apply("c", wanted, None) == []
    assert weights(cgroup) == ["default 300", f"{one.number} 500"]
    assert Path(one.path).name in part.machine()["bfq"]

    assert part.forget("c", wanted) == []
    assert weights(cgroup) == ["default 100"]
    file = cgroup.file(V2_WEIGHT if UNIFIED else V1_FILES["weight"])
    why = "weights need the I/O scheduler bfq: echo bfq >/sys/block/NAME/queue/scheduler"
    said = part.apply("c", controls(cgroup, Throttle(devices=(two.path,), weight=500)), None)
    assert said == [f"{file} of {two.number}: {why}"]


def test_values_that_the_kernel_refuses_are_said(cgroup: Cgroup, disks: list[Disk], part: BlockIoLimits) -> None:
    """The others are set."""
    disk = disks[0]
    disk.scheduler.write_text("bfq")
    wanted = controls(cgroup, Throttle(devices=(disk.path,), read_bps=MIB), weight=5000)

    said = part.apply("c", wanted, None)

    file = cgroup.file(V2_WEIGHT if UNIFIED else V1_WEIGHT)
    assert said == [f"{file} of all devices: Numerical result out of range"]
    assert limits(cgroup) == {disk.number: "rbps=1048576 wbps=max riops=max wiops=max"}


def test_a_container_that_is_gone_is_no_trouble(disks: list[Disk], part: BlockIoLimits) -> None:
    """Nor one that has not begun."""
    with Cgroup() as cgroup:
        pass
    wanted = controls(cgroup, Throttle(devices=(disks[0].path,), read_bps=MIB), weight=300)

    assert part.apply("c", wanted, None) == part.look("c", wanted) == part.forget("c", wanted) == []
