"""A policy file that was in force before, and is again: after a try, or at a start with a bad one."""

from pathlib import Path

from criproxy.node.configuration.load import candidate, rebuilt
from criproxy.node.settings import Settings
from criproxy.placement.options.class_rules import classes_of
from criproxy.simulate.hosts import machine

TEXT = """policy: static
reservedCpus: "0"
classes: {one: {for: {namespaces: ["*"]}, cpu: {burst: 20%}}}
"""


def test_its_classes_are_for_this_machine(tmp_path: Path) -> None:
    """With cgroup v1, the controls service applies the burst, and the runtime has no file for it."""
    for name in ("cpuset/cpuset.cpus", "cpu/kubepods/cpu.cfs_burst_us"):
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True)
        path.write_text("0\n")
    topology, base = machine(nodes=1, cores=4, threads=1), Settings(host_root=tmp_path)
    first = candidate(TEXT, "p", topology, base)
    again = rebuilt(first.good, topology, base)

    bursts = [classes.desired_parts().bursts for each in (first, again) if (classes := classes_of(each.policy))]
    assert bursts == [{"one": 2000}, {"one": 2000}]
