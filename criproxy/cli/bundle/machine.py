"""Parts of a bundle about the machine: versions, the kernel, the kubelet, disks."""

import asyncio
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from criproxy import __version__
from criproxy.cli.bundle.settings import Settings
from criproxy.cli.bundle.unit_options import unit_option
from criproxy.errors import CriproxyError, reason_of

Files = Iterator[tuple[str, Any]]
"""Names of files and their contents: text, or JSON values. The texts of files with the same name are joined."""
ERROR = ""
"""The name of the file in place of which there is an error."""

_PROC = ("loadavg", "pressure/cpu", "pressure/memory", "pressure/io", "cmdline", "meminfo")
_RUNTIME_S = 5.0
_MANAGERS = frozenset(
    (
        *(
            "cpuManagerPolicy",
            "cpuManagerPolicyOptions",
            "cpuManagerReconcilePeriod",
            "cpuCFSQuota",
            "cpuCFSQuotaPeriod",
        ),
        *("topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope"),
        *("memoryManagerPolicy", "reservedMemory", "reservedSystemCPUs", "kubeReserved", "systemReserved"),
        *("kubeReservedCgroup", "systemReservedCgroup", "enforceNodeAllocatable", "evictionHard", "evictionSoft"),
        *("cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "kubeletCgroups", "systemCgroups", "featureGates"),
        *("containerRuntimeEndpoint", "imageServiceEndpoint", "runtimeRequestTimeout", "maxPods", "podPidsLimit"),
    )
)
"""The keys of the kubelet's configuration that are shown, since others may name secrets and clusters."""
_MANAGER_FLAGS = (
    "cpu-",
    "topology-manager",
    "memory-manager",
    "reserved-",
    "kube-reserved",
    "system-reserved",
    "cgroup",
)


def versions(settings: Settings) -> Files:
    """The versions of criproxy and its libraries, of Python, the kernel and the distribution, and the processor."""
    name = "versions.txt"
    kernel = os.uname()
    yield name, f"criproxy {__version__}\nPython {platform.python_version()} ({platform.python_implementation()})\n"
    yield name, f"kernel {kernel.sysname} {kernel.release} {kernel.version} {kernel.machine}\n"
    yield from _distribution(settings, name)
    try:
        needed = requires("criproxy") or []
    except PackageNotFoundError:
        needed = []
    libraries = sorted(
        {line.split(";")[0].split("[")[0].rstrip("<>=!~ 0123456789.,") for line in needed if "extra ==" not in line}
    )
    for library in libraries:
        try:
            yield name, f"{library} {version(library)}\n"
        except PackageNotFoundError:  # of an extra
            continue
    from criproxy.host.hardware import read_processor

    processor, flags = read_processor()  # it runs programs, so it comes last
    yield name, f"processor {processor}\n"
    yield name, f"processor flags {flags}\n"


def _distribution(settings: Settings, name: str) -> Files:
    try:
        lines = settings.path("/etc/os-release").read_text(errors="replace").splitlines()
    except OSError as error:
        yield ERROR, f"/etc/os-release: {error.strerror}"
    else:
        named = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
        yield name, f"distribution {named[0] if named else 'unknown'}\n"


def kernel(settings: Settings) -> Files:
    """The load, the memory and the kernel's parameters."""
    for file in _PROC:
        try:
            text = settings.path(f"/proc/{file}").read_text(errors="replace")
        except OSError as error:
            yield ERROR, f"/proc/{file}: {error.strerror}"
        else:
            yield "kernel.txt", f"/proc/{file}: {text}"
    unified = settings.path("/sys/fs/cgroup/cgroup.controllers").exists()
    yield "kernel.txt", f"cgroup {'v2' if unified else 'v1'}\n"


def runtime(settings: Settings) -> Files:
    """The runtime's answer to Version on its own socket."""
    from criproxy.cri.runtime import RuntimeClient
    from criproxy.install.planning import paths
    from criproxy.wire.sockets import unix_path

    if named := settings.runtime_endpoint:
        path = unix_path(named, "--runtime-endpoint")
    else:
        path = str(settings.path(paths.socket_of(unit_option(settings, "runtime-endpoint") or paths.CONTAINERD)))

    async def ask() -> str:
        client = RuntimeClient(f"unix://{path}", _RUNTIME_S)
        try:
            answer = await client.version()
        finally:
            await client.close()
        return f"{answer.runtime_name} {answer.runtime_version}, CRI {answer.runtime_api_version}"

    yield "versions.txt", f"runtime on {path}: {asyncio.run(ask())}\n"


def kubelet(settings: Settings) -> Files:
    """How the kubelet is started, and its settings of CPUs, memory and topology."""
    from criproxy.install.host import Host
    from criproxy.install.look import look
    from criproxy.install.planning.facts import Brought

    facts = look(Host(settings.path("/")), None, Brought())
    yield "kubelet/flags.txt", f"{facts.kind}, unit {facts.kubelet}\n" + " ".join(facts.words) + "\n"
    yield "kubelet/flags.txt", f"endpoint: {facts.endpoint or 'the default'}\n"
    yield "kubelet/flags.txt", f"sockets: {' '.join(sorted(facts.sockets)) or 'none'}\n"
    yield "kubelet/flags.txt", "".join(f"{rival}\n" for rival in facts.rivals)
    for number, path in enumerate(facts.configs):
        yield f"kubelet/config-{number}.json", {"file": path, **managers(facts.data(path))}
    for manager in ("cpu_manager_state", "memory_manager_state"):
        yield from _manager_state(settings, manager)


def managers(data: dict[str, Any]) -> dict[str, Any]:
    """Return those keys of a configuration of the kubelet, or of k3s, that are about CPUs, memory and topology."""
    chosen = {key: value for key, value in data.items() if key in _MANAGERS}
    for key in ("kubelet-arg", "kubelet-arg+"):
        arguments = data.get(key, [])
        listed = arguments if isinstance(arguments, list) else [arguments]
        if found := [str(each) for each in listed if str(each).startswith(_MANAGER_FLAGS)]:
            chosen[key] = found
    return chosen


def _manager_state(settings: Settings, manager: str) -> Files:
    """Yield the policy that the kubelet's own manager has left, without its pods."""
    import json

    try:
        state = json.loads(settings.path(f"/var/lib/kubelet/{manager}").read_text())
        kept = {key: state[key] for key in ("policyName", "defaultCpuSet") if key in state}
        yield f"kubelet/{manager}.json", {**kept, "pods": len(state.get("entries") or {})}
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError, TypeError) as error:
        yield ERROR, f"/var/lib/kubelet/{manager}: {reason_of(error)}"


def disks(settings: Settings) -> Files:
    """The space of the file systems that criproxy and the kubelet use."""
    names = ("/", "/run", "/tmp", "/var/lib/kubelet", "/var/log")  # noqa: S108 - only looked at
    for place in [*(str(settings.path(name)) for name in names), settings.state_dir]:
        try:
            found = os.statvfs(place)
        except OSError as error:
            yield ERROR, f"{place}: {error.strerror}"
            continue
        size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        inodes = f"{found.f_favail} of {found.f_files} inodes"
        mode = ", read-only" if found.f_flag & os.ST_RDONLY else ""
        yield "disks.txt", f"{place}: {free >> 20} of {size >> 20} MiB free, {inodes} free{mode}\n"


def why(error: BaseException) -> str:
    """Return an error in one sentence."""
    if isinstance(error, CriproxyError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return repr(error)
