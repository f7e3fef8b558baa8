"""The host of the acceptance scenarios: GPU-a with minor 0 and GPU-b with minor 1, and cards of other vendors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from criproxy.devices.boundary import Boundary, boundary
from criproxy.devices.classes.builtin import AMD, ASCEND, NVIDIA
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
_VISIBLE = "_VISIBLE_DEVICES="
NOTHING = Known("podresources", {}, complete=True)


def given(**resources: str) -> Known:
    """What podresources says: resources with ``__`` for ``/`` and ``_`` for ``.``, and ids with commas."""
    named = {name.replace("__", "/").replace("_", "."): tuple(ids.split(",")) for name, ids in resources.items()}
    return Known("podresources", named, complete=True)


def asked(*envs: str, devices: tuple[str, ...] = (), mounts: tuple[str, ...] = (), **more: Any) -> DeviceRequest:  # noqa: ANN401
    """A create with variables such as ``A=1``, device nodes and mounts of /dev/null by their paths."""
    split = (env.replace("_V=", _VISIBLE, 1).partition("=") for env in envs)
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
    create: DeviceRequest,
    *known: Known,
    of: DeviceRules | None = None,
    who: Requester = ANYBODY,
    sets: Mapping[str, bool] | None = None,
) -> Boundary:
    """What becomes of *create* on the host, with what the sources know; its own output passes unchanged.

    *sets*: by CDI device of NVIDIA's, whether its specification sets the variable.
    """
    chosen = of or rules()
    stocks = STOCKS if sets is None else {**STOCKS, "nvidia": replace(STOCKS["nvidia"], cdi_sets=sets)}
    done = boundary(chosen, who, create, weigh(chosen.classes, create, known, stocks), stocks)
    if not done.refusal:
        again = boundary(chosen, who, done.asked, weigh(chosen.classes, done.asked, known, stocks), stocks)
        assert again.asked == done.asked
    assert done.asked.cdi == create.cdi
    assert all(node.permissions == "rw" for node in done.asked.devices)
    return done


def envs(done: Boundary) -> str:
    """The variables, as ``A=1 B=2``; here and in `asked`, ``X_V`` stands for ``X_VISIBLE_DEVICES``."""
    return " ".join(f"{env.name}={env.value.decode()}" for env in done.asked.envs).replace(_VISIBLE, "_V=")


def row(id: str, create: DeviceRequest, known: Known | None, envs: str | None, words: str = "*", **more: Any) -> Any:  # noqa: ANN401
    """A row for `check`: a create, what a source knows, the variables that are left, and the findings.

    *more*: arguments of `at_create`, the mounts that are left, and the nodes. None and ``*`` are not checked.
    """
    options = {name: more.pop(name) for name in ("of", "who", "sets") if name in more}
    expected = more | ({} if words == "*" else {"words": words}) | ({} if envs is None else {"envs": envs})
    return pytest.param(partial(at_create, create, *filter(None, [known]), **options), expected, id=id)


def check(create: Callable[[], Boundary], expected: Mapping[str, object]) -> None:
    """What is expected comes of a create."""
    done = create()
    found = {
        "envs": envs(done),
        "mounts": tuple(mount.container_path for mount in done.asked.mounts),
        "nodes": [node.container_path for node in done.asked.devices],
        "words": words(done),
        "refused": done.refusal and done.refusal.code,
    }
    assert {name: found[name] for name in expected} == expected


def words(done: Boundary) -> str:
    """What was found, such as ``hidden stripped``."""
    return " ".join(finding.word.value for finding in done.findings)
