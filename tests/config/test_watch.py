"""A change of the policy file is noticed, however it is made."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from asyncinotify import Inotify

from criproxy.config import watch
from criproxy.config.watch import QUIET_S, PolicyFileWatch, places_of

LIMIT_S = 60.0


@pytest.fixture(autouse=True, params=["events", "none"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel tell of changes, and have no instance of inotify left."""

    def none_left(self: Inotify, *_: object) -> None:
        raise OSError(24, "Too many open files")

    if request.param == "none":
        monkeypatch.setattr(watch, "POLL_S", 0.02)
        monkeypatch.setattr(Inotify, "__init__", none_left)
        monkeypatch.setattr(Inotify, "__del__", lambda _: None, raising=False)


def write(path: Path, text: str = "policy: none\n") -> None:
    """Write in place."""
    path.write_text(text)


def replace(path: Path) -> None:
    """Write beside it and rename."""
    new = path.with_name("new")
    new.write_text("policy: static\n")
    new.rename(path)


def config_map(directory: Path, version: str) -> None:
    """Publish a version as the kubelet does: a directory of its own, and one link that is swapped."""
    data = directory / f"..{version}"
    data.mkdir()
    (data / "policy.yaml").write_text(f"policy: none # {version}\n")
    link = directory / "..data_tmp"
    link.symlink_to(data.name)
    link.rename(directory / "..data")
    if not (directory / "policy.yaml").is_symlink():
        (directory / "policy.yaml").symlink_to("..data/policy.yaml")


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[Callable[[], "asyncio.Future[None]"]]:
    """A watch, and a way to wait for its next news."""
    news: asyncio.Queue[None] = asyncio.Queue()
    task = asyncio.create_task(PolicyFileWatch(path, lambda: news.put_nowait(None)).run())
    await asyncio.wait_for(news.get(), LIMIT_S)  # what happened before it watched
    yield lambda: asyncio.ensure_future(asyncio.wait_for(news.get(), LIMIT_S))
    assert not task.done()
    task.cancel()


@pytest.mark.parametrize("change", [write, replace, Path.unlink, Path.touch, lambda path: path.chmod(0o600)])
async def test_a_file_changes(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """Written in place, replaced, removed, or with other rights."""
    file = tmp_path / "policy.yaml"
    write(file)
    async with watching(file) as news:
        change(file)
        await news()


async def test_it_is_noticed_again_and_again(tmp_path: Path) -> None:
    """Each file that comes in place of the one before is watched."""
    file = tmp_path / "policy.yaml"
    async with watching(file) as news:
        for _ in range(3):
            replace(file)
            await news()
            write(file)
            await news()


async def test_many_writes_are_one_change(tmp_path: Path) -> None:
    """Nobody is told before the writer pauses."""
    file = tmp_path / "policy.yaml"
    write(file)
    async with watching(file) as news:
        for number in range(20):
            write(file, f"policy: none # {number}\n")
        await news()
        more = news()
        done, _ = await asyncio.wait([more], timeout=2 * QUIET_S)
        assert not done
        more.cancel()


async def test_a_config_map_is_swapped(tmp_path: Path) -> None:
    """Only a link on the way to the file changes; the old version goes away later."""
    config_map(tmp_path, "first")
    async with watching(tmp_path / "policy.yaml") as news:
        for version in ("second", "third"):
            config_map(tmp_path, version)
            await news()
        assert (tmp_path / "policy.yaml").read_text().endswith("third\n")


@pytest.mark.parametrize("name", ["default.yaml", "group-edge.yaml"])
async def test_a_directory_of_files(tmp_path: Path, name: str) -> None:
    """A file that comes may go before the one that counted so far."""
    async with watching(tmp_path) as news:
        write(tmp_path / name)
        await news()


async def test_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    """A file is noticed wherever it begins to exist."""
    file = tmp_path / "etc" / "criproxy" / "policy.yaml"
    async with watching(file) as news:
        file.parent.mkdir(parents=True)
        await news()
        write(file)
        await news()


async def test_a_directory_behind_a_link(tmp_path: Path) -> None:
    """Another directory behind the same name counts."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "policy.yaml")
    (tmp_path / "current").symlink_to("one")
    async with watching(tmp_path / "current" / "policy.yaml") as news:
        (tmp_path / "next").symlink_to(tmp_path / "two")
        (tmp_path / "next").rename(tmp_path / "current")
        await news()
        write(tmp_path / "two" / "policy.yaml")
        await news()


@pytest.mark.parametrize("name", ["default.yaml", "default.yml", "default.json", "default"])
async def test_a_file_behind_a_link_in_a_directory(tmp_path: Path, name: str) -> None:
    """Written in place elsewhere, and whatever its name: files of NVIDIA's may have no suffix."""
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "nvidia"
    elsewhere.mkdir()
    directory.mkdir()
    write(elsewhere / "file")
    (directory / name).symlink_to(elsewhere / "file")
    async with watching(directory) as news:
        write(elsewhere / "file", "policy: static\n")
        await news()


async def test_other_files_do_not_matter(tmp_path: Path) -> None:
    """In a busy directory nothing is read because of others."""
    file = tmp_path / "policy.yaml"
    write(file)
    async with watching(file) as news:
        waiting = news()
        write(tmp_path / "other")
        done, _ = await asyncio.wait([waiting], timeout=2 * QUIET_S)
        assert not done
        write(file)
        await waiting


def test_links_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    """What cannot be followed is watched as far as it goes."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert places_of(tmp_path / "a") == {tmp_path: frozenset({"a", "b"})}


def test_the_group_counts_with_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which file is this node's depends on it."""
    group, files = tmp_path / "group", tmp_path / "files"
    files.mkdir()
    write(files / "default.yaml")
    monkeypatch.setattr("criproxy.config.watch.GROUP_FILE", group)

    assert places_of(files) == {tmp_path: frozenset({"files", "group"}), files: frozenset()}
    assert places_of(files / "default.yaml") == {files: frozenset({"default.yaml"})}
