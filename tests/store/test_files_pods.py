"""Files of pods with cards: whole or not at all, for root alone, and nothing is written elsewhere."""

import os
from pathlib import Path

import pytest

from criproxy.store.files import write_pods


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Return a state directory."""
    directory = tmp_path / "state"
    directory.mkdir(0o700)
    return directory


def names(state_dir: Path) -> list[str]:
    """Return what is in the folder."""
    return sorted(path.name for path in (state_dir / "pods").iterdir())


def test_files_and_folder_are_closed_to_others(state_dir: Path) -> None:
    """The folder has mode 0700, also where somebody opened it, and files have 0600, whatever the umask is."""
    (state_dir / "pods").mkdir(0o755)
    before = os.umask(0)
    try:
        write_pods(state_dir, {"u1": "{}"}, {"u1"})
    finally:
        os.umask(before)

    assert (state_dir / "pods").stat().st_mode & 0o7777 == 0o700
    assert (state_dir / "pods/u1.json").stat().st_mode & 0o7777 == 0o600
    assert (state_dir / "pods/u1.json").read_text() == "{}"


def test_files_of_other_pods_are_removed(state_dir: Path) -> None:
    """Those of pods that are gone and what a crash left half-written; what else is there stays."""
    write_pods(state_dir, {"u1": "1", "u2": "2"}, {"u1", "u2"})
    (state_dir / "pods/u3.json.new").write_text("half")
    (state_dir / "pods/readme").write_text("mine")

    write_pods(state_dir, {}, {"u2"})

    assert names(state_dir) == ["readme", "u2.json"]


def test_a_file_is_replaced(state_dir: Path) -> None:
    """A reader that has the old one open reads it to its end."""
    write_pods(state_dir, {"u1": "old"}, {"u1"})
    with (state_dir / "pods/u1.json").open() as reader:
        write_pods(state_dir, {"u1": "new"}, {"u1"})
        assert reader.read() == "old"

    assert (state_dir / "pods/u1.json").read_text() == "new"


@pytest.mark.parametrize("what", ["folder", "file", "new"])
def test_links_lead_nowhere(state_dir: Path, tmp_path: Path, what: str) -> None:
    """Nothing is written through a link in place of the folder or of a file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "u1.json"
    target.write_text("theirs")
    if what == "folder":
        (state_dir / "pods").symlink_to(elsewhere)
        with pytest.raises(OSError, match="pods"):
            write_pods(state_dir, {"u1": "mine"}, {"u1"})
    else:
        (state_dir / "pods").mkdir()
        (state_dir / "pods" / ("u1.json" if what == "file" else "u1.json.new")).symlink_to(target)
        write_pods(state_dir, {"u1": "mine"}, {"u1"})
        assert not (state_dir / "pods/u1.json").is_symlink()

    assert target.read_text() == "theirs"


def test_a_folder_in_place_of_a_file(state_dir: Path) -> None:
    """It is an error, and leaves nothing half-written."""
    (state_dir / "pods/u1.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_pods(state_dir, {"u1": "mine"}, {"u1"})

    assert names(state_dir) == ["u1.json"]


def test_an_older_write_ends(state_dir: Path) -> None:
    """A write that hung until after a newer one was begun changes nothing."""
    write_pods(state_dir, {"u1": "new"}, {"u1"})
    write_pods(state_dir, {"u1": "old", "u2": "gone"}, {"u2"}, lambda: False)

    assert (names(state_dir), (state_dir / "pods/u1.json").read_text()) == (["u1.json"], "new")


def test_a_state_directory_of_others(state_dir: Path) -> None:
    """Nothing is written below a directory that every user can write."""
    (state_dir / "something").touch()
    state_dir.chmod(0o777)
    with pytest.raises(PermissionError, match="every user"):
        write_pods(state_dir, {"u1": "mine"}, {"u1"})
