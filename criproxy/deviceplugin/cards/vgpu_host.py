"""The host's files that vGPUs need: checked and created when the kubelet allocates a vGPU."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.deviceplugin.cards.vgpu_sweep import former_path

FOLDER_MODE = 0o777
"""Containers run as any user. Only root can enter the parent directory, which systemd creates."""
MOST_FORMER = 16
"""Limit for former directories of one vGPU that are neither removed yet nor put aside: see `vgpu_sweep.MOST_ASIDE`."""


@dataclass(frozen=True, slots=True)
class VgpuFiles:
    """The files below a root; see `vgpus.VgpuHost`."""

    host_root: Path = Path("/")
    discarded: Callable[[], None] = field(default=lambda: None, compare=False)
    """Called in the thread of `prepare` when a former directory is to be removed."""

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        return self.below(path).exists()

    def prepare(self, own: str, shared: str) -> None:
        """Create two directories for containers.

        Args:
            own: The directory of one container; always a new one, since the former container may have written to it.
            shared: The directory of all containers.

        Raises:
            OSError: A directory cannot be created.
        """
        if _discard(self.below(own)):
            self.discarded()
        for folder in (self.below(own), self.below(shared)):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_mode & FOLDER_MODE != FOLDER_MODE:
                folder.chmod(FOLDER_MODE)

    def below(self, path: str) -> Path:
        """Return where a path of the host is for this process."""
        return self.host_root / path.lstrip("/")


HOST = VgpuFiles()


def _discard(folder: Path) -> bool:
    """Rename a directory with all that containers have put into it; return whether there was one.

    It is out of the way even if it cannot be removed, and a container that still has it mounted cannot put anything
    into the next one. Removing it here could take minutes: `vgpu_sweep` does that.

    Raises:
        OSError: The directory cannot be renamed, or too many former ones remain.
    """
    was_there = folder.exists()
    if was_there:
        folder.rename(former_path(folder))
    former = list(_former(folder))
    if len(former) > MOST_FORMER:
        text = f"more than {MOST_FORMER} former directories of this vGPU remain; if they still do, remove them by hand"
        raise OSError(0, text, str(former[0]))
    return was_there


def _former(folder: Path) -> Iterator[Path]:
    beginning = f".{folder.name}."
    with suppress(FileNotFoundError):
        yield from (each for each in folder.parent.iterdir() if each.name.startswith(beginning))
