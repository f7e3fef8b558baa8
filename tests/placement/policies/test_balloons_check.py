"""What balloon types ask that cannot be is found before a policy file counts, with its place."""

from collections.abc import Iterable
from typing import Any

import pytest

from criproxy.placement.options.policy_options import Misfit
from criproxy.placement.policies.balloons import BalloonsOptions
from tests.placement.policies.shapes import n4c16

CPU_DEVICE = "/sys/devices/system/cpu/cpu6/cache/index0"


def mistakes(*types: dict[str, Any], **options: Any) -> list[str]:  # noqa: ANN401
    """What `criproxy check` says of balloons of these types on a machine of 16 CPUs."""
    checked = BalloonsOptions.model_validate({"balloonTypes": types, **options})
    return said(list(checked.contradictions()) or checked.misfits(n4c16()))


def said(misfits: Iterable[Misfit]) -> list[str]:
    """Each of *misfits* in a sentence with its place."""
    return [f"{'.'.join(map(str, misfit.path))}: {misfit.text}" for misfit in misfits]


@pytest.mark.parametrize(
    ("types", "text"),
    [
        pytest.param(
            [{"name": "a", "minCPUs": 3, "maxCPUs": 2}],
            "balloonTypes.0.minCPUs: is 3, which is more than maxCPUs (2)",
            id="sizes",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "b", "minBalloons": 2, "maxBalloons": 1}],
            "balloonTypes.1.minBalloons: is 2, which is more than maxBalloons (1)",
            id="numbers",
        ),
        pytest.param(
            [{"name": "a"}, {"name": "a"}],
            "balloonTypes.1.name: is also the name of balloonTypes[0]: give each type a name of its own",
            id="same-name",
        ),
        pytest.param(
            [{"name": "a", "components": ["b", "c"]}, {"name": "b"}],
            "balloonTypes.0.components.1: there is no balloon type 'c'; types are: a, b",
            id="unknown-component",
        ),
        pytest.param(
            [{"name": "a", "components": [{"balloonType": "a"}]}],
            "balloonTypes.0.components: a contains itself",
            id="cycle",
        ),
        pytest.param(
            [{"name": "a", "componentCreation": "all"}],
            "balloonTypes.0.componentCreation: has no effect without components",
            id="no-components",
        ),
        pytest.param(
            [{"name": "b"}, {"name": "a", "components": ["b"], "preferIsolCpus": True}],
            "balloonTypes.1.preferIsolCpus: has no effect in a type with components: set it in the types of these",
            id="choice-of-a-composite",
        ),
        pytest.param(
            [{"name": "a", "loads": ["avx"]}],
            "balloonTypes.0.loads.0: there is no load class 'avx'; load classes are: none",
            id="unknown-load",
        ),
        pytest.param(
            [{"name": "a", "namespaces": ["*"]}, {"name": "b", "namespaces": ["team"]}],
            "balloonTypes.1.namespaces: has no effect: a comes first and takes all of team; put b before it",
            id="shadowed",
        ),
        pytest.param(
            [{"name": "a", "namespaces": ["team-*"]}, {"name": "b", "namespaces": ["team-x", "team-?a*"]}],
            "balloonTypes.1.namespaces: has no effect: a comes first and takes all of team-x, team-?a*",
            id="shadowed-by-a-pattern",
        ),
        pytest.param(
            [{"name": "a", "namespaces": ["kube-system"]}],
            "balloonTypes.0.namespaces: has no effect: reserved comes first and takes all of kube-system",
            id="shadowed-by-reserved",
        ),
        pytest.param(
            [
                {"name": "a", "matchExpressions": [{"operator": "AlwaysTrue"}]},
                {"name": "b", "matchExpressions": [{"key": "name", "operator": "Exists"}]},
            ],
            "balloonTypes.1.matchExpressions: has no effect: a comes first and takes all of the containers",
            id="shadowed-by-everything",
        ),
        pytest.param(
            [{"name": "a", "matchExpressions": [{"key": ":name:nam", "operator": "Exists"}]}],
            "balloonTypes.0.matchExpressions.0: no container has the key 'nam'; keys are: name, namespace, qosclass",
            id="unknown-key",
        ),
        pytest.param(
            [{"name": "a", "groupBy": "${pod/labels/app}-$pod/label"}],
            "balloonTypes.0.groupBy: no container has the key 'pod/label'; keys are: name",
            id="unknown-group",
        ),
        pytest.param(
            [{"name": "reserved", "minCPUs": 3}, {"name": "a", "minCPUs": 14}],
            "balloonTypes.1.minCPUs: a balloon of type a needs 14 CPUs, but 13 are left of 16 (0-15)",
            id="too-large-beside-others",
        ),
        pytest.param(
            [{"name": "a", "minCPUs": 6, "minBalloons": 3}],
            "balloonTypes.0.minBalloons: 3 balloons of type a need 6 CPUs each, but 4 are left of 16 (0-15)",
            id="too-many-cpus",
        ),
        pytest.param(
            [{"name": "a", "minCPUs": 17}],
            "balloonTypes.0.minCPUs: a balloon of type a needs 17 CPUs, but there are 16 (0-15)",
            id="too-large",
        ),
        pytest.param(
            [{"name": "a", "preferCloseToDevices": [CPU_DEVICE, "/sys/devices/system/node/node7"]}],
            "balloonTypes.0.preferCloseToDevices.1: /sys/devices/system/node/node7 is not in this machine",
            id="no-such-node",
        ),
        pytest.param(
            [{"name": "a", "preferCloseToDevices": ["/dev/nvidia0"]}],
            "balloonTypes.0.preferCloseToDevices.0: '/dev/nvidia0' is neither a path below /sys",
            id="no-place-in-sysfs",
        ),
        pytest.param(
            [{"name": "a", "preferCloseToDevices": ["/sys/class/net/eth0"]}],
            "balloonTypes.0.preferCloseToDevices.0: /sys/class/net/eth0 is not in this machine",
            id="no-such-device",
        ),
        pytest.param(
            [{"name": "reserved", "maxBalloons": 2}],
            "balloonTypes.0.maxBalloons: must be 1: there is exactly one reserved balloon",
            id="two-reserved",
        ),
    ],
)
def test_what_cannot_be_is_found(types: list[dict[str, Any]], text: str) -> None:
    """Exactly one sentence, with the option that is to blame."""
    (mistake,) = mistakes(*types)

    assert mistake.startswith(text)


def test_types_that_nobody_may_name() -> None:
    """A type without namespaces is for annotations: they have to be allowed somewhere."""
    types: list[dict[str, Any]] = [
        {"name": "fast"},
        {"name": "part"},
        {"name": "whole", "namespaces": ["*"], "components": ["part"]},
    ]
    nobody = {"allow": {"*": ["memory-type"]}}
    somebody = {"allow": {"team": ["balloon.*"]}}

    assert mistakes(*types, annotations=somebody) == []
    (mistake,) = mistakes(*types, annotations=nobody)
    assert mistake.startswith("balloonTypes.0.name: no container can get this type")


@pytest.mark.parametrize(
    "types",
    [
        pytest.param([{"name": "a", "namespaces": ["team-?"]}, {"name": "b", "namespaces": ["team-*"]}], id="wider"),
        pytest.param([{"name": "a", "namespaces": ["x", "y"]}, {"name": "b", "namespaces": ["y", "z"]}], id="partly"),
        pytest.param([{"name": "a", "namespaces": ["kube-system"]}, {"name": "reserved"}], id="before-reserved"),
        pytest.param(
            [{"name": "a", "namespaces": ["x"], "components": ["c"]}, {"name": "c", "namespaces": ["x"]}], id="part"
        ),
        pytest.param(
            [
                {"name": "a", "namespaces": ["x"]},
                {"name": "b", "namespaces": ["x"], "matchExpressions": [{"key": "tags/t", "operator": "Exists"}]},
            ],
            id="by-expression",
        ),
    ],
)
def test_types_that_something_reaches(types: list[dict[str, Any]]) -> None:
    """No type before them takes all that they ask for."""
    assert mistakes(*types) == []


def test_a_key_of_what_is_left_alone() -> None:
    """What is to be preserved is told by the same keys."""
    (mistake,) = mistakes(preserve={"matchExpressions": [{"key": "pod", "operator": "Exists"}]})

    assert mistake.startswith("preserve.matchExpressions.0: no container has the key 'pod'")


def test_everything_at_once_is_fine() -> None:
    """A configuration with what the peers' tests use has no mistake."""
    assert mistakes(
        {"name": "two", "minCPUs": 2, "maxCPUs": 2, "minBalloons": 2, "allocatorPriority": 0, "cpuClass": "turbo"},
        {"name": "quiet", "preferCloseToDevices": [CPU_DEVICE, "podresourceapi:*"], "shareIdleCPUsInSame": "numa"},
        {"name": "none", "maxCPUs": -1},
        {"name": "mixed", "components": ["two", {"balloonType": "quiet"}], "componentCreation": "all"},
        {"name": "default", "namespaces": ["*"], "memoryTypes": ["dram", "hbm"]},
        reservedResources={"cpu": "750m"},
    ) == []  # fmt: skip


def test_what_has_no_effect_is_noted() -> None:
    """Options that criproxy cannot act on are accepted, and `criproxy check` says that nothing comes of them."""
    options = BalloonsOptions.model_validate(
        {"turboDomain": "package", "balloonTypes": [{"name": "a", "showContainersInNrt": True}]}
    )

    none = "has no effect: criproxy does not"
    assert said(options.notes()) == [
        f"turboDomain: {none} divide turbo frequencies; maxFreq of CPU classes limits them",
        f"balloonTypes.0.showContainersInNrt: {none} export NodeResourceTopology objects",
    ]
