"""The folders of vGPUs, whatever containers have left in them."""

import asyncio
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from criproxy.deviceplugin.cards import vgpu_files
from criproxy.deviceplugin.cards.vgpu_files import (
    ASIDE,
    MOST_ASIDE,
    MOST_AT_ONCE,
    MOST_FORMER,
    Sweeper,
    VgpuFiles,
    _remove_piece,
    former_path,
    remove,
)
from tests.denied import WITHOUT_PRIVILEGES
from tests.deviceplugin.news import poll
from tests.node.world import RecordingLog

OWN, SHARED = "/vgpu/GPU-a_gpu-8g_0", "/lock"


def sweep(folder: Path) -> None:
    """Remove all former directories in *folder*, as far as they can be removed."""
    while _remove_piece(folder)[0]:
        pass


def prepared(root: Path) -> Path:
    """Return the folder of the vGPU after an Allocate, when the former ones are removed."""
    VgpuFiles(root).prepare(OWN, SHARED)
    sweep((root / OWN[1:]).parent)
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


CLOSE = """
import sys
from pathlib import Path
from criproxy.deviceplugin.cards.vgpu_files import MOST_FORMER, VgpuFiles
from tests.deviceplugin.cards.test_vgpu_files import sweep
own, shared, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
files = VgpuFiles(root)
files.prepare(own, shared)
folder = root / own[1:]
for _ in range(2 * MOST_FORMER):
    (folder / "file").touch()
    folder.chmod(0)
    sweep(folder.parent)
    files.prepare(own, shared)
print(*sorted(each.name.partition(".GPU")[0] for each in folder.parent.iterdir()))
"""
"""A container closes the directory that it has; the device plugin is root without capabilities."""


def test_what_cannot_be_removed_holds_up_no_container(tmp_path: Path) -> None:
    """The sweeper gives it a name that does not count for this vGPU, although it may not look into it."""
    tmp_path.chmod(0o755)
    command = [*WITHOUT_PRIVILEGES, sys.executable, "-c", CLOSE, OWN, SHARED, str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert names.count(ASIDE) == 2 * MOST_FORMER - 1  # the last one has just been put out of the way
    for each in (tmp_path / OWN[1:]).parent.iterdir():
        each.chmod(0o700)


def test_what_is_put_aside_is_removed_once_it_can_be(tmp_path: Path) -> None:
    """It is looked at again."""
    own = prepared(tmp_path)
    (former := former_path(own)).touch()  # no folder, and so nothing that is removed
    sweep(own.parent)
    aside = own.parent / f"{ASIDE}{former.name}"
    aside.unlink()
    aside.mkdir()

    sweep(own.parent)

    assert [each.name for each in own.parent.iterdir()] == [own.name]


def test_too_much_that_cannot_be_removed_counts_for_its_vgpu(tmp_path: Path) -> None:
    """There is a limit for what is put aside; the error says what to do, and other vGPUs are still usable."""
    own = prepared(tmp_path)
    for _ in range(MOST_ASIDE):
        former_path(own.with_name(f"{ASIDE.removeprefix('.')}.x")).touch()
    for _ in range(1, MOST_FORMER):
        former_path(own).touch()
    assert not any(prepared(tmp_path).iterdir())
    former_path(own).touch()

    with pytest.raises(OSError, match="remove them by hand"):
        prepared(tmp_path)
    VgpuFiles(tmp_path).prepare(OWN.replace("_0", "_1"), SHARED)


def test_an_allocate_removes_nothing(tmp_path: Path) -> None:
    """What containers have left may take minutes: it is only put out of the way, and the sweeper is told."""
    told: list[None] = []
    files = VgpuFiles(tmp_path, lambda: told.append(None))
    files.prepare(OWN, SHARED)
    assert not told
    own = tmp_path / OWN[1:]
    (own / "file").touch()

    files.prepare(OWN, SHARED)

    assert (len(told), list(own.iterdir())) == (1, [])
    assert [each.name for each in own.parent.glob(".*/*")] == ["file"]


def test_a_large_folder_is_removed_piece_by_piece(tmp_path: Path) -> None:
    """No piece has more files than it may, wherever they are."""
    for name in ("a", "b/c", "b/c/d"):
        (tmp_path / "large" / name).mkdir(parents=True, exist_ok=True)
        for number in range(5):
            (tmp_path / "large" / name / str(number)).touch()

    def files() -> int:
        return sum(not each.is_dir() for each in (tmp_path / "large").rglob("*"))

    left = [files()]
    while not remove(tmp_path / "large", 4):
        left.append(files())
    assert all(before - after <= 4 for before, after in pairwise(left))
    assert len(left) > 3
    assert not (tmp_path / "large").exists()


async def test_the_sweeper(tmp_path: Path) -> None:
    """It removes leftovers when it begins and what is discarded later; what it cannot remove is told of once."""
    log = RecordingLog()
    sweeper = Sweeper(log)
    files = VgpuFiles(tmp_path, sweeper.wake)
    folder = files.below(OWN).parent
    sweeper.use(folder)
    files.prepare(OWN, SHARED)
    for number in range(MOST_AT_ONCE + 1):
        (tmp_path / OWN[1:] / str(number)).touch()
    files.prepare(OWN, SHARED)  # by a former run of the program

    def left() -> int:
        return len(list(folder.iterdir()))

    running = asyncio.create_task(sweeper.run())
    await poll(lambda: left() == 1)
    assert sweeper.problem == ""
    (former := former_path(files.below(OWN))).touch()  # no folder
    for _ in range(2):
        await asyncio.to_thread(files.prepare, OWN, SHARED)
        await poll(lambda: left() == 2 and log.events())

    running.cancel()
    assert log.events() == ["former directories of vGPUs are not removed"]
    assert sweeper.problem == f"{folder}/{ASIDE}{former.name}: Not a directory"


async def test_a_disk_that_hangs_is_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was wrong before; and the problem is over once the disk answers again."""
    answers, told = threading.Event(), list[str]()
    monkeypatch.setattr(vgpu_files, "PIECE_S", 0.05)
    monkeypatch.setattr(vgpu_files, "_remove_piece", lambda _: (not answers.wait(), ""))
    sweeper = Sweeper(RecordingLog(), changed=lambda: told.append(sweeper.problem))
    sweeper.problem = "a reason of before"
    sweeper.use(tmp_path)

    running = asyncio.create_task(sweeper.run())
    await poll(lambda: bool(told))
    assert told == [f"former directories in {tmp_path} has not answered for 0.05 s"]
    monkeypatch.setattr(vgpu_files, "PIECE_S", 60.0)  # it does not hang any more
    answers.set()
    await poll(lambda: not sweeper._patience.hanging)
    sweeper.wake()
    await poll(lambda: sweeper.problem == "")

    running.cancel()
