"""Machines that are named on a command line."""

import tarfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

from criproxy.errors import UsageError
from criproxy.simulate.hosts import machine, of_host, shaped, unpack
from tests.sysfs import write_sysfs

MACHINE = machine(nodes=4, cores=2, threads=2, packages=2)


@pytest.mark.parametrize(
    ("shape", "packages", "nodes", "cores", "cpus"),
    [("2s/4n/16c/2t", 2, 4, 16, 32), ("1s/1n/1c/1t", 1, 1, 1, 1), ("2s/8n/192c/2t", 2, 8, 192, 384)],
)
def test_a_shape(shape: str, packages: int, nodes: int, cores: int, cpus: int) -> None:
    """Sockets, NUMA nodes and cores are those of the whole machine, threads those of a core."""
    made = shaped(shape)

    assert (len(made.packages), len(made.nodes), len(made.cores), len(made.cpus)) == (packages, nodes, cores, cpus)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("big", "must be a shape such as 2s/4n/16c/2t"),
        ("2s/4n/16c", "must be a shape"),
        ("2s/3n/6c/1t", "NUMA nodes must be a multiple of sockets"),
        ("2s/4n/6c/1t", "and cores one of NUMA nodes"),
        ("0s/0n/0c/1t", "cannot be"),
        ("1s/1n/4096c/2t", "has 8192 CPUs, more than 4096"),
    ],
)
def test_shapes_that_cannot_be(shape: str, said: str) -> None:
    """Each is a sentence."""
    with pytest.raises(UsageError, match=said):
        shaped(shape)


@pytest.mark.parametrize("around", ["", "host/"])
def test_a_copy_of_a_host(tmp_path: Path, around: str) -> None:
    """In a folder, and in an archive with or without a folder around it; what leads out of it is left there."""
    root = tmp_path / "root"
    write_sysfs(root, MACHINE)
    (root / "sys/devices/system/cpu/away").symlink_to("/etc")
    archive = tmp_path / "host.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, arcname=around or ".")
        member = tarfile.TarInfo("../proc/escaped")
        tar.addfile(member, BytesIO())

    assert of_host(root).topology == of_host(archive).topology == MACHINE
    assert not (tmp_path / "proc").exists()


# ---------------------------------------------------------------- archives


def file(name: str, text: str = "text") -> tuple[tarfile.TarInfo, bytes]:
    """A member that is a file."""
    member = tarfile.TarInfo(name)
    member.size = len(text)
    return member, text.encode()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """A member that is a link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


def other(name: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    """A member without content."""
    member = tarfile.TarInfo(name)
    member.type = kind
    return member, b""


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive of *members*."""
    with tarfile.open(path, "w:xz") as archive:
        for member, content in members:
            archive.addfile(member, BytesIO(content))
    return path


def below(folder: Path) -> dict[str, str]:
    """Every file and link below *folder*, with its text."""
    places = (place for place in folder.rglob("*") if place.is_symlink() or not place.is_dir())
    return {str(place.relative_to(folder)): place.read_text() if place.exists() else "" for place in places}


def test_files_folders_and_links_come_as_they_are(tmp_path: Path) -> None:
    """What is wanted of them; a later member replaces an earlier one, and links may lead to what comes later."""
    archive = packed(
        *(tmp_path / "a.tar.xz", other("./", tarfile.DIRTYPE), other("./sys/empty", tarfile.DIRTYPE)),
        *(file("./sys/deep/old", "old"), link("./sys/link", "deep/new"), link("./sys/broken", "nowhere")),
        *(file("./sys/deep/new", "new"), link("./sys/hard", "./sys/deep/new", tarfile.LNKTYPE)),
        *(file("./sys/deep/old", "newer"), file("./home/me", "secret"), other("./sys/pipe", tarfile.FIFOTYPE)),
    )
    folder = tmp_path / "folder"
    folder.mkdir()

    unpack(archive, folder, lambda name: "home" not in name)

    files = {"deep/old": "newer", "deep/new": "new", "link": "new", "hard": "new", "broken": ""}
    assert below(folder) == {f"sys/{name}": text for name, text in files.items()}
    assert (folder / "sys/empty").is_dir()
    assert (folder / "sys/link").readlink() == Path("deep/new")


@pytest.mark.parametrize(
    "members",
    [
        [file("../out")],
        [file("in/../../out")],
        [file("..")],
        [link("in", ".."), file("in/out")],
        [link("in", "../out")],
        [link("in", "/etc/passwd")],
        [link("in", "deep/../../out")],
        [link("in", "b/c/../../out"), link("b/c", "..")],
        [link("loop", "loop"), file("loop/out")],
        [link("in", "/etc/passwd", tarfile.LNKTYPE)],
        [link("in", "../out", tarfile.LNKTYPE)],
        [link("in", ".."), other("in/out", tarfile.DIRTYPE)],
        [link("in", ".."), link("in/out", "anything")],
    ],
)
def test_nothing_leads_out_of_the_folder(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """Neither names nor links nor both together: such members are left out, or refused."""
    (tmp_path / "around").mkdir()
    folder = tmp_path / "around/folder"
    folder.mkdir()
    archive = packed(tmp_path / "a.tar.xz", *members)

    with suppress(UsageError):
        unpack(archive, folder, bool)

    assert list((tmp_path / "around").iterdir()) == [folder]
    for place in folder.rglob("*"):
        assert place.name == "loop" or place.resolve().is_relative_to(folder)


def test_an_absolute_name_is_below_the_folder(tmp_path: Path) -> None:
    """As tar itself takes it."""
    unpack(packed(tmp_path / "a.tar.xz", file("/sys/file")), tmp_path, bool)

    assert (tmp_path / "sys/file").read_text() == "text"


@pytest.mark.parametrize("kind", ["files", "hard links"])
def test_it_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Many files, or hard links to one, are not written beyond the bound."""
    monkeypatch.setattr("criproxy.simulate.hosts.MAX_BYTES", 2 << 20)
    more = [
        file(f"f{n}", "x" * (1 << 20)) if kind == "files" else link(f"f{n}", "f", tarfile.LNKTYPE) for n in range(9)
    ]
    archive = packed(tmp_path / "a.tar.xz", file("f", "x" * (1 << 20)), *more)
    folder = tmp_path / "folder"
    folder.mkdir()

    with pytest.raises(UsageError, match="more than 2 MiB unpacked"):
        unpack(archive, folder, bool)

    assert sum(place.stat().st_size for place in folder.iterdir()) <= 2 << 20


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """No archive, a truncated one, a folder that is not there."""
    whole = packed(tmp_path / "a.tar.xz", file("f", "x" * 100_000))
    text, cut = tmp_path / "text", tmp_path / "cut.tar.xz"
    text.write_text("no archive")
    cut.write_bytes(whole.read_bytes()[:-60])

    for path in (text, cut, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="it must be a copy of /sys and /proc, as a directory or a tar archive"):
            unpack(path, tmp_path, bool)
