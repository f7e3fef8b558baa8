"""Configurations of peers with classes become policy files that pass `criproxy check` and do what theirs said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.config.convert import Converted, convert, to_yaml
from criproxy.model.controls import (
    BlockIo,
    CpuTuning,
    RdtAllocation,
    RdtClass,
    RdtPartition,
    Scheduling,
    Throttle,
)
from criproxy.model.workload import QosClass
from criproxy.placement.options.class_rules import IrqRule
from tests.placement.classes.policy import asked, rules

BALLOONS = """
apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata: {name: default}
spec:
  reservedResources: {cpu: "1"}
  idleCPUClass: quiet
  cpuClasses:
  - {name: quick, minFreq: 2500000, maxFreq: turbo, freqGovernor: performance, turboPriority: 3}
  - {name: quiet, maxFreq: 1200MHz, disabledCstates: [], energyPerformancePreference: 200, uncoreMaxFreq: 1400000}
  schedulingClasses:
  - {name: interactive, policy: rr, priority: 7, ioClass: rt, ioPriority: 0}
  - {name: leftovers, policy: batch, nice: 10, flags: [reset-on-fork, keep-policy]}
  - {name: periodic, policy: deadline, runtime: 2000, deadline: 5000, period: 10000}
  balloonTypes:
  - name: audio
    namespaces: [audio]
    cpuClass: quick
    schedulingClass: interactive
    irqMode: isolate
    irqClaim: [snd*]
  - {name: rest, namespaces: ["*"], schedulingClass: leftovers}
  control:
    rdt:
      enable: true
      usePodQoSAsDefaultClass: true
      options: {l2: {optional: true}, mb: {optional: true}}
      partitions:
        front:
          l3Allocation: {all: {unified: 75%}}
          classes:
            Guaranteed: {l3Allocation: {all: {unified: 100%}}}
            studio: {l3Allocation: {"0": {code: 50%, data: 80%}, all: {unified: 60%}}, mbAllocation: {all: [60%]}}
        back:
          l3Allocation: {all: {unified: 25%}}
          classes: {BestEffort: {l3Allocation: {all: {unified: 50%}}, mbAllocation: {all: [20%]}}}
"""
CRIRM = """
policy: {Active: topology-aware, ReservedResources: {CPU: 750m}}
cpu:
  classes: {slow: {minFreq: 800000, maxFreq: 1500000}}
rdt:
  options: {l3: {optional: true}}
  partitions:
    shared:
      l3Allocation: 80%
      mbAllocation: [100%]
      classes:
        BestEffort: {l3Allocation: 25%, mbAllocation: [30%, 800MBps]}
        bulk: {l3Allocation: 0x3, kubernetes: {denyPodAnnotation: true}}
blockio:
  Classes:
    BestEffort:
    - {Weight: 50}
    - {Devices: [/dev/nvme*n1], ThrottleWriteBps: 40M, ThrottleReadIOPS: 2k}
    - {Devices: [/dev/sda], Weight: 20}
"""
NOBODY = "has no effect: no option gives it to a container, and annotations.allow permits no annotation with it"
TWICE = """
apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata: {name: default}
spec:
  cpuClasses: [{name: quick, minFreq: base}]
  control:
    cpu: {classes: {quick: {minFreq: 2000000}}}
    blockio: {enable: true, classes: {slow: [{devices: [/dev/sd*], throttleReadBps: 50M}]}}
    rdt: {partitions: {a: {l3Allocation: {all: {unified: 100%}}, classes: {b: {l3Allocation: {all: {unified: 9%}}}}}}}
"""
GORESCTRL = """
policy: {Active: none}
cpu: {classes: {Guaranteed: {minFreq: 800000}}}
rdt:
  force: true
  partitions:
    all:
      mbAllocation: [100%, 4000000000MBps]
      classes:
        SYSTEM_DEFAULT: {mbAllocation: [50%, 4000000000MBps], l3Alloc: 5%}
        Guaranteed: {l3Allocation: 100%}
"""


def converted(text: str, file: str, labels: Mapping[str, str] | None = None) -> tuple[str, list[str]]:
    """The policy file that comes of a configuration, and what is said about it."""
    (found,) = convert(text, Path(file), labels or {})
    assert isinstance(found, Converted)
    return to_yaml(found.policy), list(found.notes)


def test_nri_plugins() -> None:
    """All definitions become classes; what balloon types name stays where it is."""
    text, notes = converted(BALLOONS, "a.yaml")
    policy = yaml.safe_load(text)
    parts = rules(text).desired_parts()

    assert {"cpuClasses", "schedulingClasses", "control"}.isdisjoint(policy)
    assert policy["balloonTypes"][0]["cpuClass"] == "quick"
    assert parts.tunings == {
        "quick": CpuTuning(min_frequency="2500000", max_frequency="turbo", governor="performance"),
        "quiet": CpuTuning(max_frequency="1200000", energy_preference="200", uncore_max_khz=1_400_000),
    }
    assert parts.roles == {"idle": "quiet"}
    assert parts.scheduling == {
        "interactive": Scheduling(policy="rr", priority=7, io_class="rt", io_priority=0),
        "leftovers": Scheduling(policy="batch", nice=10, flags=("reset-on-fork",)),
        "periodic": Scheduling(policy="deadline", runtime_us=2000, deadline_us=5000, period_us=10_000),
    }
    assert parts.irqs == {"balloon/audio": IrqRule(mode="away", claim=("snd*",))}
    assert parts.rdt is not None
    assert parts.rdt.optional == ("L2", "MB")
    assert parts.rdt.partitions[0] == RdtPartition(
        name="front", allocations=(RdtAllocation(resource="L3", share="75%"),)
    )
    assert {each.name: each.partition for each in parts.rdt.classes} == {
        "Guaranteed": "front",
        "studio": "front",
        "BestEffort": "back",
    }
    assert next(each for each in parts.rdt.classes if each.name == "studio").allocations == (
        RdtAllocation(resource="L3CODE", ids="0", share="50%"),
        RdtAllocation(resource="L3DATA", ids="0", share="80%"),
        RdtAllocation(resource="L3", share="60%"),
        RdtAllocation(resource="MB", share="60%"),
    )
    assert notes == [
        "spec.cpuClasses[0].turboPriority is left out: turboPriority and Intel SST are not supported",
        "spec.schedulingClasses[1].flags is left out: the flag keep-policy is not supported",
        "classes: pods name classes only where annotations.allow permits cpu-class, rdt-class and so on",
        *(f"classes.{name} is kept: {NOBODY}" for name in ("periodic", "studio")),
    ]


def test_containers_under_nri_plugins() -> None:
    """They have the classes of their balloon type and of their QoS class."""
    text, _ = converted(BALLOONS, "a.yaml")

    assert dict(asked(text, pool="audio[0]", qos=QosClass.GUARANTEED)[0].classes) == {
        "cpu": "quick",
        "irq": "balloon/audio",
        "rdt": "Guaranteed",
        "scheduling": "interactive",
    }
    assert dict(asked(text, pool="rest[1]", qos=QosClass.BEST_EFFORT)[0].classes) == {
        "rdt": "BestEffort",
        "scheduling": "leftovers",
    }


def test_crirm() -> None:
    """Its modules become classes, which pods have by their QoS class."""
    text, notes = converted(CRIRM, "default.cfg")
    parts = rules(text).desired_parts()

    assert parts.tunings == {"slow": CpuTuning(min_frequency="800000", max_frequency="1500000")}
    assert parts.rdt is not None
    assert parts.rdt.optional == ("L3",)
    assert parts.rdt.classes == (
        RdtClass(
            name="BestEffort",
            partition="shared",
            allocations=(
                RdtAllocation(resource="L3", share="25%"),
                RdtAllocation(resource="MB", share="30%"),
                RdtAllocation(resource="MB", share="800MBps"),
            ),
        ),
        RdtClass(name="bulk", partition="shared", allocations=(RdtAllocation(resource="L3", share="0x3"),)),
    )
    assert parts.block_io["BestEffort"] == BlockIo(
        throttles=(
            Throttle(devices=("/dev/nvme*n1",), write_bps=40_000_000, read_iops=2000),
            Throttle(devices=("/dev/sda",), weight=20),
        )
    )
    controls, _ = asked(text, qos=QosClass.BEST_EFFORT)
    assert dict(controls.classes) == {"blockIO": "BestEffort", "rdt": "BestEffort"}
    assert dict(controls.values) == {"io.bfq.weight": "default 50"}
    assert asked(text, qos=QosClass.GUARANTEED)[0].classes == ()
    assert notes == [
        "rdt.partitions.shared.classes.bulk.kubernetes is left out: say with annotations.allow who may name classes",
        "classes: pods name classes only where annotations.allow permits cpu-class, rdt-class and so on",
        *(f"classes.{name} is kept: {NOBODY}" for name in ("slow", "bulk")),
    ]


def test_classes_of_nri_plugins_in_two_places() -> None:
    """As there, ``cpuClasses`` counts; keys of lists of devices may be in small letters."""
    text, notes = converted(TWICE, "a.yaml")

    assert yaml.safe_load(text)["classes"] == {
        "quick": {"cpu": {"minFreq": "base"}},
        "slow": {"blockIO": {"devices": [{"paths": ["/dev/sd*"], "readBps": "50M"}]}},
    }
    assert notes[:3] == [
        "spec.control.cpu.classes.quick is left out: the class 'quick' has cpu already",
        "spec.control.rdt is left out: it is not enabled",
        "classes: pods name classes only where annotations.allow permits cpu-class, rdt-class and so on",
    ]


def test_goresctrl() -> None:
    """The root group has its newer name, an unlimited bandwidth is one, and nothing is lost in silence."""
    text, notes = converted(GORESCTRL, "default.yaml")

    assert yaml.safe_load(text)["classes"] == {
        "system/default": {"rdt": {"mb": ["50%", "4000000000MBps"], "partition": "all"}},
        "Guaranteed": {
            "for": {"qos": ["Guaranteed"]},
            "cpu": {"minFreq": 800_000},
            "rdt": {"l3": "100%", "partition": "all"},
        },
    }
    assert notes == [
        "rdt.force is left out: criproxy has no such option",
        "rdt.partitions.all.classes.SYSTEM_DEFAULT.l3Alloc is left out: criproxy has no such setting",
        "classes.Guaranteed: all Guaranteed pods have its cpu and rdt, since a class has one 'for'",
        "classes: pods name classes only where annotations.allow permits cpu-class, rdt-class and so on",
        "classes is kept: has no effect: the policy none places no containers",
    ]


@pytest.mark.parametrize(
    ("control", "lost"),
    [
        pytest.param(
            {"rdt": {"enable": False, "partitions": {"a": {"classes": {"b": {"l3Allocation": "10%"}}}}}},
            ["spec.control.rdt is left out: it is not enabled"],
            id="off",
        ),
        pytest.param(
            {"e2e-test": {"enable": True}, "cpu": {"classes": {}}},
            ["spec.control.e2e-test is left out: criproxy has no such option"],
            id="others",
        ),
        pytest.param({"rdt": None, "cpu": [], "blockio": "x"}, [], id="odd"),
        pytest.param("x", [], id="no-mapping"),
    ],
)
def test_control_without_classes(control: Any, lost: list[str]) -> None:  # noqa: ANN401 (YAML)
    """Nothing comes of it, and nothing is lost in silence."""
    head = {"apiVersion": "config.nri/v1alpha1", "kind": "TopologyAwarePolicy", "metadata": {"name": "default"}}
    text, notes = converted(yaml.safe_dump(head | {"spec": {"control": control}}), "a.yaml")

    assert yaml.safe_load(text) == {"policy": "topology-aware"}
    assert notes == lost
