"""A state directory is criproxy's own, or it is left as it is, and nothing in it is believed."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from criproxy.errors import StoreError
from criproxy.store.configurations import GoodFile, read_good, write_good
from criproxy.store.store import Store

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
OURS = ("lock", "criproxy.db")
FOREIGN = "is also used by other programs: name one of criproxy's own with --state-dir"
ELSE = "is criproxy's, else name another one with --state-dir"


@pytest.mark.parametrize(
    ("mode", "there"),
    [
        pytest.param(0o700, OURS, id="private"),
        pytest.param(0o750, OURS, id="its-group-may-look"),
        pytest.param(0o755, OURS, id="everybody-may-look"),
        pytest.param(0o755, ["of-root"], id="with-files-of-others"),
        pytest.param(0o1777, (), id="the-top-of-a-fresh-tmpfs"),
        pytest.param(0o777, (), id="empty"),
    ],
)
def test_a_directory_of_our_own_is_taken(tmp_path: Path, mode: int, there: Sequence[str]) -> None:
    """Whoever else could look into it cannot any more; one that is empty says nothing wrong."""
    for name in there:
        (tmp_path / name).touch()
    tmp_path.chmod(mode)

    Store(tmp_path).close()

    assert tmp_path.stat().st_mode & 0o7777 & ~0o1000 == 0o700


@pytest.mark.parametrize(
    ("mode", "there", "said"),
    [
        pytest.param(0o1777, ["of-another"], FOREIGN, id="such-as-tmp"),
        pytest.param(0o1777, ["lock"], FOREIGN, id="with-a-file-that-has-the-name-of-ours"),
        pytest.param(0o1777, OURS, FOREIGN, id="with-a-state"),
        pytest.param(
            0o777,
            OURS,
            f"can be written by every user (mode 0777): chmod 0700 PATH if all in it {ELSE}",
            id="everybody",
        ),
        pytest.param(
            0o770, OURS, f"can be written by its group (mode 0770): chmod 0700 PATH if all in it {ELSE}", id="its-group"
        ),
    ],
)
def test_a_directory_that_others_write_to_is_refused(
    tmp_path: Path, mode: int, there: Sequence[str], said: str
) -> None:
    """A mistyped `--state-dir /tmp` does not close /tmp to all others, nor do they decide where containers run."""
    for name in there:
        (tmp_path / name).touch()
    tmp_path.chmod(mode)

    with pytest.raises(StoreError) as caught:
        Store(tmp_path)

    assert str(caught.value) == f"the state directory {tmp_path} {said.replace('PATH', str(tmp_path))}"
    assert (tmp_path.stat().st_mode & 0o7777, {path.name for path in tmp_path.iterdir()}) == (mode, {*there})
    assert all(path.stat().st_size == 0 for path in tmp_path.iterdir())


@ROOT_ONLY
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Even an empty one that only its owner can write to: it is theirs to change."""
    os.chown(tmp_path, 4321, 0)
    tmp_path.chmod(0o700)

    with pytest.raises(StoreError) as caught:
        Store(tmp_path)

    said = f"belongs to user 4321, not to root: chown -R root {tmp_path} if it {ELSE}"
    assert (str(caught.value), list(tmp_path.iterdir())) == (f"the state directory {tmp_path} {said}", [])


@ROOT_ONLY
async def test_the_daemon_goes_on_without_a_directory_that_is_refused(tmp_path: Path) -> None:
    """As with a disk that fails: it says why, and every save looks again."""
    os.chown(tmp_path, 4321, 0)

    store = Store(tmp_path, may_fail=True)

    assert "belongs to user 4321" in (store.missing or "")
    store.close()


@ROOT_ONLY
def test_the_last_good_file_of_somebody_else_counts_for_nothing(tmp_path: Path) -> None:
    """None is written there either."""
    good = GoodFile(text="policy: none\n")
    write_good(tmp_path, good)
    os.chown(tmp_path, 4321, 0)

    assert read_good(tmp_path) is None
    with pytest.raises(OSError, match="belongs to user 4321"):
        write_good(tmp_path, GoodFile(text="policy: static\n"))
    os.chown(tmp_path, 0, 0)
    assert read_good(tmp_path) == good


@ROOT_ONLY
@pytest.mark.parametrize("place", ["link", "link/below", "own"])
def test_a_link_of_another_user_leads_to_no_state(tmp_path: Path, place: str) -> None:
    """Its owner could lead it elsewhere at any time; where it leads does not matter, nor whether ours leads to it."""
    state, link = tmp_path / "state", tmp_path / "link"
    (state / "below").mkdir(parents=True, mode=0o700)
    link.symlink_to(state)
    os.lchown(link, 4321, 4321)
    (tmp_path / "own").symlink_to("link/../link")

    with pytest.raises(StoreError, match=f"is reached through {link}, a symbolic link of user 4321: name"):
        Store(tmp_path / place)
    os.lchown(link, 0, 0)
    Store(tmp_path / place).close()
