"""What a container really has: read from its cgroup, found through the pid that the runtime tells.

The files are in memory, so reading them on the event loop costs microseconds. A runtime whose containers are not on
this machine (the embedded one), or that tells no pid, is believed through ContainerStatus.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Applied
from criproxy.model.workload import ContainerState


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a container."""

    state: ContainerState | None
    """None: the runtime does not know it."""
    applied: Applied | None = None
    """Its sets, where it runs and they can be read."""


@dataclass(frozen=True, slots=True)
class CpusetGroup:
    """The cpuset cgroup of a container."""

    path: Path
    suffix: str
    """Of the files: empty for cgroup v1, ``.effective`` for v2."""

    def read(self) -> Applied:
        """The sets in force.

        Raises:
            OSError: if it cannot be read; FileNotFoundError or ENODEV mean that it is gone.
        """
        cpus, mems = ((self.path / f"cpuset.{kind}{self.suffix}").read_text() for kind in ("cpus", "mems"))
        return Applied(parse_cpuset(cpus.strip()), parse_cpuset(mems.strip()))


def find_group(host_root: Path, pid: int, container_id: str) -> CpusetGroup:
    """The cpuset cgroup of the container whose first process is *pid*.

    A process may sit in a group of its own below the container's, which is the one that has the id in its name.

    Raises:
        OSError: if the process is gone.
        LookupError: if the process is in no cgroup of that container, because the pid belongs to another by now.
    """
    path, suffix = _cgroup_of(host_root, pid)
    for part in (path, *path.parents):
        if container_id in part.name:
            return CpusetGroup(part, suffix)
    raise LookupError(f"process {pid} is in {path}, which is no cgroup of container {container_id}")


def _cgroup_of(host_root: Path, pid: int) -> tuple[Path, str]:
    mount = host_root / "sys/fs/cgroup"
    unified = ""
    for line in (host_root / f"proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(","):
            return mount / "cpuset" / path.lstrip("/"), ""
        if not controllers:
            unified = path
    return mount / unified.lstrip("/"), ".effective"


def pid_in(info: Mapping[str, str]) -> int | None:
    """The process id in the *info* of a verbose ContainerStatus; None where the runtime tells none or it is 0."""
    try:
        notes = json.loads(info.get("info", "{}"))
    except ValueError:
        return None
    pid = notes.get("pid") if isinstance(notes, dict) else None
    return pid if isinstance(pid, int) and pid > 0 else None


class Kernel:
    """Looks at containers; remembers where their cgroups are."""

    def __init__(self, runtime: RuntimeClient, host_root: Path) -> None:
        self._runtime = runtime
        self._host_root = host_root
        self._groups: dict[str, CpusetGroup] = {}

    async def look(self, container_id: str) -> Seen:
        """State and sets of a container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        if group := self._groups.get(container_id):
            try:
                return Seen(ContainerState.RUNNING, group.read())
            except OSError:
                self.forget(container_id)  # it has ended: the runtime tells how
        try:
            reply = await self._runtime.container_status(container_id, verbose=True)
        except RuntimeCallError as error:
            if error.not_found:
                return Seen(None)
            raise
        state = translate.state(reply.status)
        running = state is ContainerState.RUNNING
        return Seen(state, self._sets(container_id, reply) if running else None)

    def forget(self, container_id: str) -> None:
        """Look for the cgroup of that container anew, should it be asked for again."""
        self._groups.pop(container_id, None)

    def _sets(self, container_id: str, reply: api.ContainerStatusResponse) -> Applied | None:
        if pid := pid_in(reply.info):
            try:
                group = find_group(self._host_root, pid, container_id)
                applied = group.read()
            except (OSError, LookupError):
                return translate.sets(reply.status)
            self._groups[container_id] = group
            return applied
        return translate.sets(reply.status)
