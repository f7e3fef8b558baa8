"""The guest's first file system: an archive that other programs read, with modules in an order that loads."""

import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.vm.initramfs import BASE_MODULES, PMEM_MODULES, Entry, build, cpio, load_order
from lab.vm.kernel import GuestError, Kernel, cache_directory, find


def module(folder: Path, name: str, *needs: str, suffix: str = ".ko") -> None:
    """Write a file that says what it depends on, as modules do."""
    content = b"\x7fELF\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0name=x\0"
    (folder / f"{name}{suffix}").write_bytes(lzma.compress(content) if suffix.endswith(".xz") else content)


def test_what_a_module_needs_comes_before_it(tmp_path: Path) -> None:
    """Dashes and underscores are the same, compressed ones are unpacked, and built-in ones are left out."""
    module(tmp_path, "top-most", "middle_one", "bottom")
    module(tmp_path, "middle_one", "bottom", "inside", suffix=".ko.xz")
    module(tmp_path, "bottom")
    (tmp_path / "modules.builtin").write_text("kernel/lib/inside.ko\n")

    ordered = load_order(tmp_path, ["top_most", "inside", "bottom"])

    assert list(ordered) == ["bottom", "middle_one", "top_most"]
    assert all(content.startswith(b"\x7fELF") for content in ordered.values())


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Also one that another module needs."""
    module(tmp_path, "one", "other")

    with pytest.raises(GuestError, match="no module other"):
        load_order(tmp_path, ["one"])


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    """Loading it would fail in the guest, where it is harder to see."""
    module(tmp_path, "one", suffix=".ko.zst")

    with pytest.raises(GuestError, match=r"one\.ko\.zst: modules compressed like this"):
        load_order(tmp_path, ["one"])


def test_an_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    """Names, contents of any length and modes survive."""
    if not shutil.which("busybox"):
        pytest.skip("busybox is not installed")
    entries = [Entry("d", 0o40755), Entry("d/odd", 0o100755, b"abc"), Entry("d/empty", 0o100644)]

    archive = cpio(entries)
    subprocess.run(["busybox", "cpio", "-i"], cwd=tmp_path, input=archive, check=True, capture_output=True)

    assert len(archive) % 4 == 0
    assert (tmp_path / "d/odd").read_bytes() == b"abc"
    assert (tmp_path / "d/odd").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "d/empty").read_bytes() == b""


def test_the_same_guest_has_the_same_archive(tmp_path: Path) -> None:
    """It is kept, and another one is made for other modules."""
    modules, busybox = tmp_path / "modules", tmp_path / "busybox"
    modules.mkdir()
    busybox.write_bytes(b"program")
    module(modules, "one")
    module(modules, "two")
    kernel = Kernel(tmp_path / "vmlinux", modules)

    first, second = build(tmp_path, busybox, kernel, ["one"]), build(tmp_path, busybox, kernel, ["one"])
    other = build(tmp_path, busybox, kernel, ["one", "two"])

    assert first == second != other
    assert b"m/two.ko" in other.read_bytes()
    assert b"m/two.ko" not in first.read_bytes()


def test_the_fetched_kernel_has_every_module_that_guests_want(guests_work: None) -> None:
    """Of the package only a part is kept."""
    kernel = find(cache_directory())
    assert kernel

    assert load_order(kernel.modules, [*BASE_MODULES, *PMEM_MODULES])
