"""The part of the demo about NUMA nodes: a policy places pods on a simulated machine that has several."""

from pathlib import Path

from rich import box
from rich.table import Table

from criproxy.model.cpuset import format_cpuset
from criproxy.simulate.scenario.runner import Result, run
from criproxy.simulate.scenario.seen import Seen
from criproxy.simulate.scenario.steps import Create
from criproxy.simulate.scenario.vectors import load
from lab.demo.output import DemoOutput

FILE = "nodes.yaml"
_RULES = "nri"
_SCENARIO = """\
topologies:
  four:
    threads: consecutive
    nodes:
      0: {cpus: 0-7, pkg: 0, mem: 16G}
      1: {cpus: 8-15, pkg: 0, mem: 16G}
      2: {cpus: 16-23, pkg: 1, mem: 16G}
      3: {cpus: 24-31, pkg: 1, mem: 16G}
vectors:
  - id: nodes
    title: pods on two sockets of two NUMA nodes
    topology: four
    policy: topology-aware
    config: {reserved: "cpuset:0"}
    steps:
      - create: {pod: database, qos: guaranteed, cpu: 4, mem: 8Gi}
      - create: {pod: training, qos: guaranteed, cpu: 12, mem: 20Gi}
      - create: {pod: web, qos: burstable, cpu_req: 500m}
"""


def nodes(directory: Path, output: DemoOutput) -> None:
    """Place pods on a machine with four NUMA nodes, and show and check where they are.

    Args:
        directory: for the scenario.
        output: the output of the demo.
    """
    output.title(
        "The same on a machine with four NUMA nodes, which is simulated: policy topology-aware keeps pods together."
    )
    file = directory / FILE
    file.write_text(_SCENARIO)
    (vector,) = load(file)
    result = run(vector, _RULES)
    output.console.print(_table(result))
    assert result.topology is not None
    seen = Seen(result.topology, result.placement)
    for name, cpus, kind, what in (("database", 4, "nodes", "NUMA node"), ("training", 12, "packages", "socket")):
        container = f"{name}c0"
        places = seen.units(kind, container)
        right = len(places) == 1 and len(seen.unshared(container)) == cpus
        right = right and seen.units("nodes", container) == seen.units("mems", container)
        where = " and ".join(sorted(map(str, places)))
        output.check(f"{name} has its {cpus} CPUs and its memory on {what} {where}", right)


def _table(result: Result) -> Table:
    table = Table("pod", "class", "asks", "CPUs", "memory", "why", box=box.SIMPLE_HEAD, show_edge=False)
    reasons = {told.line: told.reasons[0] for told in result.told}
    for each in result.vector.steps:
        assert isinstance(each.action, Create)
        (container,) = (pod := each.action.pod).containers
        placed = result.placement[container.name]
        why = reasons[each.line].removeprefix(f"{pod.namespace}/{pod.name}/{container.name} ")
        asks, mems = f"{container.amounts.cpu_request_milli}m", f"node {format_cpuset(placed.mems)}"
        table.add_row(pod.name, pod.qos.value, asks, format_cpuset(placed.cpus), mems, why)
    return table
