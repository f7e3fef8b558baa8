"""A machine with resctrl as a folder, and a small model of the kernel, which refuses what the kernel refuses.

Rules: Documentation/filesystems/resctrl.rst, and ``parse_cbm``, ``bw_validate`` and ``rdtgroup_mkdir`` in fs/resctrl.
"""

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from criproxy.controls.resctrl.groups import KernelGroups
from tests.controls.trees import Tree, failure

MOUNT = "sys/fs/resctrl"
L3 = {"cbm_mask": "fffff", "min_cbm_bits": "1", "num_closids": "4"}
MB = {"min_bandwidth": "10", "bandwidth_gran": "10", "num_closids": "4"}


class ResctrlModel(KernelGroups):
    """The machine, with two caches of level 3.

    Args:
        root: its folder, which may be a machine already.
        info: resource → what its folder below ``info`` says.
        tells: whether /proc has the groups of threads, as that of newer kernels.
    """

    def __init__(self, root: Path, info: Mapping[str, Mapping[str, str]] | None = None, *, tells: bool = True) -> None:
        self.tree, self.mount, self._tells = Tree(root), root / MOUNT, tells
        self.info = info or {"L3": L3, "MB": MB}
        self.writes: list[tuple[str, str]] = []
        """Path below the mount, and what was written."""
        self.reads = 0
        self.before_write: Callable[[str, str], None] = lambda path, text: None
        """Called with what is about to be written."""
        self.rounds_to = 1
        """The kernel shows bandwidths as multiples of it."""
        for resource, files in self.info.items():
            for name, text in files.items():
                self.tree.put(f"{MOUNT}/info/{resource}/{name}", text)
        self.tree.put("proc/filesystems", "nodev\tresctrl")
        self.tree.put("proc/mounts", f"resctrl /{MOUNT} resctrl rw,relatime 0 0")
        if not (self.mount / "schemata").exists():
            self._say("ok")
            self._fill(self.mount)

    # ---------------------------------------------------------------- the machine

    def thread(self, number: int, cgroup: str, *, parent: int = 1, process: int = 0) -> None:
        """Start a thread, in the group of its parent, or of its process if that is another number."""
        self.tree.put(f"proc/{number}/cgroup", f"0::/{cgroup}")
        self.tree.put(f"proc/{number}/status", f"Name:\tprogram\nTgid:\t{process or number}\nPPid:\t{parent}")
        path = self.tree.root / "sys/fs/cgroup" / cgroup / "cgroup.threads"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + f"{number}\n")
        self._put(number, self.group_of(process or parent) or self.mount)

    def end(self, number: int) -> None:
        """End a thread; who has its folder in /proc open can read nothing of it any more."""
        folder = self.tree.root / f"proc/{number}"
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        for path in (self.tree.root / "sys/fs/cgroup").rglob("cgroup.threads"):
            path.write_text("".join(f"{each}\n" for each in path.read_text().split() if each != str(number)))
        for group in self.groups():
            self._drop(number, group)

    def groups(self) -> list[Path]:
        """Return all groups: the root group, others, and those for monitoring."""
        return [path.parent for path in self.mount.rglob("tasks")]

    def group_of(self, number: int) -> Path | None:
        """Return the control group of a thread, or its group for monitoring."""
        found = [group for group in self.groups() if str(number) in (group / "tasks").read_text().split()]
        return max(found, key=lambda each: len(each.parts), default=None)

    def groups_by_thread(self) -> dict[int, str]:
        """Return number → path of its group below the mount."""
        numbers = sorted(int(path.name) for path in (self.tree.root / "proc").iterdir() if path.name.isdigit())
        return {number: str((self.group_of(number) or self.mount).relative_to(self.mount)) for number in numbers}

    def schemata(self, group: str = "") -> list[str]:
        """Return the lines of a group."""
        return [line.strip() for line in (self.mount / group / "schemata").read_text().splitlines()]

    def monitor(self, group: str, name: str) -> Path:
        """Make a group for monitoring."""
        path = self.mount / group / "mon_groups" / name
        path.mkdir(parents=True)
        (path / "tasks").touch()
        return path

    # ---------------------------------------------------------------- what the kernel does

    def make(self, path: str) -> None:
        """Make a control group, unless there are too many."""
        folder = Path(path)
        if folder.exists():
            raise failure(errno.EEXIST, path)
        controls = [each for each in self.groups() if each.parent.name != "mon_groups"]
        if len(controls) >= min(int(files["num_closids"]) for files in self.info.values()):
            self._say("Out of CLOSIDs")
            raise failure(errno.ENOSPC, path)
        folder.mkdir()
        self._fill(folder)
        self._say("ok")

    def remove(self, path: str) -> None:
        """Remove a control group; its threads go to the root group."""
        folder = Path(path)
        if not folder.is_dir():
            raise failure(errno.ENOENT, path)
        numbers = (folder / "tasks").read_text().split()
        shutil.rmtree(folder)
        for number in numbers:
            self._put(int(number), self.mount)

    def read(self, path: str) -> str:
        """Read a file, and count it."""
        self.reads += 1
        return super().read(path)

    def write(self, path: str, text: str) -> None:
        """Write as the kernel does."""
        self.before_write(path, text)
        file = Path(path)
        if not file.exists():
            raise failure(errno.ENOENT, path)
        self._say("ok")
        if file.name == "tasks":
            self._move(int(text), file.parent)
        elif file.name == "schemata":
            self._set(file, text)
        else:
            raise failure(errno.EACCES, path)
        self.writes.append((str(file.relative_to(self.mount)), text))

    def _fill(self, folder: Path) -> None:
        whole = {"MB": "100", **{name: files["cbm_mask"] for name, files in self.info.items() if name != "MB"}}
        lines = [f"    {name}:0={whole[name]};1={whole[name]}" for name in self.info]
        (folder / "schemata").write_text("\n".join(lines) + "\n")
        (folder / "tasks").touch()

    def _move(self, number: int, group: Path) -> None:
        if not (self.tree.root / f"proc/{number}").is_dir():
            raise failure(errno.ESRCH, str(group))
        control = group.parent.parent if group.parent.name == "mon_groups" else group
        now = self.group_of(number)
        if control != group and now not in (control, *(control / "mon_groups").iterdir()):
            self._refuse("Can't move task to different control group", str(group))
        self._put(number, group)

    def _put(self, number: int, group: Path) -> None:
        for other in self.groups():
            self._drop(number, other)
        for place in {group, group.parent.parent if group.parent.name == "mon_groups" else group}:
            (place / "tasks").write_text((place / "tasks").read_text() + f"{number}\n")
        if self._tells and (self.tree.root / f"proc/{number}").is_dir():
            is_monitor = group.parent.name == "mon_groups"
            control = group.parent.parent if is_monitor else group
            name = "/" if control == self.mount else control.name
            self.tree.put(f"proc/{number}/cpu_resctrl_groups", f"res:{name}\nmon:{group.name if is_monitor else ''}")

    def _drop(self, number: int, group: Path) -> None:
        words = (group / "tasks").read_text().split()
        if str(number) in words:
            (group / "tasks").write_text("".join(f"{word}\n" for word in words if word != str(number)))

    def _set(self, file: Path, text: str) -> None:
        lines = dict(line.strip().split(":") for line in file.read_text().splitlines())
        resource, _, rest = text.partition(":")
        if resource not in lines:
            self._refuse(f"Unknown or unsupported resource name '{resource}'", str(file))
        values = dict(pair.split("=") for pair in lines[resource].split(";"))
        for pair in rest.split(";"):
            id_, _, value = pair.partition("=")
            if id_ not in values:
                self._refuse(f"Unknown domain '{id_}'", str(file))
            values[id_] = self._bandwidth(value, file) if resource == "MB" else self._mask(resource, value, file)
        lines[resource] = ";".join(f"{id_}={value}" for id_, value in values.items())
        file.write_text("".join(f"    {name}:{each}\n" for name, each in lines.items()))

    def _mask(self, resource: str, value: str, file: Path) -> str:
        mask, info = int(value, 16), self.info[resource]
        if not mask or mask > int(info["cbm_mask"], 16):
            self._refuse("Mask out of range", str(file))
        if "01" in f"{mask:b}" and info.get("sparse_masks") != "1":
            self._refuse(f"The mask {mask:x} has non-consecutive 1-bits", str(file))
        if mask.bit_count() < int(info["min_cbm_bits"]):
            self._refuse(f"Need at least {info['min_cbm_bits']} bits in the mask", str(file))
        return f"{mask:x}"

    def _bandwidth(self, value: str, file: Path) -> str:
        if not int(self.info["MB"]["min_bandwidth"]) <= int(value) <= 100:
            self._refuse(f"MB value {value} out of range [{self.info['MB']['min_bandwidth']},100]", str(file))
        return str(min(100, -(-int(value) // self.rounds_to) * self.rounds_to))

    def _refuse(self, why: str, path: str) -> None:
        self._say(why)
        raise failure(errno.EINVAL, path)

    def _say(self, text: str) -> None:
        self.tree.put(f"{MOUNT}/info/last_cmd_status", text)
