"""The host of the acceptance scenarios: GPU-a with minor 0 and GPU-b with minor 1, and cards of other vendors."""

from dataclasses import replace
from typing import Any

from criproxy.devices.boundary import Boundary, Word, boundary
from criproxy.devices.classes.builtin import AMD, ASCEND, BUILTIN, NVIDIA
from criproxy.devices.classes.cards import Card, Stock
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.device_request import DeviceNode, DeviceRequest, EnvVar, MountPoint, Requester
from criproxy.devices.evidence.evidence import Known, weigh

SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
STOCKS = {
    NVIDIA.name: Stock((Card(0, ("/dev/nvidia0",), "GPU-a"), Card(1, ("/dev/nvidia1",), "GPU-b")), SHARED),
    ASCEND.name: Stock(
        tuple(Card(number, (f"/dev/davinci{number}",)) for number in range(4)),
        ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    ),
    AMD.name: Stock((Card(1, ("/dev/dri/card1",)),), ("/dev/kfd",)),
    "ali-npu": Stock((Card(0, ("/dev/npu0",)), Card(1, ("/dev/npu1",)))),
}
ALI = DeviceClass(name="ali-npu", resources=("aliyun.com/npu",), id_format="index", per_device=("/dev/npu{index}",))
ANYBODY = Requester(namespace="default")
NOTHING = Known("podresources", {}, complete=True)


def given(**resources: str) -> Known:
    """What podresources says: resources with ``__`` for ``/`` and ``_`` for ``.``, and ids with commas."""
    named = {name.replace("__", "/").replace("_", "."): tuple(ids.split(",")) for name, ids in resources.items()}
    return Known("podresources", named, complete=True)


def asked(*envs: str, devices: tuple[str, ...] = (), mounts: tuple[str, ...] = (), **more: Any) -> DeviceRequest:  # noqa: ANN401
    """A create with variables such as ``A=1``, device nodes and mounts of /dev/null by their paths."""
    split = (env.partition("=") for env in envs)
    return DeviceRequest(
        envs=tuple(EnvVar(name, value.encode()) for name, _, value in split),
        devices=tuple(DeviceNode(path, path, "rw") for path in devices),
        mounts=tuple(MountPoint(path, "/dev/null") for path in mounts),
        **more,
    )


def rules(*classes: DeviceClass, **options: Any) -> DeviceRules:  # noqa: ANN401 (those of `DeviceRules`)
    """Rules for *classes*; NVIDIA's where none is given."""
    return DeviceRules(classes=classes or (NVIDIA,), **options)


def at_create(
    create: DeviceRequest, *known: Known, of: DeviceRules | None = None, who: Requester = ANYBODY
) -> Boundary:
    """What becomes of *create* on the host, with what the sources know; its own output passes unchanged."""
    chosen = of or rules()
    evidence = weigh(chosen.classes, create, known, STOCKS)
    done = boundary(chosen, who, create, evidence, STOCKS)
    if not done.refusal:
        again = boundary(chosen, who, done.asked, weigh(chosen.classes, done.asked, known, STOCKS), STOCKS)
        assert again.asked == done.asked
    return done


def envs(done: Boundary) -> list[str]:
    """The variables, as ``A=1``."""
    return [f"{env.name}={env.value.decode()}" for env in done.asked.envs]


def paths(done: Boundary) -> list[str]:
    """The device nodes in the container."""
    return [node.container_path for node in done.asked.devices]


def words(done: Boundary) -> list[Word]:
    """What was found."""
    return [finding.word for finding in done.findings]


def every(**options: Any) -> DeviceRules:  # noqa: ANN401
    """Rules for all classes that are built in."""
    return replace(rules(**options), classes=tuple(BUILTIN.values()))
