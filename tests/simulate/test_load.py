"""Loads: made from a specification or read from a trace, played for a policy, and scored."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import UsageError
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.planned import Amounts, ContainerPlan, PodPlan
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement.events import ContainerCreating, ContainerGone, PodCreated, PodGone
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.placement.records.trace import Header, Traced, header_line, line
from criproxy.simulate.hosts import GIB, machine
from criproxy.simulate.load import Kind, Load, Spec, read_spec
from criproxy.simulate.load_run import SAMPLES, Outcome, Run
from criproxy.simulate.loads import make, read_load
from criproxy.simulate.scores import Scorer, Scores, mean_of

SPEC = """
machine: 1s/2n/4c/2t
seed: 3
duration: 10m
every: 5s
pods:
  - {pod: db, qos: guaranteed, cpu: 2, mem: 1Gi, lifetime: 2m}
  - {pod: web, qos: burstable, cpu_req: 250m, count: 2, lifetime: 1m, weight: 3}
"""
TWO = machine(nodes=2, cores=2, threads=1)


def policy(name: str) -> Policy:
    """A built-in policy with its defaults."""
    entry = BUILTIN[name]
    return entry.build(entry.options())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A specification."""
    path = tmp_path / "mix.yaml"
    path.write_text(SPEC)
    return path


def guaranteed(key: str, cpu_milli: int = 1000) -> Container:
    """A newcomer that asks for CPUs of its own."""
    return Container(
        key=key, pod=f"pod-{key}", name=key, qos=QosClass.GUARANTEED, cpu_milli=cpu_milli, cpu_limit_milli=cpu_milli
    )


def arrival(at_s: float, container: Container, refused: str = "") -> list[Traced]:
    """A pod and its container."""
    return [
        Traced(at_s, PodCreated(Pod(key=container.pod, qos=container.qos))),
        Traced(at_s, ContainerCreating(container), refused),
    ]


def played(name: str, events: list[Traced], duration_s: float = 100) -> Outcome:
    """What a policy makes of events on a machine of two NUMA nodes with two CPUs each."""
    return Run(name, policy(name), Load("test", TWO, tuple(events), duration_s)).play()


class TestMade:
    """Loads of a specification."""

    def test_same_seed_same_load(self, file: Path) -> None:
        """Nothing but the file and the machine decides what happens; another seed makes another load."""
        first, again = read_load(file), read_load(file)
        file.write_text(SPEC.replace("seed: 3", "seed: 4"))

        assert first == again
        assert first.events != read_load(file).events

    def test_kinds_come_by_weight_at_the_given_rate(self, file: Path) -> None:
        """Arrivals and kinds are near to their means, in the order of their time and within the duration."""
        load = read_load(file, machine(nodes=8, cores=32, threads=2))
        arrived = [each.event.pod for each in load.events if isinstance(each.event, PodCreated)]
        pods = Counter(pod.name.partition("-")[0] for pod in arrived)

        times = [each.at_s for each in load.events]
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] < 600
        assert 80 < pods.total() < 160
        assert 2 < pods["web"] / pods["db"] < 4

    @given(st.integers(0, 1000), st.integers(10, 100))
    def test_never_more_than_the_node_has(self, seed: int, fill_percent: int) -> None:
        """Whatever comes, the requests of those who are there stay within the part of the node that may be filled."""
        plan = PodPlan("p", "default", QosClass.GUARANTEED, (ContainerPlan("c", Amounts(1500, 1500, GIB, GIB)),))
        spec = Spec((Kind(plan, 1, 100.0),), TWO, seed, 300, 5, fill_percent)
        asked = 0

        for each in make(spec, None, "test").events:
            asked += isinstance(each.event, PodCreated) - isinstance(each.event, PodGone)
            assert asked * 1500 <= 4000 * fill_percent / 100

    def test_pods_that_do_not_fit_are_counted(self) -> None:
        """A pod larger than the node never comes."""
        plan = PodPlan("p", "default", QosClass.BURSTABLE, (ContainerPlan("c", Amounts(5000)),))

        load = make(Spec((Kind(plan, 1, 100.0),), TWO), None, "test")

        assert not load.events
        assert load.turned_away > 50

    @pytest.mark.parametrize(
        ("old", "new", "mistake"),
        [
            ("every: 5s", "evry: 5s", "5:1: evry: unknown key 'evry'; did you mean 'every'?"),
            ("every: 5s", "every: 5", "5:8: every: '5' must be a duration"),
            ("every: 5s", "every: 0s", "5:8: every: must be longer than nothing"),
            ("duration: 10m", "duration: 9000h", "5:8: every: makes more than 1,000,000 pods"),
            ("1s/2n/4c/2t", "3s/2n/4c/2t", "2:10: machine: the machine 3s/2n/4c/2t cannot be"),
            ("seed: 3", "fill: half", "3:7: fill: must be a share of the node such as 90%"),
            ("lifetime: 2m", "weight: 2", "'lifetime' is missing"),
            ("cpu: 2,", "cpu: two,", "'two'"),
        ],
    )
    def test_mistakes_have_their_place(self, file: Path, old: str, new: str, mistake: str) -> None:
        """What cannot be used is told with line, column and what would be right."""
        file.write_text(SPEC.replace(old, new))

        with pytest.raises(UsageError) as caught:
            read_spec(file)

        assert mistake in str(caught.value)

    def test_a_machine_is_needed(self, file: Path) -> None:
        """Neither the file nor the caller names one."""
        file.write_text(SPEC.replace("machine: 1s/2n/4c/2t", ""))

        with pytest.raises(UsageError, match="names no machine"):
            read_load(file)


class TestTraces:
    """Loads of a real node."""

    @pytest.mark.parametrize("name", ["node", "node.jsonl", "node.jsonl.1", "node.yaml"])
    def test_a_trace_is_played_on_its_machine(self, tmp_path: Path, name: str) -> None:
        """Its events come as they are, until its last one; its first line, and not its name, says that it is one."""
        events = arrival(1, guaranteed("a")) + arrival(5, guaranteed("b"))
        file = tmp_path / name
        file.write_text("\n".join([header_line(Header(TWO)), *map(line, events)]))

        load = read_load(file)

        assert (load.topology, load.events, load.duration_s) == (TWO, tuple(events), 5)

    def test_a_made_load_written_as_a_trace_ends_the_same(self, file: Path, tmp_path: Path) -> None:
        """A trace has all that matters to a policy."""
        made, trace = read_load(file), tmp_path / "made.jsonl"
        trace.write_text("\n".join([header_line(Header(made.topology)), *map(line, made.events)]))

        first, again = (Run("", policy("topology-aware"), load).play() for load in (made, read_load(trace)))

        assert (first.asked, first.refused, first.updates) == (again.asked, again.refused, again.updates)
        assert first.moves == again.moves

    def test_a_create_that_is_tried_again_counts_once(self) -> None:
        """Neither a container nor its refusal counts twice; one that gets a place at last is not refused."""
        full, late = guaranteed("full", 9000), guaranteed("late", 3000)
        events = [
            *arrival(1, guaranteed("first")),
            *arrival(2, full, "no room"),
            Traced(3, ContainerCreating(full)),
            *arrival(4, late, "no room"),
            Traced(5, ContainerGone("first")),
            Traced(6, ContainerCreating(late)),
        ]

        outcome = played("static", events)

        assert (outcome.asked, outcome.refused, len(outcome.sentences)) == (3, 1, 1)


class TestRuns:
    """What comes of a load."""

    def test_means_are_of_moments_equally_far_apart(self) -> None:
        """Nobody owns a CPU before the arrival, and one container does after it."""
        outcome = played("static", arrival(50.5, guaranteed("a")))

        after = sum(100 / SAMPLES * number > 50.5 for number in range(1, SAMPLES + 1))
        assert outcome.mean.owned_cpus == pytest.approx(after / SAMPLES)

    def test_everybody_who_must_leave_a_cpu_is_an_update(self, file: Path) -> None:
        """Owners push others aside under static, and nobody under none; every policy gets the same containers."""
        load = read_load(file)
        owning, idle = (Run(name, policy(name), load).play() for name in ("static", "none"))

        assert owning.updates >= owning.moves > 0
        assert (idle.updates, idle.moves) == (0, 0)
        assert owning.asked == idle.asked > 50

    def test_a_policy_that_knows_the_machine_keeps_memory_nearer(self, file: Path) -> None:
        """The scores tell the policies apart in the way that they should."""
        load = read_load(file)
        near, anywhere = (Run(name, policy(name), load).play().mean for name in ("topology-aware", "none"))

        assert near.distance < anywhere.distance == 15
        assert near.cpu_on_one_node > anywhere.cpu_on_one_node == 0.5


class TestScores:
    """The numbers of one moment."""

    def node(self, *places: tuple[set[int], set[int]]) -> Node:
        """A node with a container of one CPU at each place."""
        containers = {f"c{i}": guaranteed(f"c{i}") for i in range(len(places))}
        grants = {f"c{i}": Grant(frozenset(cpus), frozenset(mems)) for i, (cpus, mems) in enumerate(places)}
        return Node(TWO, containers=containers, grants=grants)

    @pytest.mark.parametrize(
        ("cpus", "mems", "expected"),
        [
            ({0}, {0}, (1, 1, 10)),
            ({0}, {1}, (1, 1, 20)),
            ({0, 2}, {0}, (0.5, 1, 15)),
            ({0, 1, 2}, {0, 1}, (2 / 3, 0.5, 15)),
        ],
    )
    def test_locality(self, cpus: set[int], mems: set[int], expected: tuple[float, float, float]) -> None:
        """Shares on one node, and the distance of all CPUs to all memory."""
        scores = Scorer(TWO).score(self.node((cpus, mems)))

        assert (scores.cpu_on_one_node, scores.memory_on_one_node, scores.distance) == pytest.approx(expected)

    def test_fragmentation(self) -> None:
        """Two CPUs left on one NUMA node are none; one on each is a half, since two could be together."""
        together, apart = self.node(({0}, {0}), ({1}, {0})), self.node(({0}, {0}), ({2}, {1}))

        assert Scorer(TWO).score(together).fragmentation == 0
        assert Scorer(TWO).score(apart).fragmentation == pytest.approx(0.5)

    def test_crowding(self) -> None:
        """Of three CPUs asked for on two, a third is too much; none where each has one of its own."""
        crowd = self.node(*[({0, 1}, {0})] * 3)

        assert Scorer(TWO).score(crowd).crowded == pytest.approx(1 / 3)
        assert Scorer(TWO).score(self.node(({0}, {0}), ({1}, {0}))).crowded == 0

    def test_who_has_no_grant_may_be_everywhere(self) -> None:
        """So a container that is left alone scores as one that is spread over the machine; an exited one not at all."""
        left_alone = Node(TWO, containers={"a": guaranteed("a")})
        exited = Container(key="b", pod="p", name="b", state=ContainerState.EXITED)

        assert Scorer(TWO).score(left_alone).distance == 15
        assert Scorer(TWO).score(Node(TWO, containers={"b": exited})) == Scores()

    def test_empty_moments_do_not_count(self) -> None:
        """Of where containers are; they do for how many there are."""
        mean = mean_of([Scores(), Scores(containers=2, distance=20, owned_cpus=4)])

        assert (mean.distance, mean.containers, mean.owned_cpus) == (20, 1, 2)
