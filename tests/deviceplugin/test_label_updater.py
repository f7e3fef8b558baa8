"""Who keeps the feature file, and what is said of it."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.configuration.configuration import Loaded
from criproxy.deviceplugin.label_updater import LabelUpdater, write
from criproxy.deviceplugin.resources.kubelet_state import InUse
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.deviceplugin.server.plugin import Place
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import Labels
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
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
