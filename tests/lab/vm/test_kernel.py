"""The kernel of guests: where it is kept, and that what is there is used without apt."""

import gzip
import lzma
import subprocess
from pathlib import Path

import pytest

from lab.vm.kernel import GuestError, Kernel, cache_directory, fetch, find, uncompressed

ELF = b"\x7fELF" + b"code" * 100 + b"Xen\0" + b"more" * 100


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"CRIPROXY_VM_CACHE": "/x", "XDG_CACHE_HOME": "/y"}, "/x", id="ours"),
        pytest.param({"XDG_CACHE_HOME": "/y"}, "/y/criproxy/vm", id="the-users"),
        pytest.param({"HOME": "/home/u"}, "/home/u/.cache/criproxy/vm", id="usual"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of ours goes before that of all programs."""
    for name in ("CRIPROXY_VM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert str(cache_directory()) == expected


@pytest.mark.parametrize("before", [b"boot code", b"boot \xfd7zXZ\x00 code"], ids=["plain", "with-a-false-start"])
def test_the_kernel_is_found_within_its_image(before: bytes) -> None:
    """What only looks like the beginning of a stream is passed over, and what follows the stream is no matter."""
    assert uncompressed(before + lzma.compress(ELF) + b"rest") == ELF


@pytest.mark.parametrize(
    "image",
    [b"", gzip.compress(ELF), lzma.compress(b"no kernel"), lzma.compress(ELF.replace(b"Xen", b"Zen"))],
    ids=["empty", "gzip", "no-elf", "no-entry"],
)
def test_an_image_that_cannot_be_booted_is_refused(image: bytes) -> None:
    """The sentence says what is expected."""
    with pytest.raises(GuestError, match="PVH entry"):
        uncompressed(image)


PROGRAMS = {
    "apt-cache": 'echo "linux-image-amd64"; echo "  Depends: linux-image-9.9-test"',
    "apt-get": 'if [ "$1" = update ]; then touch "$INDEX"; exit; fi; [ -e "$INDEX" ] || { echo stale >&2; exit 100; }\n'
    'cp "$PACKAGE" linux-image-9.9-test_1_amd64.deb',
}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt that knows one kernel once its index is fresh; returns the index's file."""
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("Package: t\nVersion: 1\nArchitecture: amd64\nMaintainer: t\nDescription: t\n")
    modules = tree / "lib/modules/9.9/kernel"
    for name in ("fs/9p/9p.ko", "sound/noise.ko"):
        (modules / name).parent.mkdir(parents=True)
        (modules / name).write_bytes(b"module")
    (tree / "boot").mkdir()
    (tree / "boot/vmlinuz-9.9").write_bytes(b"boot code" + lzma.compress(ELF))
    subprocess.run(["dpkg-deb", "--build", tree, tmp_path / "kernel.deb"], check=True, capture_output=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("PACKAGE", str(tmp_path / "kernel.deb"))
    monkeypatch.setenv("INDEX", str(tmp_path / "index"))
    return tmp_path / "index"


def test_a_kernel_is_fetched_once(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale index is refreshed, only what guests may want is kept, and the second time needs no apt."""
    cache = tmp_path / "cache"

    fetched = fetch(cache)

    assert mirror.exists()
    assert fetched == find(cache) == Kernel(cache / "vmlinux-9.9", cache / "kernel/lib/modules/9.9")
    assert fetched.image.read_bytes() == ELF
    assert [path.name for path in fetched.modules.rglob("*.ko")] == ["9p.ko"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert fetch(cache) == fetched


def test_what_apt_cannot_do_is_told(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With apt's own words, and nothing is taken for a kernel."""
    monkeypatch.setenv("PACKAGE", "/no/such/file")

    with pytest.raises(GuestError, match=r"apt-get download .* failed: .*/no/such/file"):
        fetch(tmp_path / "cache")
    assert find(tmp_path / "cache") is None


def test_without_apt_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On other systems than Debian."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(GuestError, match="there is no apt-get: Debian's kernel is fetched with apt"):
        fetch(tmp_path)
