"""Policy files with classes, and containers that have them."""

from pathlib import Path
from typing import Any

from criproxy.config.document import parse
from criproxy.config.settings import Contents, read_settings
from criproxy.model.controls import Controls
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.resources import CfsQuota, Interval
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.class_rules import ClassRules
from criproxy.placement.options.policy_options import Options
from criproxy.placement.options.usable import HostReader
from tests.placement.policies.shapes import n4c16

ALLOW = 'annotations: {allow: {"*": ["*"]}}\n'
MIB = 1 << 20


def contents(text: str, machine: Controllable | None = None, topology: Topology | None = None) -> Contents:
    """What comes of a policy file with this text, on a machine with these abilities."""
    host = HostReader(lambda _: None, controllable=lambda: machine) if machine else None
    return read_settings(parse(text), Path("p"), topology or (n4c16() if machine else None), host)


def said(text: str, machine: Controllable | None = None, topology: Topology | None = None) -> list[str]:
    """Everything that is wrong with a policy file, or does not fit the machine."""
    found = contents(text, machine, topology)
    return [mistake.sentence for mistake in (*found.wrong, *found.unfit)]


def options(text: str, machine: Controllable | None = None) -> Options:
    """The options of a policy file without mistakes."""
    found = contents(text, machine)
    assert found.settings is not None, [mistake.sentence for mistake in found.wrong]
    return found.settings.options


def rules(text: str, machine: Controllable | None = None) -> ClassRules:
    """The classes of a policy file without mistakes."""
    classes: ClassRules | None = getattr(options(text, machine), "classes", None)
    assert classes is not None
    return classes


def container(**changes: Any) -> Container:  # noqa: ANN401 (fields of a container)
    """One with a limit of a CPU and 100 MiB, of which 40 MiB are requested, that is being created."""
    values: dict[str, Any] = {
        "key": "c",
        "pod": "p",
        "name": "main",
        "namespace": "shop",
        "pod_name": "web",
        "qos": QosClass.BURSTABLE,
        "cpu_milli": 500,
        "cpu_quota": CfsQuota(100_000),
        "memory_limit_bytes": 100 * MIB,
        "memory_request_bytes": Interval(40 * MIB, 41 * MIB),
        "state": ContainerState.CREATING,
    }
    return Container(**values | changes)


def asked(
    text: str,
    annotations: dict[str, str] | None = None,
    *,
    pool: str = "",
    machine: Controllable | None = None,
    topology: Topology | None = None,
    **changes: Any,  # noqa: ANN401 (fields of a container)
) -> tuple[Controls, tuple[str, ...]]:
    """The controls of a container with these *annotations* of its pod, and the sentences."""
    by = options(text, machine)
    one = container(**changes)
    pod = Pod(key="p", name="web", namespace=one.namespace, annotations=annotations or {})
    node = Node(topology or n4c16(), pods={"p": pod}, containers={"c": one})
    classes: ClassRules = getattr(by, "classes")  # noqa: B009 (only files with classes have it)
    return classes.controls_of(Wishes(node, one, by), pool)
