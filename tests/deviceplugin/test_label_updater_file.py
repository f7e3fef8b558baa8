"""The feature file itself: what is in it, and how it is replaced."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.label_updater import has_content, label_text, labels_note, machine_type, write
from criproxy.deviceplugin.resources.resource_builder import Served
from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.classes.offers import Offered
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan
from tests.deviceplugin.hosts import t4
from tests.deviceplugin.node import Named

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
    text, problem = label_text(NVIDIA, CARDS, NPUS, "Big", 1_760_000_000.9)

    assert problem == ""
    assert "nvidia.com/gfd.timestamp=1760000000\n" in text
    assert "nvidia.com/gpu.machine=Big\n" in text
    assert "nvidia.com/gpu.count=1\n" in text
    assert "aliyun.com/npu.count=1\n" in text
    keys = [line.partition("=")[0] for line in text.splitlines()]
    assert sorted(set(keys)) == keys


def test_nvidia_s_cards_may_have_none() -> None:
    """Where its feature discovery gives none, the reason comes with the labels of the others."""
    text, problem = label_text(NVIDIA, Inventory(gpus=(t4(0),)), NPUS, None, 0)

    assert "error getting driver version" in problem
    assert text.startswith("aliyun.com/npu.count=1\n")
    assert label_text(OTHERS, CARDS, NPUS, None, 0)[0] == text


def test_a_guest_with_a_vgpu() -> None:
    """NVML tells that there is one; what driver the host has is not known, and not said."""
    text, _ = label_text(NVIDIA, replace(CARDS, gpus=(replace(t4(0), is_vgpu=True),)), NPUS, None, 0)

    assert [line for line in text.splitlines() if "vgpu" in line] == ["nvidia.com/vgpu.present=true"]
    assert "nvidia.com/vgpu.present=false" in label_text(NVIDIA, CARDS, NPUS, None, 0)[0]


def test_several_models() -> None:
    """The model of which the labels tell is named, with those of which they do not."""
    both = replace(CARDS, gpus=(t4(0), replace(t4(1), name="Tesla V100"), t4(2)))

    assert labels_note(NVIDIA, both) == (
        "GPUs of several models have the same labels: they describe Tesla V100, but not Tesla T4"
    )
    assert "nvidia.com/gpu.product=Tesla-V100\n" in label_text(NVIDIA, both, NPUS, None, 0)[0]
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


def test_the_machine_may_have_no_name(tmp_path: Path) -> None:
    """Not all have a DMI."""
    assert machine_type(tmp_path / "product_name") is None
    (tmp_path / "product_name").write_text("Big Machine\n")
    assert machine_type(tmp_path / "product_name") == "Big Machine"
