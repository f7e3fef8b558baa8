"""What the program that queries NVML reports, with the driver of a made-up machine."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards.nvml_report import NvmlReport
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.model.text.plain import from_plain
from tests.deviceplugin.hosts import a100, part, t4
from tests.nvml import Driver, command, write


def report(folder: Path, driver: Driver) -> NvmlReport:
    """What the program prints."""
    write(folder / "nvml.json", driver)
    done = subprocess.run(command(folder / "nvml.json"), capture_output=True, check=True, timeout=60)
    return from_plain(NvmlReport, json.loads(done.stdout))


def plain(gpus: Sequence[Gpu]) -> list[Gpu]:
    """*gpus* without what tests do not make up."""
    return [replace(gpu, mig=tuple(replace(device, attributes=()) for device in gpu.mig)) for gpu in gpus]


def test_gpus_and_mig_devices(tmp_path: Path) -> None:
    """All that NVML knows, in its order; the name of a profile is made of sizes, slices and the profile's number."""
    parts = part(0), part(2, "1c.3g.20gb", 19968), replace(part(1, "1g.5gb+me"), index=4)
    gpus = t4(0), replace(a100(1), mig_enabled=True, mig=parts, mig_slices=7), a100(2)

    found = report(tmp_path, Driver(gpus=gpus))

    assert plain(found.gpus) == list(gpus)
    assert (found.driver_version, found.cuda_version, found.problem) == ("550.54.15", (12, 4), "")
    assert dict(found.gpus[1].mig[1].attributes)["slices.gi"] == 3
    assert found.peers["GPU-1"].parts == ("MIG-1", "MIG-3", "MIG-2")


@pytest.mark.parametrize("suffix", ["", "+me", "-me", "+gfx", "+me.all"])
def test_what_follows_the_size_of_a_profile(tmp_path: Path, suffix: str) -> None:
    """It is told by NVML's number of the profile, which is another one than the instance has."""
    gpu = replace(a100(0), mig_enabled=True, mig=(part(0, f"1g.5gb{suffix}"),))

    (device,) = report(tmp_path, Driver(gpus=(gpu,))).gpus[0].mig

    assert device.profile == f"1g.5gb{suffix}"


def test_a_gpu_that_is_lost_does_not_hide_others(tmp_path: Path) -> None:
    """It is named with NVML's reason."""
    found = report(tmp_path, Driver(gpus=(t4(0), t4(1)), lost=(0,)))

    assert [gpu.uuid for gpu in found.gpus] == ["GPU-1"]
    assert found.unread == {"0": "GPU is lost"}


def test_a_gpu_whose_memory_nvml_does_not_tell(tmp_path: Path) -> None:
    """It and its MIG devices are reported, as are the others: the name of a profile is made of the device's size."""
    gpu = replace(a100(0), mig_enabled=True, mig=(part(0),))

    found = report(tmp_path, Driver(gpus=(gpu, t4(1)), unsupported=("memory",)))

    assert found.problem == ""
    assert [(each.uuid, each.memory_mib) for each in found.gpus] == [("GPU-0", 0), ("GPU-1", 0)]
    assert [each.profile for each in found.gpus[0].mig] == ["1g.5gb"]


def test_nvml_that_does_not_start(tmp_path: Path) -> None:
    """The reason is NVML's, and the program ends well."""
    assert report(tmp_path, Driver(fails=9)) == NvmlReport(problem="NVML: Driver Not Loaded")


def test_no_nvml(tmp_path: Path) -> None:
    """Where the library is not there, that is the reason."""
    program = (
        sys.executable,
        "-c",
        "import sys; sys.modules['pynvml'] = None; from criproxy.deviceplugin.cards.nvml_report import main; main()",
    )
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)

    assert "nvidia-ml-py, which criproxy needs to query NVML, is not installed" in done.stdout


def test_attributes_are_named_as_labels_end(tmp_path: Path) -> None:
    """Slices, engines and multiprocessors."""
    device = replace(part(0), attributes=(("multiprocessors", 14), ("engines.copy", 1)))
    gpu = replace(a100(0), mig_enabled=True, mig=(device,))

    (found,) = report(tmp_path, Driver(gpus=(gpu,))).gpus[0].mig

    names = "slices.gi slices.ci engines.copy engines.decoder engines.encoder engines.jpeg engines.ofa multiprocessors"
    assert found == replace(part(0), attributes=tuple(zip(names.split(), (1, 1, 1, 0, 0, 0, 0, 14), strict=True)))
