"""The folders of vGPUs, whatever containers have left in them."""

import os
from pathlib import Path

import pytest

from criproxy.deviceplugin.vgpu_host import MOST_FORMER, VgpuFiles

OWN, SHARED = "/vgpu/GPU-a_gpu-8g_0", "/lock"


def prepared(root: Path) -> Path:
    """Return the folder of the vGPU after an Allocate."""
    VgpuFiles(root).prepare(OWN, SHARED)
    return root / OWN[1:]


def test_a_container_gets_an_empty_folder(tmp_path: Path) -> None:
    """Nothing of a former container is left, whatever its name; what all share stays."""
    own = prepared(tmp_path)
    (tmp_path / "lock/lock").touch()
    (own / "inner/most").mkdir(parents=True)
    for name in (".hidden", "GPU-a_gpu-8g_0.cache", "inner/secret", "inner/most/secret"):
        (own / name).write_text("secret")
    os.mkfifo(own / "fifo")

    assert not any(prepared(tmp_path).iterdir())
    assert [each.name for each in (tmp_path / "vgpu").iterdir()] == [own.name]
    assert (tmp_path / "lock/lock").exists()
    assert own.stat().st_mode & 0o777 == 0o777


def test_no_link_is_followed(tmp_path: Path) -> None:
    """What is outside stays as it is."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    own = prepared(tmp_path)
    (own / "folder").symlink_to(outside)
    (own / "inner").mkdir()
    (own / "inner/folder").symlink_to(outside)
    (own / "inner/file").symlink_to(outside / "file")

    assert not any(prepared(tmp_path).iterdir())
    assert [each.name for each in outside.iterdir()] == ["file"]


def test_folders_nested_without_end_are_removed(tmp_path: Path) -> None:
    """Their paths are longer than the kernel allows, and deeper than Python's stack."""
    own = prepared(tmp_path)
    inner = os.open(own, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)

    assert not any(prepared(tmp_path).iterdir())
    assert len(list((tmp_path / "vgpu").iterdir())) == 1


def test_a_container_that_still_runs_writes_into_its_own(tmp_path: Path) -> None:
    """The folder that it has mounted is not the next one's."""
    mounted = os.open(prepared(tmp_path), os.O_RDONLY)
    own = prepared(tmp_path)
    with pytest.raises(FileNotFoundError):
        os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=mounted)
    os.close(mounted)

    assert not any(own.iterdir())


def test_what_cannot_be_removed_holds_nobody_up_until_it_is_too_much(tmp_path: Path) -> None:
    """It is out of the way of the next container; the error says what to do."""
    own = prepared(tmp_path)
    for number in range(MOST_FORMER):
        (own.parent / f".{own.name}.{number}").touch()  # no folder, and so nothing that `_remove` would remove
    assert not any(prepared(tmp_path).iterdir())
    (own.parent / f".{own.name}.late").touch()

    with pytest.raises(OSError, match="remove them by hand"):
        prepared(tmp_path)
