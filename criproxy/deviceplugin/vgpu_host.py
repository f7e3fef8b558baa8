"""The host's files that vGPUs need: looked at, and made, when the kubelet allocates one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER_MODE = 0o777
"""Containers run as any user. The folder above, which systemd makes, is open to root alone."""


@dataclass(frozen=True, slots=True)
class VgpuFiles:
    """The files below a root; see `vgpus.VgpuHost`."""

    host_root: Path = Path("/")

    def exists(self, path: str) -> bool:
        """Whether a path is there."""
        return self._below(path).exists()

    def prepare(self, folders: Sequence[str], files: Sequence[str]) -> None:
        """Make these folders for containers, and remove these files of former containers.

        Raises:
            OSError: that cannot be done.
        """
        for each in folders:
            folder = self._below(each)
            if not folder.is_dir():
                folder.mkdir(parents=True)
            if folder.stat().st_mode & FOLDER_MODE != FOLDER_MODE:
                folder.chmod(FOLDER_MODE)
        for each in files:
            self._below(each).unlink(missing_ok=True)

    def _below(self, path: str) -> Path:
        return self.host_root / path.lstrip("/")


HOST = VgpuFiles()
