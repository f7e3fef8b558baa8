"""What must always be true is, for every policy; and policies that break one rule each are caught."""

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from criproxy.config.settings import names
from criproxy.model.workload import Container, QosClass
from criproxy.placement.events import ContainerCreating, ContainerGone, Event
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from lab.properties.lives import File
from lab.properties.plants import PLANTS, Twist, Twisted
from lab.properties.run import try_policies
from tests.conftest import ROOT
from tests.placement.lives import live

FEW, MANY = 30, 500


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)])])
def test_hold_for_every_registered_policy(tmp_path: Path, examples: int) -> None:
    """On random machines, in random lives, with sizes, policies and machines that change; the same cases every time.

    In a process of its own, which has the example of a policy package among its modules.
    """
    path = tmp_path / "properties.json"
    done = tried(path, "--examples", str(examples), "--seed", "1")

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert (report["tried"], report["findings"]) == (examples, [])
    assert [found["policy"] for found in report["policies"]] == [*names(), "quiet"]
    for found in report["policies"]:
        assert found["machines"] >= examples
        if examples < MANY:
            continue
        assert set(found["machines_by_numa_nodes"]) == {str(number) for number in range(1, 9)}
        assert len(found["machines_with"]) == 17
        # A released node has containers where the policy would not put them: tests/placement has lives for that.
        assert set(found["events"]) == {kind.__name__ for kind in Event.__args__} - {"Released"}
        assert found["refusals"]
        assert found["lives_with_owners"]


def tried(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """What the command did, which is to write *path*."""
    command = [sys.executable, "-m", "lab.properties", *options, "--json", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_hold_for_the_template() -> None:
    """What newcomers copy is right."""
    options = TemplateOptions.model_validate
    (result,) = try_policies(["none"], 100, seed=2, build=lambda name, file: TemplatePolicy(options(reserving(file))))

    assert result.finding == ""


def reserving(file: File) -> dict[str, object]:
    """Those options of a file that reserve CPUs."""
    return {name: file[name] for name in ("reservedCpus", "reservedResources") if name in file}


def static(file: File) -> StaticOptions:
    """A file that reserves the same CPUs and says nothing else."""
    return StaticOptions.model_validate(reserving(file))


@pytest.mark.parametrize(("twist", "sentence"), PLANTS.values(), ids=PLANTS.keys())
def test_a_planted_policy_is_caught(twist: Twist | None, sentence: str) -> None:
    """Each rule, broken by a policy, is found, with a sentence that says which, and a case that shows it."""
    plant = partial(Twisted, twist=twist)
    (result,) = try_policies(["static"], 300, seed=3, build=lambda name, file: plant(static(file)), shrink=False)

    assert re.search(sentence, result.finding.splitlines()[0])
    assert "Case(topology=" in result.finding


def test_policies_that_raise_are_caught() -> None:
    """A crash of a policy is a finding; others are tried all the same."""

    class Raises(StaticPolicy):
        def release(self, node: object, left: object) -> object:  # type: ignore[override]
            raise ZeroDivisionError(left)

    def build(name: str, file: File) -> StaticPolicy:
        return (Raises if name == "none" else StaticPolicy)(static(file))

    results = try_policies(["none", "static"], 100, seed=4, build=build, shrink=False)

    assert results[0].finding.startswith("ZeroDivisionError(")


FINGERPRINT = "from tests.lab.properties.test_properties import fingerprint as told; print(told())"


def fingerprint() -> str:
    """All states of fixed lives under each policy that has names of its own to sort, as one number."""
    events: list[Event] = []
    for number in range(24):
        qos = list(QosClass)[number % 3]
        container = Container(key=f"r{number}", pod=f"s{number % 5}", name=f"c{number}", qos=qos)
        events.append(ContainerCreating(container.resized(container.sizes)))
        if number % 4 == 3:
            events.append(ContainerGone(f"r{number - 2}"))
    told = hashlib.sha256()
    for policy in (StaticPolicy(StaticOptions()), TopologyAwarePolicy(TopologyAwareOptions())):
        for _, _, node in live(machine(nodes=4, cores=4), policy, events):
            told.update(repr([(key, sorted(g.cpus), sorted(g.mems)) for key, g in node.grants.items()]).encode())
    return told.hexdigest()


def test_the_same_in_every_process() -> None:
    """Python's hashes differ from process to process; decisions do not."""
    for seed in ("0", "4711"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", FINGERPRINT]
        assert subprocess.check_output(command, cwd=ROOT, env=environ, text=True) == fingerprint() + "\n"
