"""A made-up libnvidia-ml.so.1, with which the real pynvml runs in the real processes on a machine without a GPU.

Its C source is ../shared/tools/fake-nvml/nvml.c, whose README describes the file of cards; `fake_nvml.c` adds to it.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from tests.deviceplugin.hosts import Host
from tests.deviceplugin.news import poll

SOURCE = Path(__file__).with_name("fake_nvml.c")


def compile_library(tools: Path, folder: Path) -> Path:
    """Return *folder*, which now has the library, made of the source in *tools*; skip without a compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is missing: the made-up libnvidia-ml.so.1 cannot be compiled")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", f"-I{tools}", "-o", library, SOURCE],
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    return folder


class FakeNvml:
    """What NVML says of a machine, from now on in all processes that ask it.

    Args:
        library: the folder with the library.
        file: for the cards.
        cards: the lines of the cards.
    """

    def __init__(self, library: Path, file: Path, cards: str) -> None:
        self._library = library
        self._file = file
        self.cards = cards
        self.say()

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables of processes that ask it."""
        return {
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML": str(self._file),
            "FAKE_NVML_LOG": str(self._beside("calls")),
        }

    async def until_watched(self, gpus: int) -> None:
        """Return when the events of so many GPUs are watched."""
        await poll(lambda: self._calls().count("nvmlDeviceRegisterEvents") >= gpus)

    def _calls(self) -> str:
        calls = self._beside("calls")
        return calls.read_text() if calls.exists() else ""

    def say(self, *lines: str) -> None:
        """Say of the cards what these lines add, such as ``lost 1`` or ``fail 18``."""
        new = self._file.with_name(f".{self._file.name}")
        new.write_text("\n".join((self.cards.strip(), *lines, "")))
        new.rename(self._file)

    def hold(self, *, held: bool = True) -> None:
        """Let nvmlInit not return, or return."""
        file = self._beside("hold")
        file.touch()
        if not held:
            file.unlink()

    def answer(self, what: str, index: int, code: int) -> None:
        """Let NVML say otherwise of a GPU; 0 ends it.

        Args:
            what: ``recovery`` (the driver asks for it), or what fails: ``broken`` (the question for the MIG mode),
                ``refused`` (the registration for events), ``deaf`` (the wait for events of all GPUs, among them this).
            index: that of the GPU.
            code: NVML's number of the recovery or of the error.
        """
        self._beside(what).write_text(f"{index} {code}\n")

    def make_stale(self) -> None:
        """Let a process that has found a GPU lost always find it so."""
        self._beside("stale").touch()

    def xid(self, index: int, number: int) -> None:
        """Tell of an error of a GPU."""
        with self._beside("xid").open("a") as events:
            events.write(f"{index} {number}\n")

    def plug(self, host: Host) -> None:
        """Add to the host what the driver shows of the cards in /proc, /dev and /sys."""
        gpus = [line.split() for line in self.cards.splitlines() if line.startswith("gpu ")]
        parts = [line.split() for line in self.cards.splitlines() if line.startswith("mig ")]
        for index, (_, uuid, name, mib, minor, pci, *_) in enumerate(gpus):
            gpu = Gpu(
                index=index,
                uuid=uuid,
                name=name.replace("_", " "),
                memory_mib=int(mib),
                minor=int(minor),
                pci_bus_id=f"0000{pci}",
            )
            host.gpu(gpu)
            host.mig(gpu, *(_mig(words) for words in parts if int(words[1]) == index))

    def _beside(self, end: str) -> Path:
        return self._file.with_name(f"{self._file.name}.{end}")


def _mig(words: list[str]) -> MigDevice:
    _, _, uuid, gi, ci, index, mib, *_ = words
    return MigDevice(uuid=uuid, profile="", gi=int(gi), ci=int(ci), index=int(index), memory_mib=int(mib))


@pytest.fixture(scope="session")
def nvml_library(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the library."""
    return compile_library(shared_dir / "tools/fake-nvml", tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(shared_dir: Path, nvml_library: Path, tmp_path: Path) -> Callable[[str], FakeNvml]:
    """Return what makes a library that says of the cards what a file of ../shared/tools/fake-nvml says."""
    return lambda name: FakeNvml(
        nvml_library, tmp_path / "cards.txt", (shared_dir / "tools/fake-nvml" / f"{name}.txt").read_text()
    )
