"""Loads of nodes with cards: who gets which, and how many containers are next to theirs."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import UsageError
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.workload import QosClass
from criproxy.placement.events import ContainerCreating, PodGone
from criproxy.simulate.hosts import cards_of, of_host
from criproxy.simulate.load import Load, read_spec
from criproxy.simulate.load_run import Outcome, Run
from criproxy.simulate.loads import Deck, make
from tests.simulate.test_load import policy

SPEC = """
machine: 2s/{nodes}n/32c/2t
cards: {cards}
seed: {seed}
duration: 1h
every: 20s
fill: 60%
pods:
  - {{pod: train, qos: guaranteed, cpu: 4, mem: 1Gi, cards: 2, lifetime: 10m}}
  - {{pod: infer, qos: burstable, cpu_req: 2, mem_req: 100Mi, mem_lim: 200Mi, cards: 1, init: 1, lifetime: 5m}}
  - {{pod: shell, qos: besteffort, cards: 1, lifetime: 2m}}
  - {{pod: web, qos: burstable, cpu_req: 500m, lifetime: 5m, weight: 3}}
"""


def load_of(tmp_path: Path, nodes: int = 4, cards: str = "8", seed: int = 1, spec: str = SPEC) -> Load:
    """A load of a machine with so many NUMA nodes and such cards."""
    file = tmp_path / "gpus.yaml"
    file.write_text(spec.format(nodes=nodes, cards=cards, seed=seed))
    return make(read_spec(file), None, "gpus")


def played(load: Load, name: str) -> Outcome:
    """What a policy makes of it."""
    return Run(name, policy(name), load).play()


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        pytest.param("8", {0: 2, 1: 2, 2: 2, 3: 2}, id="evenly"),
        pytest.param("2", {0: 1, 2: 1}, id="fewer-than-nodes"),
        pytest.param("{1: 3, 3: 1}", {1: 3, 3: 1}, id="by-node"),
    ],
)
def test_nobody_has_a_card_that_another_has(tmp_path: Path, cards: str, expected: dict[int, int]) -> None:
    """Those who are there together have no more cards of a NUMA node than it has; init containers have none."""
    free = Counter(expected)
    has: dict[str, Counter[int]] = {}
    for each in load_of(tmp_path, cards=cards).events:
        match each.event:
            case ContainerCreating(container):
                got = Counter(number for hint in container.hints for number in hint)
                wanted = 0 if container.name.endswith("i") else {"train": 2, "web": 0}.get(container.name[:-2], 1)
                assert got.total() == wanted
                has.setdefault(container.pod, Counter()).update(got)
                free.subtract(got)
            case PodGone(key):
                free.update(has.pop(key))
        assert min(free.values()) >= 0
    assert len(has) < 20


@given(st.lists(st.integers(1, 3), max_size=6))
def test_cards_come_from_few_places(asks: list[int]) -> None:
    """Of one if it has enough, and of no more places than it takes."""
    deck = Deck([frozenset({number // 4}) for number in range(8)])
    for number, count in enumerate(asks):
        free = Counter(deck.free)
        if count > free.total():
            deck.take_back("0")
            break
        given_cards = deck.give(str(number), count)
        most: list[int] = sorted(free.values(), reverse=True)
        needed = next(places for places in range(1, 3) if sum(most[:places]) >= count)
        assert (len(given_cards), len(set(given_cards))) == (count, needed)


def test_containers_of_every_class_are_next_to_their_cards(tmp_path: Path) -> None:
    """Nearly all, by the policies that follow cards, on a node that is not full; by chance or by none, much fewer."""
    load = load_of(tmp_path)
    classes = {
        e.event.container.qos for e in load.events if isinstance(e.event, ContainerCreating) and e.event.container.hints
    }

    aware, static, none = (played(load, name) for name in ("topology-aware", "static", "none"))

    assert classes == set(QosClass)
    assert aware.with_cards == static.with_cards == none.with_cards > 50
    assert aware.at_cards_share >= 0.95
    assert static.at_cards_share < 0.5
    assert none.at_cards_share <= 0.05


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("cards: 8", "cards: 0", "3:8: cards: must be a whole number from 1 on"),
        ("cards: 8", "cards: many", "3:8: cards: must be a whole number"),
        ("cards: 8", "cards: {a: 1}", "3:9: cards.a: must be the number of a NUMA node"),
        ("cards: 8", "cards: 5000", "3:8: cards: must be at most 1024"),
        ("cards: 2", "cards: -1", "must be a whole number from 1 on"),
        ("cards: 8", "cards: {7: 1}", "the load gpus has cards on NUMA node 7, which its machine does not have"),
        ("cards: 8\n", "", "pods of the load gpus ask for cards, and there are none: write cards: 8 in it"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, mistake: str) -> None:
    """What cannot be used is told with its place."""
    spec = SPEC.format(nodes=4, cards="8", seed=1).replace(old, new, 1)
    file = tmp_path / "gpus.yaml"
    file.write_text(spec)

    with pytest.raises(UsageError) as caught:
        make(read_spec(file), None, "gpus")

    assert mistake in str(caught.value)


def test_pods_without_enough_cards_are_not_sent(tmp_path: Path) -> None:
    """As by the scheduler; they are counted."""
    load = load_of(tmp_path, cards="1")

    assert load.turned_away > 20
    assert not any(e.event.container.name == "trainc0" for e in load.events if isinstance(e.event, ContainerCreating))


def function(host_root: Path, address: str, class_id: str, vendor: str, numa_node: int) -> None:
    """A PCI function of a machine of four CPUs."""
    folder = host_root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in {"class": class_id, "vendor": vendor, "numa_node": numa_node, "local_cpulist": "0-3"}.items():
        (folder / name).write_text(f"{text}\n")


def test_accelerators_of_a_real_machine(shared_dir: Path, tmp_path: Path) -> None:
    """By their class; a VGA controller is one only if it is a GPU. Where nobody knows where it is, it is nowhere."""
    nodes: list[CpuSet] = cards_of(of_host(shared_dir / "topologies/snapshots/xeon-2s2n-smt-pci.tar.xz"))
    assert [format_cpuset(each) for each in nodes] == ["0"] * 8

    online = tmp_path / "sys/devices/system/cpu"
    online.mkdir(parents=True)
    (online / "online").write_text("0-3\n")
    function(tmp_path, "0000:01:00.0", "0x030000", "0x1a03", 0)
    function(tmp_path, "0000:02:00.0", "0x030000", "0x10de", -1)
    function(tmp_path, "0000:03:00.0", "0x120000", "0x1da3", -1)
    assert cards_of(of_host(tmp_path)) == [frozenset(), frozenset()]
