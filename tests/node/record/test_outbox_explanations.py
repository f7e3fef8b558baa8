"""Decisions are looked at again when there is time for it: what they were chosen from, and who is in the way."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from criproxy.errors import BadAnnotation, NotEnough, Refused
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.text.plain import from_plain
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.node.record import outbox as considering
from criproxy.node.record.outbox import MAX_WAITING, Explanations
from criproxy.placement.alloc.rank import Candidates, Measure, Row
from criproxy.placement.answers.choice import MAX_FACTS, Choice, Decided, weighed
from criproxy.placement.answers.leavers import Leavers
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.decision import Decision, Step
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreating, ContainerResized, ContainerStarted, Event
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.placement.records.history import Entry
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from criproxy.simulate.hosts import machine
from tests.node.world import RecordingLog, World, sharer, situation

TOPOLOGY_AWARE = TopologyAwarePolicy(TopologyAwareOptions.model_validate({"reservedCpus": "0"}))


def owner(name: str, milli: int = 1000) -> ContainerCreating:
    """The create of a container that owns CPUs."""
    return ContainerCreating(
        Container(key=f"r-{name}", pod=f"p-{name}", name=name, qos=QosClass.GUARANTEED, cpu_milli=milli)
    )


@dataclass
class Heard:
    """A node to which containers come, and what is found out about its decisions."""

    policy: Policy = TOPOLOGY_AWARE
    node: Node = field(default_factory=lambda: Node(machine(nodes=2, cores=4, threads=1)))
    told: list[Entry] = field(default_factory=list)
    log: RecordingLog = field(default_factory=RecordingLog)

    def __post_init__(self) -> None:
        self.considering = Explanations(self.told.append, self.log, Tasks(self.log, Failures()))

    def happens(self, event: Event) -> None:
        """Apply an event as the manager does."""
        before = self.node
        try:
            decision = step(before, event, self.policy)
        except Refused as error:
            self.hear(before, event, error)
            return
        self.node = decision.node
        self.hear(before, event, decision)

    def hear(self, before: Node, event: Event, result: Decision | Exception) -> None:
        """Tell of a step."""
        self.considering.add(Step(event, before, result, 0.0, 0.0, self.policy))

    def choices(self) -> list[Choice]:
        """What was told, as it is read back."""
        return [from_plain(Choice, entry.facts) for entry in self.told]

    async def after(self, *events: Event) -> list[Decided]:
        """What decisions are told of after these events."""
        for event in events:
            self.happens(event)
        await self.considering.settled()
        return [choice.decided for choice in self.choices()]


async def test_places_resizes_and_refusals_are_considered() -> None:
    """Each with its candidates; a refusal also with those who would have to leave; nothing else that happens."""
    heard = Heard()
    events: list[Event] = [owner("a", 2000), ContainerStarted("r-a"), ContainerResized("r-a", Sizes(cpu_milli=3000))]

    decided = await heard.after(*events, owner("b", 5000), ContainerResized("r-a", Sizes(cpu_milli=9000)))

    # A container that is resized again before anybody has looked is told of once: as it is in the end.
    assert decided == [Decided.PLACED, Decided.REFUSED, Decided.NOT_RESIZED]
    placed, refused, stuck = heard.choices()
    assert placed.candidates
    assert (placed.candidates.chosen, placed.leavers) == ("NUMA node 1", None)
    assert refused.candidates
    assert refused.candidates.chosen == ""
    assert refused.leavers == Leavers(("a",), shortest=True, steps=refused.leavers.steps if refused.leavers else 0)
    assert stuck.leavers == Leavers((), shortest=True, steps=1)
    assert [each.about and each.about.name for each in heard.told] == ["a", "b", "a"]


async def test_it_begins_by_itself_when_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause that each further decision makes longer, up to a limit."""
    monkeypatch.setattr(considering, "QUIET_S", 0.01)
    told = asyncio.Event()
    heard = Heard()
    heard.considering = Explanations(lambda _: told.set(), heard.log, Tasks(heard.log, Failures()))
    heard.happens(owner("a"))
    async with asyncio.timeout(60):
        await told.wait()


async def test_the_last_of_several_tries_counts() -> None:
    """A create that is refused, and is tried again after room was made, is told of as placed."""
    heard = Heard()
    heard.happens(owner("a", 7000))
    heard.happens(owner("b", 1000))
    heard.node = Node(heard.node.topology)

    assert await heard.after(owner("b", 1000)) == [Decided.PLACED, Decided.PLACED]


async def test_waiting_decisions_are_bounded() -> None:
    """Of too many the oldest are forgotten, and counted."""
    heard = Heard()
    for number in range(MAX_WAITING + 3):
        heard.happens(owner(f"c{number}", 9000))
    await heard.considering.settled(closing=True)

    assert len(heard.told) == MAX_WAITING
    assert heard.told[0].about
    assert heard.told[0].about.name == "c3"
    assert heard.considering.lost == 3


async def test_status_counts_what_was_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong: `--check` says nothing."""
    monkeypatch.setattr(considering, "MAX_REMEMBERED", 1)
    monkeypatch.setattr(considering, "QUIET_S", 3600.0)
    monkeypatch.setattr(considering, "LATEST_S", 3600.0)
    async with World(tmp_path, policy=TOPOLOGY_AWARE) as world:
        for number in range(3):
            await world.run(sharer(f"web-{number}"))
        await world.poll(lambda: world.controller.context.state.unexplained() == 2)

        (notice,) = [each for each in situation(world.controller).notices if each.kind == "history"]
        assert (notice.text[:1], notice.wrong) == ("2", False)


async def test_on_a_full_node_fewer_decisions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds the node as it was then: what they hold together is bounded, too, and the last one always waits."""
    heard = Heard()
    monkeypatch.setattr(considering, "MAX_REMEMBERED", 18)
    for number in range(6):
        heard.happens(owner(f"c{number}", 100))
    await heard.considering.settled()
    assert [told.about and told.about.name for told in heard.told] == ["c3", "c4", "c5"]

    monkeypatch.setattr(considering, "MAX_REMEMBERED", 1)
    assert len(await heard.after(owner("c6", 100), owner("c7", 100))) == 4
    assert heard.told[-1].about
    assert heard.told[-1].about.name == "c7"


async def test_at_the_end_nobody_searches() -> None:
    """What was chosen from is told still, not who would have to leave."""
    heard = Heard()
    heard.happens(owner("a", 9000))
    await heard.considering.settled(closing=True)

    (choice,) = heard.choices()
    assert (choice.decided, choice.leavers) == (Decided.REFUSED, None)


class Broken(NonePolicy):
    """Decides, and fails when it is asked how."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Options())
        self._error = error

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """Raise."""
        raise self._error


@pytest.mark.parametrize(
    ("policy", "logged"),
    [
        pytest.param(lambda: Broken(ZeroDivisionError()), ["a decision cannot be explained"], id="fails"),
        pytest.param(lambda: Broken(NotEnough("no")), [], id="refuses"),
        pytest.param(lambda: NonePolicy(Options()), [], id="shows-nothing"),
    ],
)
async def test_a_policy_need_not_explain(policy: Callable[[], Policy], logged: list[str]) -> None:
    """Nor does it harm others if it fails at that."""
    heard = Heard(policy())

    assert await heard.after(owner("a")) == []
    assert heard.log.events() == logged
    heard.policy = TOPOLOGY_AWARE
    assert await heard.after(owner("b")) == [Decided.PLACED]


async def test_what_is_no_answer_of_a_policy_is_not_considered() -> None:
    """A malformed annotation, a failure, and a node whose containers were let go."""
    heard = Heard()
    for result in (BadAnnotation("no"), ZeroDivisionError()):
        heard.hear(heard.node, owner("a"), result)
    heard.node = heard.node.replace(released="somebody asked for it")
    heard.happens(owner("b"))

    assert await heard.after() == []


@pytest.mark.parametrize("rows", [1, 12, 500])
def test_what_is_kept_is_bounded(rows: int) -> None:
    """However many candidates there are and however long their names."""
    table = Candidates(
        "pools",
        tuple(Measure(f"criterion {number} with a name of some length") for number in range(12)),
        tuple(Row(f"pool {number} {'x' * rows}", tuple(range(12))) for number in range(rows)),
        f"pool 0 {'x' * rows}",
    )
    names = tuple(f"namespace/pod-{number}/container" for number in range(rows))
    choice = Choice(Decided.REFUSED, table, Leavers(names, shortest=False, steps=100))
    facts = choice.facts()
    kept = from_plain(Choice, facts)

    assert len(json.dumps(facts)) <= MAX_FACTS
    assert kept.decided is Decided.REFUSED
    assert kept.candidates
    assert kept.leavers
    assert len(kept.candidates.rows) + kept.candidates.omitted == rows
    assert len(kept.leavers.containers) + kept.leavers.omitted == rows


def test_what_is_much_too_long_is_left_out() -> None:
    """Rather than cut in the middle: only what was decided is kept."""
    choice = Choice(Decided.PLACED, Candidates("pools", (), (Row("x" * 9_000),), "x" * 9_000))

    assert choice.facts() == {"decided": "placed"}


def test_a_search_goes_on_where_the_policy_fails_at_a_release() -> None:
    """The steps that look for containers that would have to leave change nothing, whatever the policy answers."""

    class Full:
        """Has no room, and fails when somebody leaves."""

        def place(self, node: Node, container: Container) -> Change:
            if node.grants:
                raise NotEnough("full")
            return Change({container.key: Grant(frozenset({0}), frozenset({0}))})

        def release(self, node: Node, left: Grant) -> Change:
            raise ZeroDivisionError

    guard = CheckedPolicy(Full(), "acme", Options())
    grant = Grant(frozenset({0}), frozenset({0}))
    names = ("r-a", "r-b")
    node = Node(
        machine(nodes=1, cores=4, threads=1),
        containers={key: Container(key=key, pod=f"p-{key}", name=key) for key in names},
        grants=dict.fromkeys(names, grant),
    )

    found = weighed(placing(node, owner("new"), guard), owner("new"), guard, refused=True)

    assert found is not None
    assert found[1].leavers
    assert found[1].leavers.containers == ("r-a", "r-b")
