"""Machines as folders with /proc and /sys, and a small model of the kernel that refuses what the kernel refuses."""

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from criproxy.controls.machine.kernel import KernelFiles
from criproxy.host.files import parse_mask
from criproxy.model.cpuset import format_cpuset, parse_cpuset

CPUS = "sys/devices/system/cpu"
GOVERNORS, PREFERENCES = "performance powersave", "default performance balance_performance balance_power power"
NAMES = {128: "balance_performance", 192: "balance_power", 255: "power", 0: "performance"}
"""How intel_pstate shows numbers of preferences."""


class Tree:
    """The files of a machine below *root*."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/sys/kernel/random/boot_id", "first")

    def put(self, name: str, text: object) -> Path:
        """Write a file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return path

    def get(self, name: str) -> str:
        """Read a file."""
        return (self.root / name).read_text().strip()

    def contents(self) -> dict[str, str]:
        """All files, with what is in them."""
        files = (Path(folder) / name for folder, _, names in os.walk(self.root) for name in names)
        return {str(path): path.read_text() for path in files if path.is_file()}

    def irqs(self, count: int, cpus: int, names: Mapping[int, str] | None = None, first: int = 24) -> None:
        """Add interrupts, which may go to all CPUs."""
        lines = ["".join(f"{f'CPU{cpu}':>11}" for cpu in range(cpus))]
        everywhere = format_cpuset(frozenset(range(cpus)))
        for number in range(first, first + count):
            self.put(f"proc/irq/{number}/smp_affinity_list", everywhere)
            name = (names or {}).get(number, f"nic0-q{number}")
            counts = "".join(f" {cpu * number % 10**10:10}" for cpu in range(cpus))
            lines.append(f"{number:3}:{counts}  PCI-MSI-0000:00:01.0   {number}-edge      {name}")
        self.put("proc/irq/default_smp_affinity", f"{(1 << cpus) - 1:x}")
        self.put("proc/interrupts", "\n".join([*lines, "NMI:          0   Non-maskable interrupts"]))

    def cpus(self, count: int, per_policy: int = 1, packages: int = 1) -> None:
        """Add CPUs with frequencies from 0.8 to 3.5 GHz, and three idle states."""
        self.put(f"{CPUS}/online", format_cpuset(frozenset(range(count))))
        for cpu in range(count):
            folder = f"{CPUS}/cpu{cpu}"
            self.put(f"{folder}/topology/physical_package_id", cpu * packages // count)
            self.put(f"{folder}/topology/die_id", 0)
            for index, (name, latency) in enumerate((("POLL", 0), ("C1E", 10), ("C6", 170))):
                state = f"{folder}/cpuidle/state{index}"
                self.put(f"{state}/name", name)
                self.put(f"{state}/latency", latency)
                self.put(f"{state}/disable", 0)
            first = cpu - cpu % per_policy
            policy = f"{CPUS}/cpufreq/policy{first}"
            if cpu == first:
                self._policy(policy, range(first, first + per_policy))
            (self.root / folder / "cpufreq").symlink_to(self.root / policy)

    def _policy(self, policy: str, cpus: Iterable[int]) -> None:
        values = {
            "affected_cpus": " ".join(map(str, cpus)),
            "cpuinfo_min_freq": 800000,
            "cpuinfo_max_freq": 3500000,
            "base_frequency": 2100000,
            "scaling_min_freq": 800000,
            "scaling_max_freq": 3500000,
            "scaling_available_governors": GOVERNORS,
            "scaling_governor": "powersave",
            "energy_performance_available_preferences": PREFERENCES,
            "energy_performance_preference": "balance_performance",
        }
        for name, value in values.items():
            self.put(f"{policy}/{name}", value)

    def uncore(self, name: str, package: int | None = None) -> None:
        """Add the frequencies of a die from 0.8 to 2.4 GHz."""
        folder = f"{CPUS}/intel_uncore_frequency/{name}"
        for file, khz in (("min", 800000), ("max", 2400000), ("initial_min", 800000), ("initial_max", 2400000)):
            self.put(f"{folder}/{file}_freq_khz", khz)
        if package is not None:
            self.put(f"{folder}/package_id", package)


class KernelModel(KernelFiles):
    """The kernel's rules for the files of a `Tree`; a write that it refuses changes nothing.

    A limit beyond the other one is EINVAL; a limit beyond the hardware is cut; the governor performance sets the
    preference, and takes no other one (EBUSY); a managed interrupt answers EIO.
    """

    def __init__(self, online: str = "0-4095") -> None:
        self.online = parse_cpuset(online)
        self.managed: set[str] = set()
        """Names of folders of interrupts."""
        self.failing: dict[str, int] = {}
        """Path → the error of each write."""
        self.writes: list[tuple[str, str]] = []
        """The names of the files written, and what."""

    def write(self, path: str, text: str) -> None:
        """Write as the kernel does."""
        file = Path(path)
        if path in self.failing or file.parent.name in self.managed:
            raise failure(self.failing.get(path, errno.EIO), path)
        if not file.exists():
            raise failure(errno.ENOENT, path)
        shown = self._taken(file, text)
        self.writes.append((file.name, text))
        super().write(path, shown)

    def _taken(self, file: Path, text: str) -> str:  # noqa: PLR0911 (a kind of file each)
        """Return what the file shows afterwards."""
        match file.name:
            case "scaling_min_freq" | "scaling_max_freq":
                limits = (self.read(str(file.with_name(f"cpuinfo_{each}_freq"))) for each in ("min", "max"))
                lowest, highest = map(int, limits)
                return self._limit(file, min(max(int(text), lowest), highest))
            case "min_freq_khz" | "max_freq_khz":
                return self._limit(file, int(text))
            case "scaling_governor":
                self._one_of(file, text, "scaling_available_governors")
                if text == "performance":
                    super().write(str(file.with_name("energy_performance_preference")), "performance")
                return text
            case "energy_performance_preference":
                is_fixed = self.read(str(file.with_name("scaling_governor"))) == "performance"
                if is_fixed and text not in ("0", "performance"):
                    raise failure(errno.EBUSY, str(file))
                if text.isdigit():
                    return NAMES.get(int(text), text)
                self._one_of(file, text, "energy_performance_available_preferences")
                return text
            case "smp_affinity_list" | "default_smp_affinity":
                cpus = parse_mask(text) if file.name.startswith("default") else parse_cpuset(text)
                if not cpus & self.online:
                    raise failure(errno.EINVAL, str(file))
                return text
            case "disable":
                return str(int(bool(int(text))))
        raise failure(errno.EACCES, str(file))

    def _limit(self, file: Path, khz: int) -> str:
        """Refuse a limit beyond the other one."""
        is_lower = file.name in ("scaling_min_freq", "min_freq_khz")
        swapped = file.name.replace("min", "max") if is_lower else file.name.replace("max", "min")
        other = int(self.read(str(file.with_name(swapped))))
        if (khz > other) if is_lower else (khz < other):
            raise failure(errno.EINVAL, str(file))
        return str(khz)

    def _one_of(self, file: Path, text: str, choices: str) -> None:
        if text not in self.read(str(file.with_name(choices))).split():
            raise failure(errno.EINVAL, str(file))


def failure(number: int, path: str) -> OSError:
    """What the kernel answers."""
    return OSError(number, os.strerror(number), path)
