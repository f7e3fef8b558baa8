"""Debian's kernel for guests: fetched once as a package, unpacked below a cache directory, never installed.

What is there is used without a look at the network. `make setup` fetches it.
"""

import fcntl
import hashlib
import lzma
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lab.cache import directory, download
from tests.runtimes.debian import FetchError, run

CACHE = directory("vm")
META_PACKAGE = "linux-image-amd64"
"""Depends on the package of the newest kernel."""

_XZ_MAGIC = b"\xfd7zXZ\x00"
_ELF_MAGIC = b"\x7fELF"
_PVH_NOTE = b"Xen\0"
_WANTED = re.compile(
    r"\./(?:boot/vmlinuz-|lib/modules/[^/]+/(?:modules\.builtin$|kernel/(?:crypto|fs|lib|net/9p|net/core)/"
    r"|kernel/drivers/(?:acpi|block|char|dax|nvdimm|tty|virtio)(?:/|\.)))"
)


class GuestError(RuntimeError):
    """No guest can be started or it did not do what it was started for; the text says why."""

    status = 125
    """What the command exits with."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel."""

    image: Path
    """What QEMU boots: uncompressed, which spares a guest the unpacking."""
    modules: Path
    """The folder of its modules."""


def find(cache: Path = CACHE) -> Kernel | None:
    """The kernel that was fetched into *cache*; None if none was."""
    for modules in sorted((cache / "kernel").glob("lib/modules/*"), reverse=True):
        image = cache / f"vmlinux-{modules.name}"
        if image.is_file():
            return Kernel(image, modules)
    return None


def fetch(cache: Path = CACHE) -> Kernel:
    """The kernel of *cache*, fetched if it is not there yet.

    Raises:
        FetchError: if Debian's package cannot be had.
        GuestError: if it is not what we know.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kernel := find(cache):
            return kernel
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            (package,) = download(Path(scratch), _package())
            _take_apart(package, cache / "kernel")
        packed = sorted((cache / "kernel/boot").glob("vmlinuz-*"))
        if not packed:
            raise GuestError(f"{META_PACKAGE} brought no boot/vmlinuz-*")
        release = packed[-1].name.removeprefix("vmlinuz-")
        write_whole(cache / f"vmlinux-{release}", uncompressed(packed[-1].read_bytes()))
        if kernel := find(cache):
            return kernel
    raise GuestError(f"the package of kernel {release} has no lib/modules/{release}")


def uncompressed(image: bytes) -> bytes:
    """The ELF file within a bzImage that was compressed with xz.

    Raises:
        GuestError: if there is none that QEMU can boot.
    """
    start = image.find(_XZ_MAGIC)
    while start >= 0:
        try:
            kernel = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(image[start:])
        except lzma.LZMAError:
            kernel = b""  # these bytes only looked like the beginning of a stream
        if kernel.startswith(_ELF_MAGIC) and _PVH_NOTE in kernel:
            return kernel
        start = image.find(_XZ_MAGIC, start + 1)
    raise GuestError("the kernel holds no xz-compressed ELF file with a PVH entry, which QEMU boots")


def _package() -> str:
    """The name of the package of Debian's newest kernel."""
    if found := re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", META_PACKAGE)):
        return found[1]
    raise FetchError(f"apt knows no package behind {META_PACKAGE}: guests need Debian's kernel")


def _take_apart(package: Path, destination: Path) -> None:
    """Unpack the image and those modules that a guest may want, a tenth of all."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir()
    listing = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(listing, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if (content := archive.extractfile(member)) and _WANTED.match(member.name):
                    path = destination / member.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
    if process.returncode:
        raise GuestError(f"{shlex.join(listing)} failed with exit status {process.returncode}")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there completely or not at all, whoever else writes it at the same time."""
    part = path.with_suffix(f".{uuid4().hex}.part")
    part.write_bytes(content)
    part.replace(path)


BASE_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "loop")
PMEM_MODULES = ("nfit", "libnvdimm", "nd_pmem", "device_dax", "dax_pmem", "kmem")
INIT = Path(__file__).with_name("init.sh")

_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


def build(cache: Path, busybox: Path, kernel: Kernel, modules: Iterable[str]) -> Path:
    """An archive with *modules* and what they depend on, kept in *cache* for the next guest like it.

    Raises:
        GuestError: if the kernel has no such module.
    """
    wanted = tuple(modules)
    contents = (INIT.read_bytes(), str(kernel.modules).encode(), busybox.read_bytes(), " ".join(wanted).encode())
    key = hashlib.sha256(b"\0".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()[:16]
    path = cache / f"initramfs-{key}.cpio"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            write_whole(path, _archive(Path(scratch), busybox, load_order(kernel.modules, wanted)))
    return path


def _archive(root: Path, busybox: Path, modules: dict[str, bytes]) -> bytes:
    """What the kernel unpacks, in the format "newc", made of files in *root*."""
    for folder in ("bin", "dev", "proc", "sys", "m"):
        (root / folder).mkdir()
    for program, source in (("bin/busybox", busybox), ("init", INIT)):
        shutil.copy(source, root / program)
        (root / program).chmod(0o755)
    (root / "modules").write_text("".join(f"{name}\n" for name in modules))
    for name, content in modules.items():
        (root / f"m/{name}.ko").write_bytes(content)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    command = [str(busybox), "cpio", "-o", "-H", "newc"]
    return subprocess.run(command, cwd=root, input=names.encode(), capture_output=True, check=True).stdout


def load_order(folder: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The modules named and those they depend on, uncompressed, in the order in which they can be loaded.

    What is built into the kernel is left out.

    Raises:
        GuestError: if one that was named is neither below *folder* nor built in.
    """
    paths = {_module_name(path): path for path in folder.rglob("*.ko*")}
    builtin = folder / "modules.builtin"
    built_in = {_module_name(Path(line)) for line in builtin.read_text().split()} if builtin.exists() else set()
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name in built_in:
            return
        if name not in paths:
            raise GuestError(f"this kernel has no module {name}")
        content = _read_module(paths[name])
        for dependency in _dependencies(content):
            add(dependency)
        ordered[name] = content

    for name in wanted:
        add(name.replace("-", "_"))
    return ordered


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _read_module(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix != ".ko":
        raise GuestError(f"{path}: modules compressed like this cannot be read")
    return content


def _dependencies(module: bytes) -> list[str]:
    match = _DEPENDS.search(module)
    words = match.group(1).decode().split(",") if match else []
    return [word.replace("-", "_") for word in words if word]
