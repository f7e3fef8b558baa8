"""What the checker looks at, as files in a folder."""

import json
from pathlib import Path

from lab.chaos.checker.cgroups import Cgroups
from lab.chaos.checker.runtime import Runtime
from lab.chaos.checker.samples import Journal, Samples
from lab.chaos.checker.starts import Starts


class Scene:
    """Cgroup files and a journal in a folder."""

    def __init__(self, folder: Path, bundles: Path | None = None) -> None:
        self._pods = folder / "kubepods"
        self._journal = folder / "journal"
        self._journal.touch()
        cgroups, journal = Cgroups(self._pods), Journal(self._journal)
        self.samples = Samples(cgroups, Runtime("/nonexistent"), journal, Starts(cgroups, bundles, journal.gaps))

    def write(self, key: str, **files: str) -> None:
        """The cgroup files of a container, by their extensions."""
        group = self._pods / "burstable" / "podx" / key
        group.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (group / f"{'cgroup' if name == 'procs' else 'cpuset'}.{name}").write_text(text)

    def run(self, key: str, cpus: str) -> None:
        """A container of that id runs there."""
        self.write(key, cpus=cpus, mems="0")

    def say(self, **entry: object) -> None:
        """A line of the journal."""
        with self._journal.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def look(self) -> list[str]:
        """One look."""
        return list(self.samples.look())


def owner_and_other(folder: Path, bundles: Path | None = None) -> Scene:
    """An owner of CPUs 1 and 2, and somebody on CPU 0."""
    scene = Scene(folder, bundles)
    scene.say(container="p/o", owns=[2])
    for key in ("o", "s"):
        scene.say(id=key, container=f"p/{key}")
    scene.run("o", "1-2")
    scene.run("s", "0")
    return scene
