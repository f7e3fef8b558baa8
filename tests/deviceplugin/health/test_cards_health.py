"""The health of all cards over time, on a clock that stands still until it is moved."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from criproxy.deviceplugin.cards.detected_cards import CardKey, DetectedCard
from criproxy.deviceplugin.health.cards_health import MISSING_KEPT_S, CardsHealth
from criproxy.deviceplugin.health.health import command_healthy, command_unhealthy, xid_event
from tests.node.world import RecordingLog

A, B = ("npu", "npu0"), ("npu", "npu1")
NODES = frozenset({"/dev/npu0", "/dev/npu0_ctl"})


@dataclass
class Rig:
    """Cards, and what is told of them."""

    at_s: float = 1000.0
    changes: int = 0
    health_changed: list[tuple[str, bool, str]] = field(default_factory=list)
    health: CardsHealth = field(init=False)

    def __post_init__(self) -> None:
        def changed() -> None:
            self.changes += 1

        self.health = CardsHealth(
            changed,
            lambda key, known: self.health_changed.append((key[1], known.health.healthy, known.reason)),
            RecordingLog(),
            hold_down_s=30.0,
            clock=lambda: self.at_s,
            now=lambda: 1e9 + self.at_s,
        )

    def update_cards(self, cards: Mapping[CardKey, DetectedCard], after_s: float = 0.0) -> dict[str, list[str]]:
        """Look at the cards after a while; return those that are unhealthy."""
        self.at_s += after_s
        self.health.update_cards(cards, ["npu"])
        return {kind: list(ids) for kind, ids in self.health.unhealthy().items()}


BOTH = {A: DetectedCard(nodes=NODES), B: DetectedCard()}


async def test_a_card_recovers_when_the_hold_down_is_over() -> None:
    """Those who are told get the reason, and since when."""
    rig = Rig()
    rig.update_cards(BOTH)
    rig.health.apply({A: xid_event(79)})

    assert rig.health.unhealthy() == {"npu": ["npu0"]}
    assert rig.health.known[A].unhealthy_since_s == 1e9 + 1000
    assert rig.update_cards(BOTH, after_s=29.9) == {"npu": ["npu0"]}
    assert rig.update_cards(BOTH, after_s=0.2) == {}
    assert rig.health_changed == [("npu0", False, "XID 79"), ("npu0", True, "XID 79")]
    assert rig.changes == 2


async def test_it_recovers_by_itself() -> None:
    """No other event is needed: a timer looks again."""
    rig = Rig()
    loop = asyncio.get_running_loop()
    recovered = asyncio.Event()
    rig.health = CardsHealth(recovered.set, lambda *_: None, RecordingLog(), hold_down_s=0.01, clock=loop.time)
    rig.health.update_cards(BOTH, ["npu"])
    rig.health.apply({A: xid_event(79)})
    recovered.clear()

    await asyncio.wait_for(recovered.wait(), 60)

    assert rig.health.unhealthy() == {}
    rig.health.stop()


async def test_a_card_whose_driver_can_be_asked_recovers_with_its_answer() -> None:
    """It is asked once when the hold-down is over; an answer from before that time, or none, changes nothing."""
    rig, asked = Rig(), asyncio.Event()
    rig.health.query = asked.set
    rig.health.hold_down(0.01)
    seen = {A: DetectedCard(queried_s=999.0)}
    rig.update_cards(seen)
    rig.health.apply({A: xid_event(79)})
    rig.at_s += 30
    await asyncio.wait_for(asked.wait(), 60)

    assert rig.update_cards(seen) == {"npu": ["npu0"]}
    assert rig.update_cards({A: DetectedCard(queried_s=1000.005)}) == {"npu": ["npu0"]}
    bad = DetectedCard(queried_s=1030.0, problem="GPU is lost")
    assert rig.update_cards({A: bad}) == {"npu": ["npu0"]}
    good = {A: DetectedCard(queried_s=1031.0)}
    assert rig.update_cards(good, after_s=1) == {"npu": ["npu0"]}  # another hold-down begins
    assert rig.update_cards({A: DetectedCard(queried_s=1032.0)}, after_s=1) == {}
    assert [healthy for _, healthy, _ in rig.health_changed] == [False, True]
    rig.health.stop()


async def test_a_node_that_vanishes_makes_its_card_unhealthy() -> None:
    """One of several is enough, and its name is the reason."""
    rig = Rig()
    rig.update_cards(BOTH)

    assert rig.update_cards({**BOTH, A: DetectedCard(nodes=frozenset({"/dev/npu0"}))}) == {"npu": ["npu0"]}
    assert rig.health.known[A].reason == "/dev/npu0_ctl is missing"
    assert rig.update_cards(BOTH, after_s=5) == {"npu": ["npu0"]}
    assert rig.update_cards(BOTH, after_s=31) == {}


async def test_a_card_that_the_driver_cannot_describe_is_unhealthy_at_once() -> None:
    """Also one that is found so."""
    rig = Rig()

    assert rig.update_cards({A: DetectedCard(problem="GPU is lost")}) == {"npu": ["npu0"]}
    assert rig.health_changed == [("npu0", False, "NVML: GPU is lost")]


async def test_a_card_that_is_gone_is_forgotten_in_the_end() -> None:
    """Until then it comes back as one that has failed; after that it is a new one."""
    rig = Rig()
    rig.update_cards(BOTH)

    assert rig.update_cards({B: DetectedCard()}) == {"npu": ["npu0"]}
    assert rig.update_cards(BOTH, after_s=MISSING_KEPT_S - 1) == {"npu": ["npu0"]}
    rig.update_cards({B: DetectedCard()})
    rig.update_cards({B: DetectedCard()}, after_s=MISSING_KEPT_S + 1)
    assert set(rig.health.known) == {B}
    assert rig.update_cards(BOTH) == {}


async def test_cards_of_a_class_that_is_not_advertised_any_more_are_forgotten() -> None:
    """They are no cards that have vanished."""
    rig = Rig()
    rig.update_cards(BOTH)
    rig.health.update_cards({}, [])

    assert (rig.health.known, rig.health_changed) == ({}, [])


async def test_several_causes_count_each() -> None:
    """A command that says good again does not end what an error began."""
    rig = Rig()
    rig.update_cards(BOTH)
    rig.health.apply({A: command_unhealthy("hot")})
    rig.at_s += 60
    rig.health.apply({A: xid_event(48)})
    rig.health.apply({A: command_healthy()})

    assert rig.update_cards(BOTH, after_s=20) == {"npu": ["npu0"]}
    assert rig.update_cards(BOTH, after_s=11) == {}


async def test_another_hold_down_counts_for_cards_that_recover() -> None:
    """A file that is new has its effect at once."""
    rig = Rig()
    rig.update_cards(BOTH)
    rig.health.apply({A: xid_event(79), ("npu", "unknown"): xid_event(79)})
    rig.at_s += 10
    rig.health.hold_down(5.0)

    assert rig.health.unhealthy() == {}


async def test_cards_have_several_names() -> None:
    """A health command may use any of them."""
    rig = Rig()
    rig.update_cards({A: DetectedCard(names=frozenset({"0", "0000:3b:00.0"})), B: DetectedCard(names=frozenset({"1"}))})

    assert rig.health.of("npu", ["0000:3b:00.0", "npu1", "7"]) == [A, B]
    assert rig.health.of("gpu") == []


async def test_cards_that_no_health_command_has_judged_yet_are_not_healthy() -> None:
    """What was bad before a restart may be so still; it is no failure, and over without a hold-down."""
    rig = Rig()
    rig.health.expect_verdicts(["npu"])

    assert rig.update_cards(BOTH) == {"npu": ["npu0", "npu1"]}
    assert rig.health.known[A].shown_reason.startswith("its health is unknown")
    assert rig.health.unjudged_classes() == {"npu"}
    assert rig.update_cards(BOTH, after_s=60) == {"npu": ["npu0", "npu1"]}
    rig.health.apply_verdict("npu", {A: command_unhealthy("hot"), B: command_healthy()})

    assert rig.health.unhealthy() == {"npu": ["npu0"]}
    assert rig.health_changed == [("npu0", False, "the health command reports: hot")]
    assert (rig.changes, rig.health.unjudged_classes()) == (1, frozenset())


async def test_health_commands_come_and_go() -> None:
    """A new one changes nothing for cards that are known; without it nothing is awaited any more."""
    rig = Rig()
    rig.update_cards({A: DetectedCard()})
    rig.health.expect_verdicts(["npu"])

    assert rig.update_cards(BOTH) == {"npu": ["npu1"]}
    rig.health.expect_verdicts([])
    assert rig.health.unhealthy() == {}
    assert rig.update_cards(BOTH) == {}
