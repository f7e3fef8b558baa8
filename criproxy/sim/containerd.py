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
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.sim import busybox, leftovers
from criproxy.sim.cgroups import CgroupDriver, PodCgroups

IMAGE = "criproxy.test/busybox:1"
"""The image in the store, for containers; its default command sleeps."""
_PAUSE = "criproxy.test/pause:1"
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_CALL_TIMEOUT_S = 30.0
_LEFT = re.compile(r"cannot delete running task (\w+)")
_CONFIG = """version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "{directory}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{pause}"
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{directory}/cni/bin"
conf_dir = "{directory}/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{directory}/runc"
SystemdCgroup = {systemd_cgroup}
"""
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


def available() -> str | None:
    """Return why a private containerd cannot run on this machine; None if it can."""
    if os.geteuid() != 0:
        return "containerd needs root"
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
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

    def __init__(self, cgroup_driver: CgroupDriver = "cgroupfs") -> None:
        """Prepare one; with the driver ``systemd`` that has to be the machine's first process."""
        self._cgroup_driver = cgroup_driver
        self.directory = Path(tempfile.mkdtemp(prefix="criproxy-containerd-"))
        self.socket = self.directory / "containerd.sock"
        self.cgroups = PodCgroups(f"/{self.directory.name}")
        """Makes the parent cgroups of pods, below a root that `stop` removes."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it serves CRI, as ``unix:///…``."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The process id of the daemon, 0 while it does not run."""
        return self._process.pid if self._process else 0

    @property
    def log(self) -> str:
        """What the daemon has written since the first start."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start with an empty store but for `IMAGE`; ContainerdError, with nothing left behind, if that fails."""
        try:
            (self.directory / "config.toml").write_text(
                _CONFIG.format(
                    directory=self.directory,
                    pause=_PAUSE,
                    snapshotter=_snapshotter(self.directory),
                    systemd_cgroup=str(self._cgroup_driver == "systemd").lower(),
                )
            )
            self._launch()
            self.import_image(IMAGE, _PAUSE)
        except BaseException:
            self._discard()
            raise

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with the signal *how* and start it again; containers go on meanwhile."""
        self._end(how)
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

    def call(self, name: str, request: Message, reply: type[Reply]) -> Reply:
        """Make one unary call of RuntimeService or ImageService; grpc.RpcError if it fails."""
        return self._call(name, request, reply, _CALL_TIMEOUT_S, wait=False)

    def _call(self, name: str, request: Message, reply: type[Reply], timeout_s: float, *, wait: bool) -> Reply:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _discard(self) -> None:
        self._end(signal.SIGTERM)
        leftovers.remove(self.directory)
        self.cgroups.remove()
        shutil.rmtree(self.directory)

    def _launch(self) -> None:
        with (self.directory / "log").open("ab") as log:
            command = ["containerd", "--config", str(self.directory / "config.toml")]
            # A session of its own: an interrupt at the terminal is for us, and we then stop it in order.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
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

    def import_image(self, *names: str, env: tuple[str, ...] = ()) -> None:
        """Make an image from the machine's busybox, with the variables *env*, and store it under each of *names*.

        Raises:
            ContainerdError: containerd does not take it.
        """
        archive = self.directory / "image.tar"
        archive.write_bytes(busybox.build(_busybox(), platform.machine(), env=env).archive(*names))
        result = self._ctr("images", "import", str(archive))
        if result.returncode:
            raise ContainerdError(f"cannot import the image made from busybox: {result.stderr}\n{self.log[-2000:]}")
        # The CRI part learns of images by an event inside containerd.
        self._wait_until(lambda: all(map(self._has, names)), "know its images")

    def _ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _answers(self) -> bool:
        try:
            self._call("ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse, 0.5, wait=True)
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
