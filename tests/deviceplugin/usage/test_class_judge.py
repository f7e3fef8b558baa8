"""Cards of one class that are judged by readings, and what is known from before a restart."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from criproxy.deviceplugin.usage.class_judge import ClassJudge, with_unlisted
from criproxy.deviceplugin.usage.grants_client import Granted, parse_granted
from criproxy.deviceplugin.usage.quota_verdicts import Key, Over, Verdict, Within
from criproxy.devices.plugin.plan import QuotaPlan
from criproxy.devices.usage.values import CardUse, ContainerUse, Process, ProcessUse, Reading
from criproxy.model.text.plain import to_plain
from tests.deviceplugin.usage.hosts import container_id, grant

PLAN = QuotaPlan(period_s=1.0, grace_s=2.0, samples=2)
WEB = Key(container_id("web"), "npu0", "memory")


class Judged:
    """A class whose readings come once for each second."""

    def __init__(self, granted: Granted) -> None:
        self.judge = ClassJudge("ali-npu", PLAN)
        self.granted = granted
        self.finished: list[Process] = []
        self._at_s = 0.0

    def read(
        self, unread: Mapping[str, str] | None = None, gone: Mapping[int, int] | None = None, **memory_mib: int
    ) -> list[Verdict]:
        """Return what follows from one reading: ``web=9000``; ``other=9000`` is on another card.

        *gone* has the memory on npu0 of processes that are gone, by their numbers.
        """
        self._at_s += 1.0
        processes = tuple(
            ProcessUse(process=Process(pid=pid, start_ticks=0), card="npu0", memory_mib=mib)
            for pid, mib in (gone or {}).items()
        )
        reading = Reading(kind="ali-npu", at_s=self._at_s, processes=processes, unread=unread or {})
        uses = [used(name, mib) for name, mib in memory_mib.items()]
        verdicts, targets = self.judge.after(reading, self.granted, uses)
        self.finished += [each.target for each in targets if each.target]
        return verdicts


def granted(*incidents: Mapping[str, object], cores: int = 0) -> Granted:
    """Return the answer of a daemon: web has npu0, and other npu1."""
    grants = [to_plain(grant("web", cores=cores)), to_plain(grant("other", "npu1", cores=cores))]
    return parse_granted({"containers": grants, "incidents": list(incidents)})


def used(name: str, memory_mib: int, cores: float | None = None) -> ContainerUse:
    """Return what a container uses of its card."""
    key, card = container_id(name), "npu1" if name == "other" else "npu0"
    return ContainerUse(container_id=key, kind="ali-npu", card=card, memory_mib=memory_mib, cores_percent=cores)


def incident(action: str = "stop", **fields: object) -> Mapping[str, object]:
    """Return one that the daemon knows of web."""
    said = {"container_id": WEB.container_id, "device_class": "ali-npu", "card": "npu0", "quantity": "memory"}
    return {**said, "action": action, **fields}


def test_each_card_has_samples_of_its_own() -> None:
    """Whoever is on a card without a new sample is not judged by it, while another card's new samples count."""
    judge, over = ClassJudge("ali-npu", PLAN), list[str]()
    known, uses = granted(cores=20), [used("web", 0, 90.0), used("other", 0, 90.0)]
    for at_s in range(20):
        reading = Reading(kind="ali-npu", at_s=float(at_s), sampled_s={"npu0": 1.0, "npu1": float(at_s)})
        verdicts, _ = judge.after(reading, known, uses)
        over += [each.key.card for each in verdicts]

    assert over == ["npu1"]


def test_a_card_that_is_unread_keeps_no_other_from_being_judged() -> None:
    """Of its own container nothing is said meanwhile: neither that it is over its quota, nor that it is within."""
    judged = Judged(granted())
    for _ in range(3):
        assert judged.read(web=9000, other=9000) == []
    first, second = judged.read(web=9000, other=9000)
    assert {each.key.card for each in (first, second) if isinstance(each, Over)} == {"npu0", "npu1"}

    assert judged.read(unread={"npu0": "hot"}, other=100) == [Within(Key(container_id("other"), "npu1", "memory"))]
    assert judged.read(web=100) == [Within(WEB)]


def test_a_process_that_is_gone_may_be_of_any_container_on_its_card() -> None:
    """So it ends no incident there; those on other cards end."""
    judged = Judged(granted())
    for _ in range(4):
        judged.read(web=9000, other=9000)

    assert judged.read(gone={7: 9000}) == [Within(Key(container_id("other"), "npu1", "memory"))]
    assert judged.read(gone={8: 9000}) == []
    assert judged.read(gone={8: 100}) == [Within(WEB)]


def test_a_process_that_stays_gone_is_none() -> None:
    """A driver may go on to name it, or it cannot be seen from here: incidents would never end."""
    judged = Judged(granted())
    for _ in range(4):
        judged.read(web=9000)

    assert judged.read(gone={7: 9000}) == []
    assert judged.read(gone={7: 9000}) == [Within(WEB)]


@pytest.mark.parametrize(("action", "said"), [("observe", 1), ("stop", 0), ("", 0), ("unknown", 0)])
def test_an_incident_from_before_a_restart_is_said_if_more_is_to_be_done(action: str, said: int) -> None:
    """What an older or newer daemon does not say is no reason to do it again; the end is said."""
    judged = Judged(granted(incident(action)))

    assert sum(len(judged.read(web=9000)) for _ in range(6)) == said
    assert judged.read(web=8000) == [Within(WEB)]
    assert judged.finished == []


@pytest.mark.parametrize(("used", "finished"), [(9000, [Process(pid=7, start_ticks=5)]), (8000, [])])
def test_a_kill_from_before_a_restart_is_finished_if_it_still_has_a_reason(used: int, finished: list[Process]) -> None:
    """It is the process that was chosen then, and it is said once."""
    judged = Judged(granted(incident("kill-process", pid=7, start_ticks=5)))
    for _ in range(3):
        judged.read(web=used)

    assert judged.finished == finished


@pytest.mark.parametrize(
    "fields", [{"pid": 0, "start_ticks": 0}, {"pid": 7, "start_ticks": 0}, {}], ids=["none", "no-start", "older-daemon"]
)
def test_a_kill_without_a_process_is_none(fields: Mapping[str, int]) -> None:
    """Whoever has that number."""
    judged = Judged(granted(incident("kill-process", **fields)))
    judged.read(web=9000)

    assert judged.finished == []


@pytest.mark.parametrize(("used", "is_over"), [(9000, True), (100, False)])
def test_what_the_daemon_waits_for_after_its_restart(used: int, *, is_over: bool) -> None:
    """It is told once for each of its answers whether a container still is over its quota, as far as that is known."""
    judged = Judged(granted())
    for _ in range(4):
        judged.read(web=9000)
    judged.read(web=used)
    asked, reading = granted(incident(waits=True)), Reading(kind="ali-npu", at_s=9.0)

    unread = judged.judge.unconfirmed(replace(reading, unread={"npu0": "hot"}), granted(incident(waits=True)))
    assert unread == []
    assert [(each.key, over) for each, over in judged.judge.unconfirmed(reading, asked)] == [(WEB, is_over)]
    assert judged.judge.unconfirmed(reading, asked) == []
    assert judged.judge.unconfirmed(reading, granted(incident())) == []


def test_a_class_that_is_watched_no_more_says_nothing_more() -> None:
    """Who was over a quota counts as within it, also where only the daemon knew; a late reading changes nothing."""
    judged = Judged(granted(incident()))
    for _ in range(4):
        judged.read(web=9000, other=9000)

    assert set(judged.judge.end()) == {Within(WEB), Within(Key(container_id("other"), "npu1", "memory"))}
    assert [judged.read(web=9000, other=9000) for _ in range(4)] == [[]] * 4
    assert judged.judge.end() == []


def test_incidents_of_other_classes_do_not_matter() -> None:
    """Each class has its own judge."""
    judged = Judged(granted({**incident(), "device_class": "nvidia"}))

    assert [len(judged.read(web=9000)) for _ in range(4)] == [0, 0, 0, 1]


def test_cards_that_a_complete_list_lacks_are_unread() -> None:
    """Who has one of them does not use nothing: nobody knows what he uses."""
    cards = (CardUse(card="npu0", memory_mib=0, total_mib=1),)
    reading = Reading(kind="ali-npu", at_s=1.0, cards=cards, unread={"npu2": "hot"})

    assert set(with_unlisted(reading, granted()).unread) == {"npu1", "npu2"}
    assert set(with_unlisted(replace(reading, kind="nvidia"), granted()).unread) == {"npu2"}


def test_cards_that_nobody_has_are_forgotten() -> None:
    """Cards come and go, and the watcher runs for months."""
    judged = Judged(granted())
    judged.read(web=9000)
    judged.granted = parse_granted({"containers": [to_plain(grant("other", card="npu1"))]})
    judged.read()

    assert set(judged.judge._cards) == {"npu1"}


@pytest.mark.parametrize(
    "answer", [{}, {"containers": 3}, {"containers": [{}]}, [], {"containers": [], "incidents": [1]}]
)
def test_an_answer_that_is_none_is_refused(answer: object) -> None:
    """What was known before goes on."""
    with pytest.raises((LookupError, ValueError, TypeError, AttributeError)):
        parse_granted(answer)
