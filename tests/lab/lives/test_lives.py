"""Random lives of a node with cards, in virtual time: the same in every run; each planted mistake is found."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.lives import script
from lab.lives.configurations import MIG, RESOURCES, Files, Offer
from lab.lives.life import Tally
from lab.lives.machine import NPU, NVIDIA
from lab.lives.node import KUBELET, PARTS, PLUGIN
from lab.lives.plants import PLANTS, Plant
from lab.lives.pods import Wish
from lab.lives.run import try_life, try_lives
from lab.lives.script import Event
from tests.conftest import ROOT

LIVES, SEED = 20, 7


def test_lives_in_virtual_time() -> None:
    """Whatever comes, goes, fails and restarts: no card is given twice, containers see theirs, and nothing is left."""
    result = try_lives(SEED, range(LIVES))

    assert result.findings == {}
    assert result.lives == LIVES
    assert result.tally.counts["created"] > LIVES
    assert set(result.tally.events) >= set("start stop restart add remove xid files spoil pod end".split())


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_a_planted_mistake_is_found(plant: Plant) -> None:
    """Within as many lives, with a sentence that says what is wrong, and the steps that led to it."""
    result = try_lives(SEED, range(LIVES), most=1, plant=plant)

    (finding,) = result.findings.values()
    assert re.search(plant.says, finding.splitlines()[0])
    assert "a machine with" in finding.splitlines()[1]


@pytest.mark.parametrize(
    ("away", "back", "plant"),
    [
        pytest.param((PLUGIN,), (PLUGIN,), "does not ask first", id="the-plugin-alone"),
        pytest.param((PLUGIN, KUBELET), (PLUGIN, KUBELET), "does not wait for the kubelet", id="the-kubelet-after-it"),
    ],
)
def test_a_card_that_is_shared_while_the_plugin_is_away(
    away: tuple[str, ...], back: tuple[str, ...], plant: str
) -> None:
    """A pod that comes as soon as all are back gets no replica of a card that another one still has whole."""
    whole, shared = (Files((Offer(NPU, replicas),)) for replicas in (0, 2))
    pods = [Wish(name, (("main", {RESOURCES[NPU]: 1}),)) for name in ("first", "second")]
    *before, last = back
    steps = (
        (Event("pod", "first", (pods[0], 0.0)),),
        tuple(Event("stop", part, (part, False)) for part in away),
        (Event("files", "files", (shared,)),),
        *((Event("start", part, (part,)),) for part in before),
        (Event("start", last, (last,)), Event("pod", "second", (pods[1], 0.05))),
    )
    life = script.Script(((NPU, 0),), False, whole, steps, PARTS)

    assert try_life(life, Tally()) == ""
    assert try_life(life, Tally(), plant=PLANTS[plant]).startswith("npu0 is given to several pods")


def test_mig_devices_that_are_shared() -> None:
    """Three pods have replicas of two MIG devices, also while their resource gets another name; then a fourth has."""
    files = Files((Offer(NVIDIA),), mig_replicas=2)
    renamed = replace(files, mig_rename=True)
    pods = [Wish(f"pod-{number}", (("main", {MIG: 1}),)) for number in range(3)]
    later = Wish("later", (("main", {renamed.mig_target: 1}),))
    steps = (
        *((Event("pod", pod.name, (pod, 0.0)),) for pod in pods),
        (Event("files", "files", (renamed,)),),
        *((Event("end", pod.name, (pod.name,)),) for pod in pods),
        (Event("pod", later.name, (later, 0.0)),),
    )
    tally = Tally()

    assert try_life(script.Script((), True, files, steps, PARTS), tally) == ""
    assert (tally.counts["admitted"], tally.counts["refused"]) == (4, 0)


def test_the_command_writes_what_it_did(tmp_path: Path) -> None:
    """A life in real time, with real sockets; seed, events and findings are in the file."""
    path = tmp_path / "lives.json"
    options = ("--seed", "1", "--life", "2", "--steps", "1", "--json", str(path))
    command = [sys.executable, "-m", "lab.lives", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stdout.startswith("1 lives in real time, seed 1")
    report = json.loads(path.read_text())
    assert (report["lives"], report["seed"]) == (1, 1)
    assert report["findings"] == {}
