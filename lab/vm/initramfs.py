"""The first file system of a guest: busybox, the kernel modules that it needs, and `init.sh`."""

import hashlib
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.vm.kernel import GuestError, Kernel, write_whole

BASE_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")
PMEM_MODULES = ("nfit", "libnvdimm", "nd_pmem", "device_dax", "dax_pmem", "kmem")
INIT = Path(__file__).with_name("init.sh")

_DIRECTORY, _EXECUTABLE, _FILE, _DEVICE = 0o40755, 0o100755, 0o100644, 0o20600
_CONSOLE = (5, 1)
_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or device of an archive."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


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
        write_whole(path, cpio(_entries(busybox, load_order(kernel.modules, wanted))))
    return path


def _entries(busybox: Path, modules: dict[str, bytes]) -> Iterator[Entry]:
    yield from (Entry(name, _DIRECTORY) for name in ("bin", "dev", "proc", "sys", "m"))
    yield Entry("dev/console", _DEVICE, device=_CONSOLE)
    yield Entry("bin/busybox", _EXECUTABLE, busybox.read_bytes())
    yield Entry("init", _EXECUTABLE, INIT.read_bytes())
    yield Entry("modules", _FILE, "".join(f"{name}\n" for name in modules).encode())
    yield from (Entry(f"m/{name}.ko", _FILE, content) for name, content in modules.items())


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


def cpio(entries: Iterable[Entry]) -> bytes:
    """An archive in the format "newc", which the kernel unpacks; see Linux' buffer-format.rst."""
    out = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], 1):
        name = entry.name.encode() + b"\0"
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        out += bytes(-len(out) % 4)
        out += entry.content
        out += bytes(-len(out) % 4)
    return bytes(out)
