"""Classes that a machine cannot have: `check` and a start say what is missing."""

from dataclasses import replace

import pytest

from criproxy.config.validation_errors import dotted
from criproxy.model.controls import DEFAULTS, CpuTuning
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.resctrl import Bandwidth, Cache, Resctrl
from criproxy.model.machine.scheduler import Scheduler
from tests.model.machine.test_scheduler import FEWER_CPUS, NO_RUNTIME
from tests.placement.classes.policy import contents, rules, said
from tests.placement.policies.shapes import n4c16

FULL = Controllable(
    governors=("performance", "powersave"),
    energy_preferences=("performance", "power"),
    min_khz=800_000,
    max_khz=3_000_000,
    c_states=("POLL", "C1", "C6"),
    uncore=True,
    resctrl=Resctrl(
        caches={"L3": Cache(ids=(0, 1), mask=0xFFF, least_bits=2)}, bandwidth=Bandwidth(ids=(0, 1)), groups=3
    ),
)
V1 = Controllable(unified=False, v1_burst=True, weights=False)
BARE = Controllable(weights=False)
OLD_V1 = Controllable(unified=False, throttles=False, weights=False)
OLD_FILES = frozenset(DEFAULTS) - {"memory.swap.max", "cpu.idle", "cpu.max.burst"}
NO_RESCTRL = Controllable(no_resctrl="resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl")
NO_CPUFREQ = "Linux does not control the frequencies of this machine's CPUs (there is no cpufreq)"
OTHER_PREFERENCES = "there is no preference 'balance_power'; this machine has: performance, power, and 0 to 255"
ALL = """cpu: {weight: 5, uclampMin: 5, burst: 10%, minFreq: 1GHz, maxFreq: turbo, governor: powersave,
      energyPerformancePreference: power, uncoreMaxFreq: 2GHz, disabledCStates: [C6]}
    memory: {high: 90%, swapMax: 0}
    blockIO: {weight: 10, devices: [{paths: [/dev/sda], readBps: 1M, weight: 5}]}
    rdt: {l3: 50%, mb: 50%}
    scheduling: {policy: fifo, priority: 3}
    irq: away"""


def unfit(parts: str, machine: Controllable, before: str = "") -> list[str]:
    """What is said of a class with these parts on a machine."""
    topology = replace(n4c16(), control_files=OLD_FILES if machine is BARE else frozenset())
    text = f"policy: static\n{before}classes:\n  a:\n    {parts}\n"
    return said(text, machine, n4c16() if machine is FULL else topology)


def test_a_machine_that_has_everything() -> None:
    """Nothing is said."""
    assert unfit(ALL, FULL) == []


def test_cgroup_v1() -> None:
    """It has a burst and limits of block devices; everything else of cgroups says what it needs."""
    assert unfit("cpu: {burst: idle}", BARE) == []
    assert unfit("cpu: {burst: 10%}\n    blockIO: {devices: [{paths: [/dev/sda], readBps: 1M}]}", V1) == []
    assert unfit("cpu: {idle: true}\n    memory: {high: 90%, oomGroup: true}", V1) == [
        "classes.a.cpu.idle: needs cgroup v2, and this machine has v1",
        "classes.a.memory.high: needs cgroup v2, and this machine has v1",
        "classes.a.memory.oomGroup: needs cgroup v2, and this machine has v1",
    ]


@pytest.mark.parametrize(
    ("parts", "machine", "expected"),
    [
        ("cpu: {idle: true}", BARE, "cpu.idle: the kernel of this machine has no cpu.idle for containers"),
        ("cpu: {burst: 10%}", OLD_V1, "cpu.burst: the kernel of this machine has no cpu.cfs_burst_us for containers"),
        (
            "memory: {swapMax: 0}",
            BARE,
            "memory.swapMax: the kernel of this machine does not count swap space (no memory.swap.max)",
        ),
        ("cpu: {minFreq: 1GHz}", BARE, f"cpu.minFreq: {NO_CPUFREQ}"),
        (
            "cpu: {governor: ondemand}",
            FULL,
            "cpu.governor: there is no governor 'ondemand'; this machine has: performance, powersave",
        ),
        (
            "cpu: {energyPerformancePreference: balance_power}",
            FULL,
            f"cpu.energyPerformancePreference: {OTHER_PREFERENCES}",
        ),
        (
            "cpu: {energyPerformancePreference: 3}",
            Controllable(governors=("performance",)),
            "cpu.energyPerformancePreference: the CPUs of this machine have no energy performance preference",
        ),
        ("cpu: {maxFreq: 5GHz}", FULL, "cpu.maxFreq: 5000000 kHz is not possible: the CPUs have 800000 to 3000000 kHz"),
        (
            "cpu: {uncoreMinFreq: 1GHz}",
            BARE,
            "cpu.uncoreMinFreq: this machine has no uncore frequencies (no driver intel_uncore_frequency)",
        ),
        (
            "cpu: {disabledCStates: [C1, C8]}",
            FULL,
            "cpu.disabledCStates[1]: the CPUs have no idle state 'C8'; those of this machine are: POLL, C1, C6",
        ),
        (
            "blockIO: {weight: 10}",
            BARE,
            "blockIO.weight: needs the scheduler bfq for block devices, which this kernel does not have (modprobe bfq)",
        ),
        (
            "blockIO: {devices: [{paths: [/dev/sda], readBps: 1}]}",
            OLD_V1,
            "blockIO.devices[0]: the kernel of this machine cannot limit block devices for containers",
        ),
        ("rdt: {l3: 50%}", NO_RESCTRL, "rdt: resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl"),
        ("rdt: {l2: 50%}", FULL, "rdt: RDT class a: resctrl of this machine cannot divide L2; `optional` takes that"),
        (
            "scheduling: {policy: fifo, priority: 1}",
            Controllable(scheduler=Scheduler(pods_runtime_us=0)),
            f"scheduling: policy fifo: {NO_RUNTIME}",
        ),
        (
            "scheduling: {policy: deadline, runtime: 1ms, deadline: 2ms}",
            FULL,
            f"scheduling: policy deadline: {FEWER_CPUS}",
        ),
    ],
)
def test_what_is_missing(parts: str, machine: Controllable, expected: str) -> None:
    """Each has one sentence, with what is there or how to have it."""
    assert unfit(parts, machine) == [f"classes.a.{expected}"]


def test_optional_resources() -> None:
    """What may be absent is no mistake, with another resource or without resctrl."""
    assert unfit("rdt: {l2: 50%}", FULL, "rdt: {optional: [l2]}\n") == []
    assert unfit("rdt: {l3: 50%, mb: 50%}", NO_RESCTRL, "rdt: {optional: [l3, mb]}\n") == []


def test_too_many_classes() -> None:
    """A machine has only as many control groups."""
    more = "\n".join(f"  {name}: {{rdt: {{l3: 50%}}}}" for name in "bcd")
    (found,) = said(f"policy: static\nclasses:\n  a: {{rdt: {{l3: 50%}}}}\n{more}\n", FULL)

    assert found.startswith("rdt: 4 RDT classes need as many control groups of resctrl; this machine has 2")


def test_the_machine_is_not_asked_without_one() -> None:
    """A file that is only checked by itself may be for any machine."""
    assert said(f"policy: static\nclasses:\n  a:\n    {ALL}\n") == []


PEERS = """policy: balloons
idleCPUClass: slow
cpuClasses:
- {name: fast, minFreq: 2000000, freqGovernor: ondemand, disabledCstates: [C1, C8, C9]}
- {name: slow, maxFreq: 900000}
schedulingClasses: [{name: strict, policy: deadline, runtime: 1000, deadline: 2000}]
balloonTypes: [{name: b, namespaces: ["*"], cpuClass: fast, schedulingClass: strict}]
"""


def test_what_the_options_of_peers_ask_is_noted() -> None:
    """A file of a fleet counts on each machine: what a machine has takes effect, and the rest is said."""
    found = contents(PEERS, FULL)

    assert (found.wrong, found.unfit) == ([], [])
    assert found.settings is not None
    assert [dotted(path) for path, _ in found.settings.options.notes()] == [
        *("cpuClasses[0].freqGovernor", "cpuClasses[0].disabledCstates", "cpuClasses[0].disabledCstates"),
        "schedulingClasses[0]",
    ]
    parts = rules(PEERS, FULL).desired_parts()
    assert parts.tunings == {
        "fast": CpuTuning(min_frequency="2000000", disabled_c_states=("C1",)),
        "slow": CpuTuning(max_frequency="900000"),
    }
    assert parts.scheduling == {}


def test_the_options_of_peers_on_a_machine_without_frequencies() -> None:
    """Each has a note."""
    found = contents(PEERS, BARE)

    assert found.settings is not None
    assert [f"{dotted(path)}: {text}" for path, text in found.settings.options.notes()][-3:-1] == [
        f"cpuClasses[1].maxFreq: has no effect: {NO_CPUFREQ}",
        f"schedulingClasses[0]: has no effect: policy deadline: {FEWER_CPUS}",
    ]
    assert rules(PEERS, BARE).desired_parts().tunings == {}
