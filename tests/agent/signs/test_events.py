"""Events are few: also after hours without an API server, with many tenants, and beside a second agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from criproxy.agent.kubernetes.client import EVENTS, ApiClient
from criproxy.agent.signs.event_texts import Happening
from criproxy.agent.signs.events import EventLimits, EventWriter
from criproxy.agent.troubles import Troubles
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from tests.agent.parts import running, until, until_said
from tests.node.world import RecordingLog

QUICK = EventLimits(again_s=0.0, most_at_once=1000, refill_s=0.001, retries_s=(0.005, 0.02))
ONE = Happening("PlacementRefused", "container main: no room", "Pod", "web", "shop", "u-1", at_s=1000.0)
NODE = Happening("BypassOn", "the bypass is on", "Node", "worker-1", at_s=1000.0)


class Clock:
    """Seconds since the epoch, as a test sets them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return them."""
        return self.now_s


def writer(client: ApiClient, limits: EventLimits = QUICK) -> EventWriter:
    """What writes the Events of a node."""
    return EventWriter(client, "worker-1", Troubles(RecordingLog()), limits, Clock())


@asynccontextmanager
async def writing(client: ApiClient, limits: EventLimits = QUICK) -> AsyncIterator[EventWriter]:
    """A writer that runs."""
    made = writer(client, limits)
    async with running(made.run()):
        yield made


@pytest.fixture
async def events(api_client: ApiClient) -> AsyncIterator[EventWriter]:
    """One with the usual limits."""
    async with writing(api_client) as events:
        yield events


def written(server: ApiServer) -> dict[tuple[str, str], int]:
    """The counts of all Events, by name of the object and reason."""
    return {(each["involvedObject"]["name"], each["reason"]): each["count"] for each in server.objects.all(EVENTS)}


async def test_an_event_is_made_once_and_then_counted(apiserver: ApiServer, events: EventWriter) -> None:
    """With the pod's UID, in its namespace; its message and time are those of the last happening."""
    events.add(ONE)
    await apiserver.until(lambda: written(apiserver) == {("web", "PlacementRefused"): 1})
    events.add(replace(ONE, message="container main: still no room", at_s=1060.0))
    await apiserver.until(lambda: written(apiserver) == {("web", "PlacementRefused"): 2})

    (event,) = apiserver.objects.all(EVENTS)
    assert event["metadata"]["namespace"] == "shop"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web",
        "namespace": "shop",
        "uid": "u-1",
    }
    assert (event["type"], event["source"]) == ("Warning", {"component": "criproxy-agent", "host": "worker-1"})
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("1970-01-01T00:16:40Z", "1970-01-01T00:17:40Z")
    assert event["message"] == "container main: still no room"


async def test_events_of_the_node_are_where_kubectl_looks(apiserver: ApiServer, events: EventWriter) -> None:
    """In the namespace default, with the node's name as UID, as the kubelet's."""
    events.add(replace(NODE, is_warning=False))
    await apiserver.until(lambda: bool(written(apiserver)))

    (event,) = apiserver.objects.all(EVENTS)
    assert (event["metadata"]["namespace"], event["type"]) == ("default", "Normal")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "worker-1"}


async def test_the_same_is_written_rarely(apiserver: ApiServer, api_client: ApiClient) -> None:
    """What repeats is only counted until the time is over."""
    async with writing(api_client, replace(QUICK, again_s=3600.0)) as events:
        assert events.is_due(ONE)
        events.add(ONE)
        await apiserver.until(lambda: bool(written(apiserver)))
        events.add(NODE)
        await apiserver.until(lambda: len(written(apiserver)) == 2)
        assert not events.is_due(ONE)
        for _ in range(100):
            events.add(ONE)
        events.add(replace(NODE, reason="BypassOff"))
        await apiserver.until(lambda: len(written(apiserver)) == 3)
    assert apiserver.requests["patch", "events"] == 0
    assert written(apiserver)["web", "PlacementRefused"] == 1


async def test_a_node_writes_a_few_a_minute(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Its own first of all, then one of each namespace in turn: no tenant keeps the others from being told."""
    limits = replace(QUICK, most_at_once=3, refill_s=3600.0)
    events = writer(api_client, limits)
    for number in range(50):
        events.add(replace(ONE, name=f"web-{number}", uid=f"u-{number}"))
    events.add(NODE)
    events.add(replace(ONE, namespace="quiet", uid="q"))
    async with running(events.run()):
        await apiserver.until(lambda: len(written(apiserver)) == 3)
        await asyncio.sleep(0.05)
    assert {each["metadata"]["namespace"] for each in apiserver.objects.all(EVENTS)} == {"shop", "default", "quiet"}
    assert apiserver.requests["create", "events"] == 3


async def test_the_queue_is_bounded(api_client: ApiClient) -> None:
    """What is dropped is of the namespace that has most."""
    events = writer(api_client, replace(QUICK, most=20))
    events.add(NODE)
    events.add(replace(ONE, namespace="quiet", uid="q"))
    for number in range(1000):
        events.add(replace(ONE, uid=f"u-{number}"))

    kept = [each.last.namespace for each in events._series.values()]
    assert (kept.count("shop"), kept.count("quiet"), kept.count("")) == (18, 1, 1)
    assert events.dropped == 982


async def test_a_server_that_is_gone_for_an_hour(apiserver: ApiServer, events: EventWriter) -> None:
    """What is of the last hour is told with its count, the rest is dropped, and there is no storm."""
    assert isinstance(events.clock, Clock)
    await apiserver.stop()
    for minute in range(90):
        events.clock.now_s += 60.0
        events.add(replace(ONE, uid=f"u-{minute // 10}", name=f"web-{minute // 10}", at_s=events.clock.now_s))
        events.add(replace(NODE, at_s=events.clock.now_s))
    await until(events.troubles, lambda: bool(events.troubles.sentences(wrong=False)))
    await apiserver.start()
    await apiserver.until(lambda: len(written(apiserver)) == 8)
    await until(events.troubles, lambda: not events.troubles.sentences(wrong=False))
    assert written(apiserver) == {
        **{(f"web-{ten}", "PlacementRefused"): 10 for ten in range(2, 9)},
        ("worker-1", "BypassOn"): 90,
    }
    assert apiserver.requests["create", "events"] == 8


@pytest.mark.parametrize(("status", "is_dropped"), [(403, True), (422, True), (500, False), (429, False)])
async def test_a_refusal(apiserver: ApiServer, events: EventWriter, status: int, is_dropped: bool) -> None:
    """What the API server does not want is dropped and said; what it cannot take now waits."""
    apiserver.faults.refuses["create", "events"] = Refuses(status, "not now", times=1)
    events.add(ONE)
    await apiserver.until(lambda: apiserver.requests["create", "events"] >= 1)
    events.add(NODE)
    await apiserver.until(lambda: ("worker-1", "BypassOn") in written(apiserver))
    if not is_dropped:
        await apiserver.until(lambda: ("web", "PlacementRefused") in written(apiserver))
    assert (("web", "PlacementRefused") in written(apiserver)) is not is_dropped
    assert events.dropped == is_dropped


@pytest.mark.parametrize(
    ("status", "text", "is_said"),
    [
        pytest.param(403, "events is forbidden", True, id="no-right"),
        pytest.param(403, "namespace shop, because it is being terminated", False, id="ends"),
        pytest.param(404, 'namespaces "shop" not found', False, id="gone"),
    ],
)
async def test_what_is_said_of_a_refusal(
    apiserver: ApiServer, events: EventWriter, status: int, text: str, is_said: bool
) -> None:
    """That the agent lacks a right is said until an Event is written; that a namespace is gone is usual."""
    apiserver.faults.refuses["create", "events"] = Refuses(status, text, times=1)
    seen = events.troubles.version
    events.add(ONE)
    if is_said:
        await until_said(events.troubles, text)
    events.add(NODE)
    await apiserver.until(lambda: ("worker-1", "BypassOn") in written(apiserver))
    await until_said(events.troubles)
    assert events.troubles.version == seen + 2 * is_said


async def test_what_was_not_written_and_is_stale_is_no_trouble(apiserver: ApiServer, events: EventWriter) -> None:
    """When nothing waits any more, there is nothing to say."""
    assert isinstance(events.clock, Clock)
    await apiserver.stop()
    events.add(ONE)
    await until_said(events.troubles, "Events cannot be written")
    events.clock.now_s += 7200.0
    await until_said(events.troubles)
    assert events.dropped == 1


async def test_after_a_restart_and_beside_a_second_agent(apiserver: ApiServer, api_client: ApiClient) -> None:
    """The Event that is there is counted on."""
    for count in (1, 2):
        async with writing(api_client) as events:
            events.add(ONE)
            await apiserver.until(lambda count=count: written(apiserver) == {("web", "PlacementRefused"): count})  # type: ignore[misc]
    async with writing(api_client) as first, writing(api_client) as second:
        first.add(ONE)
        await apiserver.until(lambda: written(apiserver)["web", "PlacementRefused"] == 3)
        second.add(ONE)
        await apiserver.until(lambda: written(apiserver)["web", "PlacementRefused"] == 4)
    assert len(apiserver.objects.all(EVENTS)) == 1


async def test_a_count_that_cannot_grow(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Somebody has set the largest number that the API server takes: the Event still says what is new."""
    async with writing(api_client) as events:
        events.add(ONE)
        await apiserver.until(lambda: bool(written(apiserver)))
    (event,) = apiserver.objects.all(EVENTS)
    await api_client.replace(EVENTS, {**event, "count": 2**31 - 1})
    async with writing(api_client) as events:
        events.add(replace(ONE, message="news"))
        await apiserver.until(lambda: apiserver.objects.all(EVENTS)[0]["message"] == "news")

    assert (apiserver.objects.all(EVENTS)[0]["count"], events.dropped) == (2**31 - 1, 0)


async def test_an_event_that_has_expired_or_was_wiped(apiserver: ApiServer, events: EventWriter) -> None:
    """It is made anew, and counts from one."""
    events.add(ONE)
    await apiserver.until(lambda: bool(written(apiserver)))
    apiserver.objects.wipe()
    events.add(ONE)
    await apiserver.until(lambda: written(apiserver) == {("web", "PlacementRefused"): 1})


def test_names_of_events_are_legal() -> None:
    """Also for the longest name of a pod."""
    from criproxy.agent.signs.events import _name

    long = replace(ONE, name="a" * 199 + "." + "b" * 53)
    names = {_name(each, "worker-1") for each in (ONE, NODE, long, replace(ONE, uid="u-2"))}
    assert len(names) == 4
    assert all(len(each) <= 253 and ".." not in each for each in names)
