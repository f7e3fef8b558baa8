"""Who keeps the feature file, what is in it, and what is said of it."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.label_updater import LabelUpdater, has_content, labels_note, node_labels, write
from criproxy.deviceplugin.resources.kubelet_state import InUse
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.deviceplugin.resources.resource_builder import Served
from criproxy.deviceplugin.server.plugin import Place
from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.classes.offers import Offered, SharedCards
from criproxy.devices.plugin.plan import NVIDIA_ALONE, Labels, PluginPlan
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.node import Named
from tests.deviceplugin.resources.test_resource_builder import of_ali
from tests.node.world import RecordingLog


async def nobody() -> InUse | None:
    """No kubelet is asked."""
    return None


def labelling(file: Path, log: RecordingLog, host_root: Path = Path("/")) -> LabelUpdater:
    """The part of a program that offers two cards, which are shared."""
    plan = of_ali(SharedCards(name="aliyun.com/npu", replicas=2)).plan
    loaded = Loaded(plan=replace(plan, labels=Labels(file=str(file), interval_s=3600.0)))
    plugins = PluginManager(Place(kubelet_dir=file.parent), nobody, Tasks(log, Failures()))
    publisher = Publisher(loaded, plugins, dict, dict, log)
    return LabelUpdater(host_root, publisher, log)


async def test_a_folder_that_is_missing_is_told_of_once(tmp_path: Path) -> None:
    """Each look fails at another name that was made up for a moment; the one that counts is said."""
    file, log = tmp_path / "missing" / "criproxy", RecordingLog()
    one = labelling(file, log)

    await one._update()
    await one._update()

    said = [line for line in log.lines if "cannot be written" in str(line)]
    assert len(said) == 1
    assert f"{file}: No such file or directory" in str(said[0])


async def test_a_second_program_leaves_the_file_of_the_first(tmp_path: Path) -> None:
    """Both say the same: when the second one ends, the file stays; when its own program ends, it goes."""
    file = tmp_path / "criproxy"
    first, second = labelling(file, RecordingLog()), labelling(file, RecordingLog())
    await first._update()
    await second._update()

    await second.stop()
    assert file.exists()
    await first.stop()
    assert not file.exists()


async def test_a_file_of_a_program_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    """It says the same already, and goes with the program that has come after; one that was replaced stays."""
    file = tmp_path / "criproxy"
    file.write_text("")
    second = labelling(file, RecordingLog())
    await second._update()
    await second.stop()
    assert not file.exists()

    third = labelling(file, RecordingLog())
    await third._update()
    write(file, "somebody=else\n")
    await third.stop()
    assert file.exists()


async def keep(one: LabelUpdater, model: Path, text: str) -> None:
    """Let it look at the file once, on a machine that calls itself *text*."""
    keeping = asyncio.create_task(one._update())
    pipe = await asyncio.to_thread(model.open, "w")  # opens when the write reads the model
    pipe.write(text)
    pipe.close()
    await keeping


@pytest.mark.parametrize("is_first", [True, False], ids=["first-write", "later-write"])
async def test_a_program_ends_while_the_file_is_being_written(tmp_path: Path, is_first: bool) -> None:
    """The write that is under way ends first, so that it does not put the file back."""
    file = tmp_path / "criproxy"
    model = tmp_path / "sys/class/dmi/id/product_name"
    model.parent.mkdir(parents=True)
    os.mkfifo(model)
    one = labelling(Path("/criproxy"), RecordingLog(), tmp_path)
    if not is_first:
        await keep(one, model, "Big Machine")
    keeping = asyncio.create_task(one._update())
    pipe = await asyncio.to_thread(model.open, "w")
    keeping.cancel()
    await asyncio.wait({keeping})

    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(0)  # it has begun
    pipe.write("Bigger Machine")
    pipe.close()
    await stopping
    await one._patience.wait(str(file), lambda: None, 5.0)

    assert not file.exists()


NVIDIA = Configuration(plan=NVIDIA_ALONE)
OTHERS = Configuration(plan=PluginPlan(advertised=()))
CARDS = Inventory(gpus=(t4(0),), driver_version="550.54.15", cuda_version=(12, 4))
NPUS = Served(
    resources={
        name: Resource(
            name=name, kind=kind, devices={each: Offered(id=each, index="0") for each in ids}, allocate=Named()
        )
        for name, kind, *ids in (("aliyun.com/npu", "ali-npu", "npu0"), ("nvidia.com/gpu", "nvidia"))
    }
)


def test_the_file_has_the_labels_of_all_classes() -> None:
    """NVIDIA's as its feature discovery gives them, with the time; nothing is said twice."""
    found, problem = node_labels(NVIDIA, CARDS, NPUS, "Big", 1_760_000_000.9)

    assert problem == ""
    assert found["nvidia.com/gfd.timestamp"] == "1760000000"
    assert found["nvidia.com/gpu.machine"] == "Big"
    assert found["nvidia.com/gpu.count"] == "1"
    assert found["aliyun.com/npu.count"] == "1"


def test_nvidia_s_cards_may_have_none() -> None:
    """Where its feature discovery gives none, the reason comes with the labels of the others."""
    found, problem = node_labels(NVIDIA, Inventory(gpus=(t4(0),)), NPUS, None, 0)

    assert "error getting driver version" in problem
    assert found["aliyun.com/npu.count"] == "1"
    assert node_labels(OTHERS, CARDS, NPUS, None, 0)[0] == found


def test_a_guest_with_a_vgpu() -> None:
    """NVML tells that there is one; what driver the host has is not known, and not said."""
    found, _ = node_labels(NVIDIA, replace(CARDS, gpus=(replace(t4(0), is_vgpu=True),)), NPUS, None, 0)

    assert {key: value for key, value in found.items() if "vgpu" in key} == {"nvidia.com/vgpu.present": "true"}
    assert node_labels(NVIDIA, CARDS, NPUS, None, 0)[0]["nvidia.com/vgpu.present"] == "false"


def test_several_models() -> None:
    """The model of which the labels tell is named, with those of which they do not."""
    both = replace(CARDS, gpus=(t4(0), replace(t4(1), name="Tesla V100"), t4(2)))

    assert labels_note(NVIDIA, both) == (
        "GPUs of several models have the same labels: they describe Tesla V100, but not Tesla T4"
    )
    assert node_labels(NVIDIA, both, NPUS, None, 0)[0]["nvidia.com/gpu.product"] == "Tesla-V100"
    assert labels_note(NVIDIA, CARDS) == ""
    assert labels_note(OTHERS, both) == ""


def test_another_time_alone_is_no_news(tmp_path: Path) -> None:
    """A file that is there and says the same is left alone; what it lacks or has too much is news."""
    file = tmp_path / "criproxy"
    assert not has_content(file, "a/b=1\n")
    write(file, "a/b=1\nnvidia.com/gfd.timestamp=1\n")

    assert has_content(file, "a/b=1\nnvidia.com/gfd.timestamp=2\n")
    assert not has_content(file, "a/b=2\nnvidia.com/gfd.timestamp=1\n")
    assert not has_content(file, "nvidia.com/gfd.timestamp=1\n")


def test_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Readers of any user see it, and no other file is in its folder."""
    file = tmp_path / "criproxy"
    write(file, "old=1\n" * 1000)
    before = file.stat().st_ino
    write(file, "new=1\n")

    assert file.read_text() == "new=1\n"
    assert file.stat().st_ino != before
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    """Here a folder is in its place, and there is no folder for it."""
    file = tmp_path / "criproxy"
    (file / "x").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        write(file, "new=1\n")
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing" / "criproxy", "new=1\n")

    assert list(tmp_path.iterdir()) == [file]


async def test_labels_are_reported_although_no_file_is_wanted(tmp_path: Path) -> None:
    """Those of NVIDIA; nothing is written or warned of; the report is requested once for each change."""
    log, changes, file = RecordingLog(), list[int](), tmp_path / "criproxy"
    one = labelling(file, log)
    one.publisher.loaded = Loaded(plan=NVIDIA_ALONE)
    one.publisher.inventory = CARDS
    one.changed = lambda: changes.append(1)

    await one._update()
    await one._update()

    assert one.labels is not None
    assert one.labels["nvidia.com/gpu.count"] == str(len(CARDS.gpus))
    assert all(key.startswith("nvidia.com/") for key in one.labels)
    assert (len(changes), file.exists(), log.lines) == (1, False, [])


async def test_labels_that_are_unknown_are_not_reported_as_none(tmp_path: Path) -> None:
    """While NVML has not answered, and where the driver's version cannot be read, those from before are reported."""
    one = labelling(tmp_path / "criproxy", RecordingLog())
    one.publisher.loaded = Loaded(plan=NVIDIA_ALONE)
    one.publisher.inventory = replace(CARDS, gpus=(), pending=True)
    known = list[object]()
    await one._update()
    known.append(one.labels)
    one.publisher.inventory = CARDS
    await one._update()
    known.append(one.labels)
    one.publisher.inventory = replace(CARDS, driver_version="unreadable")
    await one._update()

    assert known[0] is None
    assert one.labels
    assert one.labels == known[1]
