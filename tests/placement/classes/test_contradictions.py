"""What is wrong with classes, whatever the machine: each mistake says what, where, and what would be right."""

import pytest

from criproxy.config.validation_errors import dotted
from tests.placement.classes.policy import ALLOW, options, said

WITHOUT_CLASS = """
schedulingClasses: [{name: a, policy: rr, priority: 5, colour: red}]
balloonTypes: [{name: b, namespaces: ["*"], schedulingClass: c}]
"""


def one(parts: str) -> list[str]:
    """What is said of a class with these parts."""
    return said(f"policy: static\n{ALLOW}classes: {{a: {{{parts}}}}}\n")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ("", "classes.a: the class 'a' sets nothing: give cpu, memory, blockIO, rdt, schedul"),
        ("cpu: {}", "cpu: sets nothing: give an option, or leave it out"),
        ("irq: {}", "irq: sets nothing"),
        ("irq: {claim: []}", "irq: sets nothing"),
        ("blockIO: {devices: []}", "blockIO: sets nothing"),
        ("cpu:", "cpu: has no value: give one, or leave the line out"),
        ("cpu: {idle: true, weight: }", "cpu.weight: has no value: give one"),
        ("for: , irq: away", "for: has no value: give one"),
        (
            "cpu: {energyPerformancePreference: -1}",
            "cpu.energyPerformancePreference: must be a name such as balance_power, or a number",
        ),
        (
            "memory: {high: 90}",
            "memory.high: 90 is a number of bytes, and less than a page of memory: a percentage needs its %",
        ),
        ("rdt: {mb: 5000000000MBps}", "rdt.mb: 5000000000MBps must be above 0, and at most 100% or 4294"),
        (
            "weight: 5",
            "unknown option 'classes.a.weight'; did you mean 'classes.a.cpu.weight' or 'classes.a.blockIO.weight'?",
        ),
        ("cpu: {nice: 5}", "unknown option 'classes.a.cpu.nice'; did you mean 'classes.a.scheduling.nice'?"),
        ("cpu: {idleCPUClass: a}", "unknown option 'classes.a.cpu.idleCPUClass'; did you mean 'idleCPUClass'?"),
        ("cpu: {weight: 0}", "cpu.weight: must be greater than or equal to 1, not 0"),
        ("cpu: {weight: 10001}", "cpu.weight: must be less than or equal to 10000"),
        ("cpu: {wieght: 1}", "unknown option 'classes.a.cpu.wieght'; did you mean 'weight'?"),
        ("cpu: {idle: true, weight: 7}", "cpu.weight: has no effect with idle"),
        ("cpu: {uclampMin: 101}", "cpu.uclampMin: must be a percentage from 0 to 100"),
        ("cpu: {uclampMin: -1}", "cpu.uclampMin: must be a percentage from"),
        ("cpu: {uclampMin: 80, uclampMax: 20%}", "cpu.uclampMin: is 80, more than uclampMax (20%)"),
        ("cpu: {burst: 101%}", "cpu.burst: must be a percentage from 0 to 100"),
        ("cpu: {burst: never}", "cpu.burst: must be a percentage from 0 to 100, such as 20, or idle"),
        ("cpu: {uclampMin: idle}", "cpu.uclampMin: must be a percentage"),
        ("cpu: {minFreq: 0}", "cpu.minFreq: must be a frequency such as 2GHz"),
        ("cpu: {minFreq: 2THz}", "cpu.minFreq: must be a frequency such as 2GHz"),
        ("cpu: {minFreq: 900GHz}", "cpu.minFreq: must be a frequency"),
        ("cpu: {uncoreMinFreq: turbo}", "cpu.uncoreMinFreq: must be a freq"),
        ("cpu: {minFreq: 2GHz, maxFreq: 1800MHz}", "cpu.minFreq: is 2000000 kHz, more than maxFreq (1800000 kHz)"),
        ("cpu: {minFreq: turbo, maxFreq: base}", "cpu.minFreq: is turbo, more than maxFreq (base)"),
        ("cpu: {uncoreMinFreq: 2GHz, uncoreMaxFreq: 1GHz}", "cpu.uncoreMinFreq: is 2000000 kHz"),
        (
            "cpu: {governor: performance, energyPerformancePreference: power}",
            "cpu.energyPerformancePreference: power does not fit the governor performance",
        ),
        (
            "cpu: {energyPerformancePreference: 256}",
            "cpu.energyPerformancePreference: must be a name such as balance_power, or a number",
        ),
        ("cpu: {governor: a/b}", "cpu.governor: must be a word"),
        ('cpu: {disabledCStates: ["../C6"]}', "cpu.disabledCStates[0]: must be the name"),
        ("memory: {high: 0}", "memory.high: must be above 0"),
        ("memory: {high: 0%}", "memory.high: must be above 0"),
        ("memory: {high: 101%}", "memory.high: 101% is more than the memory limit: give at most 100%"),
        ("memory: {min: 101%}", "memory.min: 101% is more than the request"),
        ("memory: {high: -1}", "memory.high: must be a size such as 100Mi, or"),
        ("memory: {high: 9999999P}", "memory.high: must be a size"),
        ("memory: {high: 1X}", "memory.high: must be a size such as 100Mi"),
        ("memory: {high: 1Gi, low: 2Gi}", "memory.low: is 2Gi, more than high (1Gi)"),
        ("memory: {swapMax: true}", "memory.swapMax: must be a size"),
        ("blockIO: {weight: 1001}", "blockIO.weight: must be less than or equal to 1000"),
        ("blockIO: {devices: [{paths: [], readBps: 1}]}", "blockIO.devices[0].paths: names no device"),
        ("blockIO: {devices: [{paths: [/dev/sda]}]}", "blockIO.devices[0]: limits nothing"),
        (
            "blockIO: {devices: [{paths: [/etc/passwd], readBps: 1}]}",
            "blockIO.devices[0].paths[0]: must be a block device such as /dev/sda",
        ),
        (
            "blockIO: {devices: [{paths: [/dev/../etc/x], readBps: 1}]}",
            "blockIO.devices[0].paths[0]: must be a block device",
        ),
        (
            "blockIO: {devices: [{paths: [/dev/sda], readBps: 0}]}",
            "blockIO.devices[0].readBps: must be a number above 0",
        ),
        ("rdt: {l3: 0%}", "rdt.l3: 0% must be a percentage from 1 to 100"),
        ("rdt: {l3: 101%}", "rdt.l3: 101% must be a percentage from 1 to 100"),
        ("rdt: {l3: 60-50%}", "rdt.l3: 60-50% must be"),
        ('rdt: {l3: "0xf0f"}', "rdt.l3: 0xf0f has a gap"),
        ('rdt: {l3: "0x0"}', "rdt.l3: 0x0 names no bit"),
        ("rdt: {l3: {0-x: 50%}}", "rdt.l3: must have all, or ids of caches"),
        ("rdt: {l3: {all: {code: 50%}}}", "rdt.l3: needs both code and data"),
        ("rdt: {mb: 50%x}", "rdt.mb: must be a share of memory bandwidth"),
        ("rdt: {mb: [50%, 60%]}", "rdt.mb: has two shares of the same unit"),
        ("rdt: {mb: []}", "rdt.mb: must be a share of memory bandwidth"),
        ("rdt: {partition: x}", "rdt.partition: there is no partition 'x'; those in rdt.partitions are: none"),
        ("scheduling: {policy: fifo}", "scheduling.policy: fifo needs a priority from 1"),
        ("scheduling: {policy: fifo, priority: 100}", "scheduling.priority: must be less than"),
        (
            "scheduling: {policy: batch, priority: 1}",
            "scheduling.priority: has an effect only with the policies fifo and rr",
        ),
        (
            "scheduling: {policy: rr, priority: 1, nice: 1}",
            "scheduling.nice: has no effect with the policy rr, only with other and batch",
        ),
        ("scheduling: {nice: -21}", "scheduling.nice: must be greater than"),
        ("scheduling: {policy: iso}", "scheduling.policy: must be 'other', 'batch'"),
        ("scheduling: {policy: deadline}", "scheduling.policy: deadline needs the option"),
        (
            "scheduling: {policy: deadline, runtime: 2ms, deadline: 1ms}",
            "scheduling.runtime: 2000us, deadline 1000us and period 1000us: must be 2us ≤ runtime",
        ),
        (
            "scheduling: {policy: deadline, runtime: 1ms, deadline: 3ms, period: 2ms}",
            "scheduling.runtime: 1000us, deadline 3000us and period 2000us: must be 2us ≤ runtime",
        ),
        ("scheduling: {runtime: 1000}", "scheduling.runtime: must be a time of at"),
        (
            "scheduling: {policy: other, runtime: 1ms}",
            "scheduling.runtime: has an effect only with the policy deadline",
        ),
        (
            "scheduling: {policy: batch, flags: [reclaim]}",
            "scheduling.flags: reclaim has an effect only with the policy deadline",
        ),
        ("scheduling: {ioPriority: 3}", "scheduling.ioPriority: needs the ioClass rt or be"),
        ("scheduling: {ioClass: be, ioPriority: 8}", "scheduling.ioPriority: must be less than"),
        ("irq: home", "irq: must be 'away' or 'sink', not 'home'"),
        ("for: {qos: [Gold]}, irq: away", "for.qos[0]: must be 'Guaranteed', 'Burstable'"),
        ("for: {namespaces: [A_b]}, irq: away", "for.namespaces[0]: must be a namespace"),
        ("for: {pools: [x]}, irq: away", "for.pools[0]: has no effect: this policy has no pools with names"),
    ],
)
def test_a_class_with_a_mistake(parts: str, expected: str) -> None:
    """Each has one sentence with its place."""
    (found,) = one(parts)

    assert found.removeprefix("classes.a.").startswith(expected)


@pytest.mark.parametrize("name", ["a b", "a+b", "../x", "x" * 64, "a=b", ".x"])
def test_names_of_classes(name: str) -> None:
    """They are names of folders of resctrl, and parts of the names of anonymous classes."""
    (found,) = said(f"policy: static\nclasses: {{{name!r}: {{irq: away}}}}\n")

    assert "must be a name of at most 63 letters, digits and . _ -" in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "rdt: {partitions: {a: {l3: 60%}, b: {l3: 50%}}}\n",
            "rdt.partitions.b.l3: together with the partitions before it, it takes 110 % of l3",
        ),
        (
            'rdt: {partitions: {a: {l3: {all: 20%, "1": 60%}}, b: {l3: {"1": 50%}}}}\n',
            "rdt.partitions.b.l3: together with the partitions before it, it takes 110 % of l3 of cache 1",
        ),
        ("rdt: {partitions: {a: {}}}\n", "rdt.partitions.a: sets nothing: give l2, l3 or mb"),
        ("rdt: {optional: [l4]}\n", "rdt.optional[0]: must be 'l2', 'l3' or 'mb', not 'l4'"),
        (
            "idleCPUClass: slow\nclasses: {fast: {cpu: {minFreq: base}}}\n",
            "idleCPUClass: there is no class 'slow' with cpu; classes with cpu are: fast",
        ),
        (
            "classes: {info: {rdt: {l3: 50%}}}\n",
            "classes.info.rdt: a class with rdt cannot be called info: resctrl has a file of this name",
        ),
    ],
)
def test_mistakes_beside_the_classes(text: str, expected: str) -> None:
    """In what several classes share, and in the options that name classes."""
    assert [each.startswith(expected) for each in said(f"policy: static\n{text}")] == [True], said(
        f"policy: static\n{text}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpuClasses: {a: {minFreq: fast}}\n", "cpuClasses.a.minFreq: must be a frequency such as 2GHz"),
        (
            "cpuClasses: [{name: a, minFreq: 2000000}, {name: a, maxFreq: 1}]\n",
            "cpuClasses[1]: the class 'a' has cpu already: give each a name of its own",
        ),
        ("cpuClasses: [{minFreq: 2000000}]\n", "cpuClasses[0]: needs a name"),
        (
            "schedulingClasses: [{name: a, policy: rr, priority: 100}]\n",
            "schedulingClasses[0].priority: must be less than or equal to 99",
        ),
        (
            "classes: {a: {cpu: {weight: 1}}}\ncpuClasses: {a: {minFreq: base}}\n",
            "cpuClasses.a: the class 'a' has cpu already",
        ),
        ("schedulingClasses: [{name: a, policy: fifo}]\n", "schedulingClasses[0].policy: fifo needs a priority"),
        (
            WITHOUT_CLASS,
            "balloonTypes[0].schedulingClass: there is no class 'c' with scheduling; classes with scheduling are: a",
        ),
        (
            'balloonTypes: [{name: b, namespaces: ["*"], irqMode: home}]\n',
            "balloonTypes[0].irqMode: must be isolate or sink, not 'home'",
        ),
        ('balloonTypes: [{name: b, namespaces: ["*"], irqClaim: [{a: b}]}]\n', "balloonTypes[0].irqClaim: "),
        (
            "classes: {a: {for: {pools: [bogus]}, irq: away}}\nballoonTypes: [{name: b, namespaces: [b]}]\n",
            "classes.a.for.pools[0]: there is no 'bogus'; there are: b, default, reserved",
        ),
    ],
)
def test_options_of_nri_plugins(text: str, expected: str) -> None:
    """Their mistakes are at their place in the file."""
    found = said(f"policy: balloons\n{text}")

    assert len(found) == 1, found
    assert found[0].startswith(expected)


def test_a_class_for_the_default_balloon_without_types_of_balloons() -> None:
    """The balloons that every node has can be named; others are refused."""
    file = 'policy: balloons\nreservedCpus: "0"\nclasses: {slow: {cpu: {weight: 10}, for: {pools: [%s]}}}\n'

    assert said(file % "default") == []
    assert said(file % "other") == ["classes.slow.for.pools[0]: there is no 'other'; there are: default, reserved"]


def test_mistakes_under_an_unknown_policy() -> None:
    """Those of the classes are found, too."""
    found = said("policy: statik\nclasses: {a: {cpu: {weight: 0}}}\n")

    assert [each.partition(":")[0] for each in found] == ["policy", "classes.a.cpu.weight"]


def test_no_such_qos_class() -> None:
    """Of the QoS classes of pods, an option can name only those that exist."""
    text = "policy: topology-aware\nschedulingClasses: [{name: a, nice: 5}]\npodQoSSchedulingClasses: {Burst: a}\n"

    assert said(text) == [
        "podQoSSchedulingClasses.Burst: there is no QoS class 'Burst'; there are: Guaranteed, Burstable, BestEffort"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rdt: {partitions: {a: {l3: 5%}}}", ["rdt has no effect: no class has rdt"]),
        (
            "classes: {a: {irq: away}, b: {for: {}, irq: away}, system/default: {rdt: {l3: 50%}}}",
            [f"classes.{name} has no effect: no option gives it to a container, and " for name in "ab"],
        ),
        ("annotations: {allow: {x: [irq-class]}}\nclasses: {a: {irq: away}}", []),
        (
            "annotations: {allow: {x: [cpu-class]}}\nclasses: {a: {irq: away}}",
            ["classes.a has no effect: no option gives it"],
        ),
        ("idleCPUClass: a\nclasses: {a: {cpu: {maxFreq: min}}}", []),
        (
            "idleCPUClass: a\nclasses: {a: {cpu: {weight: 5}}}",
            ["idleCPUClass has no effect: the class 'a' sets neither frequencies nor idle states"],
        ),
        (
            "classes: {a: {for: {qos: [Burstable]}, irq: sink},b: {for: {qos: [Burstable]}, rdt: {l3: 9%}, irq: sink}}",
            ["classes.b.for has no effect on the irq of the QoS class Burstable: the class 'a' comes first"],
        ),
    ],
)
def test_what_has_no_effect(text: str, expected: list[str]) -> None:
    """It is said, and no mistake."""
    notes = [f"{dotted(path)} {note}" for path, note in options(f"policy: static\n{text}\n").notes()]

    assert [note.startswith(each) for note, each in zip(notes, expected, strict=True)] == [True] * len(expected), notes
