"""A containerd of our own: private root, state and socket in a temporary folder, gone without a trace afterwards.

For the demonstration, tests and measurements on a real runtime. Needs no network and no CNI: its one image is made
from the machine's busybox, and pods use the host's network.
"""

import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.process.tether import python
from lab.containerd import busybox, containerd_config, leftovers
from lab.containerd.cgroups import CgroupDriver, PodCgroups

IMAGE = "criproxy.test/busybox:1"
"""The image in the store, for containers; its default command sleeps."""
_PAUSE = "criproxy.test/pause:1"
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
_READY_TIMEOUT_S = 120.0  # in an emulated guest on a busy machine it takes half a minute
_STOP_TIMEOUT_S = 10.0
_CALL_TIMEOUT_S = 30.0
_LEFT = re.compile(r"cannot delete running task (\w+)")
_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 5000),  # so long an attempt may take: on a busy machine 20 ms is too short
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),  # else the back-off of an earlier socket of this path goes on
)

Reply = TypeVar("Reply", bound=Message)


def left_task(refusal: str) -> str:
    """The id of a container that containerd refuses to remove because of a task; empty if it refuses something else.

    Where the call of a start was cut, containerd 1.6 can keep a task of a container that it calls exited, and then it
    removes neither that nor its pod before it was restarted. `PrivateContainerd.end_task` does without.
    """
    left = _LEFT.search(refusal)
    return left[1] if left else ""


def programs_folder() -> Path | None:
    """The folder of another containerd than the machine's, by CRIPROXY_CONTAINERD; None if that is not set."""
    given = os.environ.get("CRIPROXY_CONTAINERD")
    return Path(given).resolve() if given else None


def available() -> str | None:
    """Return why a private containerd cannot run on this machine; None if it can."""
    if os.geteuid() != 0:
        return "containerd needs root"
    path = _path(programs_folder())
    missing = [program for program in _PROGRAMS if not shutil.which(program, path=path)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not _is_static(_busybox()):
        return "busybox is linked dynamically: busybox-static is needed"
    if not (Path("/sys/fs/cgroup/cpuset").is_dir() or Path("/sys/fs/cgroup/cgroup.controllers").is_file()):
        return "no cgroup file system with cpusets at /sys/fs/cgroup"
    return None


class ContainerdError(RuntimeError):
    """containerd did not start, or a command of ours against it failed; the text has the end of its log."""


class PrivateContainerd:
    """Runs from `start` to `stop`, or as a context manager; `available` must have returned None.

    Blocking: on an event loop, call the methods in a thread.
    """

    def __init__(
        self,
        cgroup_driver: CgroupDriver = "cgroupfs",
        programs: Path | None = None,
        *,
        nri: bool = False,
        is_front: bool = False,
    ) -> None:
        """Prepare one.

        Args:
            cgroup_driver: with ``systemd``, that has to be the machine's first process.
            programs: a folder whose containerd, shim, ctr and runc are used; None: CRIPROXY_CONTAINERD, else those
                of the machine.
            nri: whether containerd takes NRI plugins, on a socket of its own; 1.6 cannot.
            is_front: for those who start criproxy: whether it is to be such a plugin.
        """
        self._cgroup_driver = cgroup_driver
        self._environment = {**os.environ, "PATH": _path(programs or programs_folder())}
        self._nri, self.is_front = nri, is_front
        self.directory = Path(tempfile.mkdtemp(prefix="criproxy-containerd-"))
        self.socket = self.directory / "containerd.sock"
        self.cgroups = PodCgroups(f"/{self.directory.name}")
        """Makes the parent cgroups of pods, below a root that `stop` removes."""
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        """Removes everything if this process is killed."""

    @property
    def endpoint(self) -> str:
        """Where it serves CRI, as ``unix:///…``."""
        return f"unix://{self.socket}"

    @property
    def nri_socket(self) -> Path:
        """Where it takes NRI plugins, if it does."""
        return self.directory / "nri.sock"

    @property
    def pid(self) -> int:
        """The process id of the daemon, 0 while it does not run."""
        return self._process.pid if self._process else 0

    @cached_property
    def version(self) -> containerd_config.Version:
        """Major and minor version of containerd."""
        return containerd_config.version_of(self._program("containerd"))

    @property
    def log(self) -> str:
        """What the daemon has written since the first start."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start with an empty store but for `IMAGE`; ContainerdError, with nothing left behind, if that fails."""
        try:
            command = python("lab.containerd.keeper", str(self.directory))
            # A session of its own, and no output that another one may wait for: it outlives us.
            self._keeper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            (self.directory / leftovers.CONFIG).write_text(self._config())
            self._launch()
            self.import_image(IMAGE, _PAUSE)
        except BaseException:
            self._discard()
            raise

    def _config(self) -> str:
        return containerd_config.render(
            self.version,
            self.directory,
            pause=_PAUSE,
            snapshotter=_snapshotter(self.directory),
            cgroup_driver=self._cgroup_driver,
            nri=self._nri,
        )

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with the signal *how* and start it again; containers go on meanwhile."""
        self._end(how)
        self._launch()

    def reboot(self) -> None:
        """What a reboot of the machine does to it: no process is left, nor what is kept in memory, and it starts again.

        It then knows its sandboxes, none of them ready, and its containers, none of them running.
        """
        self._end(signal.SIGKILL)
        leftovers.remove(self.directory)
        self.cgroups.remove()
        for folder in ("state", "runc"):
            shutil.rmtree(self.directory / folder, ignore_errors=True)
        self._launch()

    def remove_pods(self) -> None:
        """Stop and remove every sandbox with its containers and all tasks; grpc.RpcError if containerd refuses."""
        for sandbox in self.call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse).items:
            stop = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
            self.call("StopPodSandbox", stop, cri.StopPodSandboxResponse)
            self._remove_pod(sandbox.id)

    def _remove_pod(self, sandbox_id: str) -> None:
        remove, ended = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), set[str]()
        while True:
            try:
                self.call("RemovePodSandbox", remove, cri.RemovePodSandboxResponse)
            except grpc.RpcError as error:
                left = left_task(str(error))
                if not left or left in ended:
                    raise
                self.end_task(left)
                ended.add(left)
            else:
                return

    def end_task(self, container_id: str) -> None:
        """Kill a container's processes and delete its task, past CRI; nothing if it has none.

        Raises:
            ContainerdError: if that cannot be done.
        """
        result = self._ctr("tasks", "delete", "--force", container_id)
        if result.returncode and "not found" not in result.stderr:
            raise ContainerdError(f"cannot end the task of container {container_id}: {result.stderr}")

    def stop(self) -> None:
        """Remove pods, daemon, shims, mounts, cgroups and files; the second call does nothing."""
        if not self.directory.exists():
            return
        try:
            if self._process and self._process.poll() is None:
                self.remove_pods()
        except grpc.RpcError:
            if not self._ends_within(1.0):
                raise
        finally:
            self._discard()

    def call(
        self, name: str, request: Message, reply: type[Reply], timeout_s: float = _CALL_TIMEOUT_S, *, wait: bool = False
    ) -> Reply:
        """Make one unary call of RuntimeService or ImageService; grpc.RpcError if it fails."""
        service = "ImageService" if "Image" in name else "RuntimeService"
        with grpc.insecure_channel(self.endpoint, options=_CHANNEL_OPTIONS) as channel:
            call = channel.unary_unary(
                f"/runtime.v1.{service}/{name}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=reply.FromString,
            )
            return call(request, timeout=timeout_s, wait_for_ready=wait)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _discard(self) -> None:
        self._end(signal.SIGTERM)
        leftovers.remove(self.directory)
        self.cgroups.remove()
        shutil.rmtree(self.directory)
        if self._keeper:
            self._keeper.communicate()

    def _launch(self) -> None:
        with (self.directory / "log").open("ab") as log:
            command = [self._program("containerd"), "--config", str(self.directory / leftovers.CONFIG)]
            # A session of its own: an interrupt at the terminal is for us, and we then stop it in order.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        self._wait_until(self._answers, "answer")

    def _ends_within(self, timeout_s: float) -> bool:
        try:
            return self._process is None or self._process.wait(timeout_s) is not None
        except subprocess.TimeoutExpired:
            return False

    def _end(self, how: signal.Signals) -> None:
        if not self._process:
            return
        self._process.send_signal(how)
        if not self._ends_within(_STOP_TIMEOUT_S):
            self._process.kill()
            self._process.wait()
        self._process = None

    def import_image(
        self, *names: str, env: tuple[str, ...] = (), links: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Make an image from the machine's busybox, and store it under each of *names*; see `busybox.build`.

        Raises:
            ContainerdError: containerd does not take it.
        """
        archive = self.directory / "image.tar"
        archive.write_bytes(busybox.build(_busybox(), platform.machine(), names, env, links))
        result = self._ctr("images", "import", str(archive))
        if result.returncode:
            raise ContainerdError(f"cannot import the image made from busybox: {result.stderr}\n{self.log[-2000:]}")
        # The CRI part learns of images by an event inside containerd.
        self._wait_until(lambda: all(map(self._has, names)), "know its images")

    def _ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [self._program("ctr"), "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _program(self, name: str) -> str:
        return shutil.which(name, path=self._environment["PATH"]) or name

    def _answers(self) -> bool:
        try:
            self.call("ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse, 0.5, wait=True)
        except grpc.RpcError:
            # Not there yet, or "server is not initialized yet"; a daemon that ended is seen by its process.
            return False
        return True

    def _has(self, image: str) -> bool:
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
        return self.call("ImageStatus", request, cri.ImageStatusResponse).HasField("image")

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not condition():
            if not self._process or self._process.poll() is not None:
                raise ContainerdError(f"containerd ended before it could {what}:\n{self.log[-2000:]}")
            if time.monotonic() > deadline:
                raise ContainerdError(f"containerd did not {what} within {_READY_TIMEOUT_S:.0f} s:\n{self.log[-2000:]}")
            time.sleep(0.01)  # what is waited for happens inside containerd, which tells nobody


def _path(programs: Path | None) -> str:
    """Where commands are looked for, first in the folder *programs*."""
    return os.pathsep.join(filter(None, (str(programs or ""), os.environ.get("PATH", os.defpath))))


def _busybox() -> Path:
    return Path(shutil.which("busybox") or "/bin/busybox").resolve()


def _is_static(program: Path) -> bool:
    """Whether an ELF program names no loader."""
    with program.open("rb") as file:
        return b"/ld-" not in file.read(4096)


def _snapshotter(directory: Path) -> str:
    """Return ``overlayfs``, or ``native`` (which copies) where the kernel has none or *directory* lies on one."""
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        return "native"
    return "native" if leftovers.file_system(directory) == "overlay" else "overlayfs"
