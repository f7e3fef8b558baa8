"""A policy file that was in force before, and is again: after a try, or at a start with a bad one."""

from pathlib import Path

import pytest

from criproxy.node.configuration import load
from criproxy.node.configuration.load import (
    FALLBACK,
    BadFile,
    Configuration,
    candidate,
    configuration_instead,
    log_mistakes,
    rebuilt,
)
from criproxy.node.settings import Settings
from criproxy.placement.options.class_rules import classes_of
from criproxy.simulate.hosts import machine
from criproxy.store.configurations import GoodFile
from tests.node.world import RecordingLog

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


def test_a_reason_without_words_costs_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of another package may raise an error that says nothing: the fallback is in force all the same."""

    def refuse(*_: object) -> Configuration:
        raise BadFile("")

    monkeypatch.setattr(load, "_made", refuse)
    good = GoodFile(text=TEXT, source="/p")
    instead = configuration_instead(BadFile("bad"), good, machine(nodes=1, cores=4, threads=1), Settings())

    assert instead.settings.policy_name == FALLBACK
    assert instead.instead.startswith("the last good one cannot be used here ():")


def test_many_mistakes_are_counted() -> None:
    """Only the first ones are logged with their text."""
    log = RecordingLog()
    log_mistakes(log, "\n".join(f"mistake {number}" for number in range(13)), "the fallback is in effect")

    assert [keys.get("mistake", keys.get("more")) for _, keys in log.lines] == [*(f"mistake {n}" for n in range(10)), 3]
