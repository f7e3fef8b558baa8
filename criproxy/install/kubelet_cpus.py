"""What the kubelet keeps for itself: managers of its own, and CPUs, compared with those of a policy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from criproxy.install.kubelet import Kubelet
from criproxy.model.cpuset import CpuSet, numbered, parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.text.amounts import format_milli, parse_milli
from criproxy.placement.options.policy_options import Options

ReadCgroup = Callable[[str], CpuSet | None]
_AMOUNTS = (("kube-reserved", "kubeReserved"), ("system-reserved", "systemReserved"))

_MANAGERS = (("cpu-manager-policy", "cpuManagerPolicy"), ("memory-manager-policy", "memoryManagerPolicy"))
NONE = (None, "", "none", "None")
"""Values that switch a manager off."""
_UNKNOWN = "; so nobody knows which CPUs the kubelet reserves"


@dataclass(frozen=True, slots=True)
class Reservation:
    """What the kubelet keeps from pods, as the scheduler sees it."""

    cpus: CpuSet | None = None
    """By ``reservedSystemCPUs``; None: it is not set."""
    cpu_milli: int = 0
    """By ``kubeReserved`` and ``systemReserved``, which do not count beside `cpus`."""

    def difference(self, reserved: CpuSet, usable: CpuSet) -> str:
        """Return a sentence if a policy reserves other CPUs; empty if not.

        Args:
            reserved: the CPUs that the policy reserves.
            usable: all CPUs that it may give to pods.
        """
        own, then = self.cpus or frozenset(), list[str]()
        beyond, instead = (own & usable) - reserved, reserved - own
        if self._has_fewer(reserved, usable):
            then.append("the scheduler sends pods that do not fit and never start")
            instead = frozenset()
        if beyond:
            also = f", and {numbered('CPU', instead)} {'is' if len(instead) == 1 else 'are'} reserved instead"
            then.append(f"pods also run on {numbered('CPU', beyond)}{also if instead else ''}")
        return f"{self}, but this policy reserves {_cpus(reserved)}: {'; '.join(then)}" if then else ""

    def _has_fewer(self, reserved: CpuSet, usable: CpuSet) -> bool:
        """Whether the policy keeps more CPUs from pods: the scheduler sees how many the kubelet reserves, not which.

        The policy also keeps those of the kubelet's that are not *usable*. An amount is rounded up, as in a policy.
        """
        if self.cpus is None:
            return -(-self.cpu_milli // 1000) < len(reserved)
        return len(self.cpus) < len(reserved | (self.cpus - usable))

    def __str__(self) -> str:
        if self.cpus is None and self.cpu_milli:
            return f"the kubelet reserves {format_milli(self.cpu_milli)} (kubeReserved, systemReserved)"
        if self.cpus is None:
            return "the kubelet reserves no CPU (reservedSystemCPUs is not set)"
        return f"the kubelet reserves {_cpus(self.cpus)} (reservedSystemCPUs)"


def managers(kubelet: Kubelet) -> Iterator[str]:
    """Yield the kubelet's own managers that would pin the same containers, and the files that may enable them."""
    for unread in kubelet.unread:
        yield (
            f"cannot read {unread}; so nobody knows whether the kubelet's own CPU or memory manager is enabled, and "
            "which CPUs the kubelet reserves"
        )
    for flag, key in _MANAGERS:
        value = kubelet.value(flag, key)
        if value not in NONE:
            yield (
                f"the kubelet's {key} is {value}: two programs that pin the same containers undo each other's changes. "
                f"Drain the node and set {key} to {'None' if key.startswith('memory') else 'none'}; "
                "docs/install.md, step 3, has the steps"
            )


def reservation(kubelet: Kubelet) -> Reservation | None:
    """Return what the kubelet of a node reserves; None without a kubelet, or if it is `unknown`."""
    if not (kubelet.unit or kubelet.configs) or any(unknown(kubelet)):
        return None
    listed = _listed(kubelet)
    return Reservation(parse_cpuset(listed) if listed else None, sum(map(parse_milli, _amounts(kubelet).values())))


def unknown(kubelet: Kubelet) -> Iterator[str]:
    """Yield a sentence for each reason why nobody knows what the kubelet reserves: files, and settings in them."""
    yield from map(cannot_read, kubelet.unread)
    yield from _unreadable(kubelet)


def cannot_read(what: str) -> str:
    """Return that *what*, a file and the reason, is a reason why nobody knows what the kubelet reserves."""
    return f"cannot read {what}{_UNKNOWN}"


def _listed(kubelet: Kubelet) -> str | None:
    return kubelet.value("reserved-cpus", "reservedSystemCPUs")


def _amounts(kubelet: Kubelet) -> dict[str, str]:
    return {f"{key}.cpu": kubelet.values(flag, key).get("cpu", "0") for flag, key in _AMOUNTS}


def _unreadable(kubelet: Kubelet) -> Iterator[str]:
    """Yield a sentence about each setting that is not what the kubelet expects: it would not start with it."""
    listed = {"reservedSystemCPUs": value} if (value := _listed(kubelet)) else {}
    for what, parse, values in (
        ("a list of CPUs", parse_cpuset, listed),
        ("an amount of CPU", parse_milli, _amounts(kubelet)),
    ):
        for key, text in values.items():
            try:
                parse(text)
            except ValueError:
                yield f"the kubelet's {key} is {text!r:.80}, which is not {what}{_UNKNOWN}"


def differences(kubelet: Kubelet, options: Options, topology: Topology, read: ReadCgroup) -> Iterator[str]:
    """Yield what a policy with these *options* does with the CPUs of the machine that the kubelet does not.

    *read* returns the CPUs of a cgroup, and None if there is no such cgroup.
    """
    yield from _unreadable(kubelet)
    usable, found = options.usable(topology).cpus, reservation(kubelet)
    if found and (difference := found.difference(options.reserved(topology) & topology.cpus, usable)):
        yield difference
    yield from _below_cgroup_root(kubelet, usable, read)


def _below_cgroup_root(kubelet: Kubelet, usable: CpuSet, read: ReadCgroup) -> Iterator[str]:
    """Yield a sentence if pods may not use all *usable* CPUs of a policy, since the kubelet has a ``cgroupRoot``."""
    root = (kubelet.value("cgroup-root", "cgroupRoot") or "").strip("/")
    if not root:
        return
    for name in (f"{root}/kubepods", f"{_slice(root)}/{root.replace('/', '-')}-kubepods.slice", root, _slice(root)):
        if (cpus := read(f"/{name}")) is not None:
            if usable - cpus:
                yield (
                    f"the kubelet's cgroupRoot is /{root}, and pods may use only {numbered('CPU', cpus)} there, but "
                    f"this policy gives them {numbered('CPU', usable)}: set availableResources to {{cpu: /{name}}}"
                )
            return


def _slice(root: str) -> str:
    """Return the path of a slice: systemd's name of a slice has those of all above it, as in ``a.slice/a-b.slice``."""
    parts = PurePosixPath(root).parts
    return "/".join(f"{'-'.join(parts[:number])}.slice" for number in range(1, len(parts) + 1))


def _cpus(cpus: CpuSet) -> str:
    return numbered("CPU", cpus) if cpus else "no CPU"
