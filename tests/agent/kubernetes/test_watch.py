"""Objects that are followed stay true, whatever the API server does, and it is not asked more than needed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import psutil
import pytest

from criproxy.agent.changes import any_changed
from criproxy.agent.kubernetes.client import CONFIG_MAPS, NODE_POLICIES, NODES, ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.request import Object
from criproxy.agent.kubernetes.transport import Limits
from criproxy.agent.kubernetes.watch import Watched
from criproxy.process.tasks import Backoff
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from tests.agent.conftest import SHORT
from tests.agent.parts import running, until

HEALED = pytest.mark.parametrize("by_event", [True, False], ids=["410 as event", "410 of HTTP"])


@asynccontextmanager
async def following(watched: Watched, *, known: bool = True) -> AsyncIterator[Watched]:
    """Run it, and end it; with *known*, from when its objects are known."""
    async with running(watched.run()):
        if known:
            await until(watched, lambda: watched.known)
        yield watched


def policy(name: str, priority: int = 0) -> Object:
    """A NodePolicy."""
    return {"metadata": {"name": name}, "spec": {"priority": priority}}


@pytest.fixture
async def watched(apiserver: ApiServer, api_client: ApiClient) -> AsyncIterator[Watched]:
    """The NodePolicies as they are followed; there is one, a."""
    apiserver.objects.create(NODE_POLICIES, policy("a"))
    async with following(Watched(api_client, NODE_POLICIES)) as watched:
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        yield watched


def client_of(server: ApiServer, limits: Limits) -> ApiClient:
    """A client with these limits."""
    return ApiClient(plain(server.url), limits=limits)


async def test_objects_are_read_and_followed(apiserver: ApiServer, api_client: ApiClient) -> None:
    """What is there at first, what comes, what changes, and what goes."""
    apiserver.objects.create(NODE_POLICIES, policy("a"))
    async with following(Watched(api_client, NODE_POLICIES)) as watched:
        assert [*watched.objects] == ["a"]
        apiserver.objects.create(NODE_POLICIES, policy("b"))
        await until(watched, lambda: len(watched.objects) == 2)
        await api_client.merge_patch(NODE_POLICIES, "b", {"spec": {"priority": 7}})
        await until(watched, lambda: watched.objects["b"]["spec"]["priority"] == 7)
        await api_client.delete(NODE_POLICIES, "a")
        await until(watched, lambda: [*watched.objects] == ["b"])
        assert "managedFields" not in watched.objects["b"]["metadata"]
    assert apiserver.requests["list", "nodepolicies"] == 1
    query = apiserver.asked[1].query
    assert query["allowWatchBookmarks"] == "true"
    assert 1800 <= int(query["timeoutSeconds"]) <= 3600


async def test_only_one_object_is_followed(apiserver: ApiServer, api_client: ApiClient) -> None:
    """That with the name, in the namespace."""
    async with following(Watched(api_client, CONFIG_MAPS, name="a", namespace="shop")) as watched:
        for name, namespace in (("b", "shop"), ("a", "other"), ("a", "shop")):
            apiserver.objects.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})
        await until(watched, lambda: bool(watched.objects))
        assert watched.objects["a"]["metadata"]["namespace"] == "shop"
        assert watched.version == 2


async def test_what_changes_during_an_act_is_not_missed(apiserver: ApiServer, api_client: ApiClient) -> None:
    """With the version that was seen before the act; several can be awaited together."""
    async with following(Watched(api_client, NODE_POLICIES)) as one, following(Watched(api_client, NODES)) as other:
        await apiserver.until(lambda: len(apiserver.watches) == 2)
        seen = [one.version, other.version]
        apiserver.objects.create(NODES, {"metadata": {"name": "n1"}})
        await until(other, lambda: "n1" in other.objects)
        async with asyncio.timeout(10):
            await other.changed(seen[1])
            await any_changed([one, other], seen)


async def test_what_only_the_status_changes_is_no_change(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Of a Node of which the metadata are followed: its kubelet writes its status all the time."""
    apiserver.objects.create(NODES, {"metadata": {"name": "n1"}})
    async with following(Watched(api_client, NODES, name="n1", metadata_only=True)) as watched:
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        seen = watched.version
        for beat in range(10):
            body = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": str(beat)}]}}
            await api_client.strategic_patch(NODES, "n1", body, subresource="status")
        await api_client.merge_patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}})
        await until(watched, lambda: "labels" in watched.objects["n1"]["metadata"])
        assert watched.version == seen + 1
        assert "status" not in watched.objects["n1"]


async def test_a_watch_goes_on_after_a_reset(apiserver: ApiServer, api_client: ApiClient) -> None:
    """In mid-event, from the last version, without reading all again."""
    async with following(Watched(api_client, NODES, name="n1", metadata_only=True)) as watched:
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.watches.reset()
        apiserver.objects.create(NODES, {"metadata": {"name": "n1", "labels": {"x": "y"}}})
        await until(watched, lambda: "n1" in watched.objects)
        await until(watched, lambda: not watched.problem)
    assert apiserver.requests["list", "nodes"] == 1


async def test_a_watch_that_breaks_once_is_no_problem(apiserver: ApiServer) -> None:
    """If it has lasted: a restart of an API server is nothing to report, unless it does not come back."""
    limits = replace(SHORT, healthy_s=0.0)
    async with client_of(apiserver, limits) as client, following(Watched(client, NODE_POLICIES)) as watched:
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        seen = watched.version
        apiserver.watches.reset()
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
        assert watched.version == seen
        await apiserver.stop()
        await until(watched, lambda: bool(watched.problem))


async def test_a_watch_that_ends_goes_on(apiserver: ApiServer, watched: Watched, api_client: ApiClient) -> None:
    """As each does after a while; that is no problem for anybody."""
    seen = watched.version
    apiserver.watches.end()
    await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
    assert watched.version == seen
    assert apiserver.requests["list", "nodepolicies"] == 1
    assert api_client.counters.watch_restarts["nodepolicies", "ended"] == 1


@HEALED
async def test_what_is_forgotten_is_read_again(
    apiserver: ApiServer, watched: Watched, api_client: ApiClient, by_event: bool
) -> None:
    """An object that went while nobody watched is gone, one that came is there."""
    apiserver.faults.expires_by_event = by_event
    apiserver.faults.refuses["watch", "nodepolicies"] = Refuses(503, times=1_000_000)
    apiserver.watches.end()
    await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
    apiserver.objects.delete(NODE_POLICIES, "a")
    apiserver.objects.create(NODE_POLICIES, policy("b"))
    apiserver.objects.compact()
    del apiserver.faults.refuses["watch", "nodepolicies"]
    await until(watched, lambda: [*watched.objects] == ["b"])
    assert api_client.counters.watch_restarts["nodepolicies", "expired"] == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_not_asked_for_everything(apiserver: ApiServer, watched: Watched, status: int) -> None:
    """The watch goes on from where it was."""
    apiserver.faults.refuses["watch", "nodepolicies"] = Refuses(status, times=2)
    apiserver.watches.end()
    await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 4)
    apiserver.objects.create(NODE_POLICIES, policy("b"))
    await until(watched, lambda: "b" in watched.objects and not watched.problem)
    assert apiserver.requests["list", "nodepolicies"] == 1


async def test_a_server_of_which_the_disk_was_restored_is_read_again(
    apiserver: ApiServer, api_client: ApiClient
) -> None:
    """Its versions are older than those that were seen, which its next bookmark shows."""
    for name in "ab":
        apiserver.objects.create(NODE_POLICIES, policy(name))
    async with following(Watched(api_client, NODE_POLICIES)) as watched:
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.watches.bookmark(1001)
        await apiserver.until(lambda: apiserver.requests["list", "nodepolicies"] == 2)
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
        assert [*watched.objects] == ["a", "b"]


async def test_a_server_that_comes_back_with_an_empty_disk_is_read_again(
    apiserver: ApiServer, watched: Watched
) -> None:
    """Its versions begin anew, so that a watch from where it was would show nothing, not even a bookmark."""
    await apiserver.stop()
    await until(watched, lambda: "refused" in watched.problem)
    apiserver.lose_disk()
    apiserver.objects.create(NODE_POLICIES, policy("b"))
    await apiserver.start()
    await until(watched, lambda: [*watched.objects] == ["b"] and not watched.problem)


async def test_a_server_that_knows_the_account_no_longer_is_read_again(apiserver: ApiServer, watched: Watched) -> None:
    """It may have lost its disk, and the accounts with it, before the watch was opened again."""
    apiserver.faults.refuses["watch", "nodepolicies"] = Refuses(401, times=2)
    apiserver.watches.reset()
    await apiserver.until(lambda: apiserver.requests["list", "nodepolicies"] == 2)
    await until(watched, lambda: not watched.problem)


async def test_bookmarks_keep_a_quiet_watch_from_expiring(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Other objects change, the old versions are forgotten, and the watch goes on from the bookmark."""
    async with following(Watched(api_client, NODE_POLICIES)):
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.objects.create(NODES, {"metadata": {"name": "n1"}})
        apiserver.objects.compact()
        apiserver.bookmark()
        apiserver.watches.end()
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
    assert apiserver.asked[-1].query["resourceVersion"] == str(apiserver.objects.version)
    assert apiserver.requests["list", "nodepolicies"] == 1


async def test_silence_after_a_bookmark_is_bounded(apiserver: ApiServer) -> None:
    """A server that has sent one sends more of them; what it says after the silence is not lost."""
    async with (
        client_of(apiserver, replace(SHORT, silence_s=0.2)) as client,
        following(Watched(client, NODE_POLICIES)) as watched,
    ):
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.bookmark()
        await until(watched, lambda: "silent for too long" in watched.problem)
        apiserver.objects.create(NODE_POLICIES, policy("a"))
        await until(watched, lambda: "a" in watched.objects and not watched.problem)


async def test_a_watch_that_the_server_does_not_end_is_ended(apiserver: ApiServer) -> None:
    """A moment after its time, also where there are no bookmarks."""
    apiserver.faults.ignores_timeout = True
    limits = replace(SHORT, watch_s=(0.1, 0.1), grace_s=0.1)
    async with client_of(apiserver, limits) as client, following(Watched(client, NODE_POLICIES)) as watched:
        await until(watched, lambda: "silent for too long" in watched.problem)
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] >= 2)
        await until(watched, lambda: not watched.problem)


async def test_what_was_known_stays_while_the_server_is_gone(apiserver: ApiServer, watched: Watched) -> None:
    """With the problem; what has happened meanwhile is there when it is back."""
    await apiserver.stop()
    await until(watched, lambda: "watch /apis/criproxy.io/v1alpha1/nodepolicies" in watched.problem)
    assert (watched.known, [*watched.objects]) == (True, ["a"])
    apiserver.objects.create(NODE_POLICIES, policy("b"))
    await apiserver.start()
    await until(watched, lambda: len(watched.objects) == 2 and not watched.problem)


async def test_what_was_never_read_is_not_none(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Until the server answers, nothing is known."""
    apiserver.faults.refuses["*", "*"] = Refuses(403, "forbidden to list nodepolicies")
    async with following(Watched(api_client, NODE_POLICIES), known=False) as watched:
        await until(watched, lambda: "403 forbidden to list nodepolicies" in watched.problem)
        assert not watched.known
        apiserver.faults.refuses.clear()
        await until(watched, lambda: watched.known and not watched.problem)


async def test_a_right_that_is_taken_away_keeps_what_was_known(apiserver: ApiServer, watched: Watched) -> None:
    """And says which."""
    apiserver.faults.refuses["*", "nodepolicies"] = Refuses(403, "forbidden")
    apiserver.watches.end()
    await until(watched, lambda: "403 forbidden" in watched.problem)
    assert [*watched.objects] == ["a"]


async def test_a_crd_may_be_installed_later(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Without it there are no objects, which is known, and said."""
    apiserver.served.discard(NODE_POLICIES)
    async with following(Watched(api_client, NODE_POLICIES)) as watched:
        assert (watched.served, dict(watched.objects)) == (False, {})
        assert watched.problem == ("the API server has no nodepolicies of criproxy.io/v1alpha1; is the CRD installed?")
        apiserver.served.add(NODE_POLICIES)
        apiserver.objects.create(NODE_POLICIES, policy("a"))
        await until(watched, lambda: watched.served and "a" in watched.objects and not watched.problem)


async def test_a_crd_that_was_there_is_soon_looked_for_again(apiserver: ApiServer) -> None:
    """It was lost with all that the API server had, and comes back before all that."""
    rare = replace(SHORT, absent_s=3600.0)
    async with client_of(apiserver, rare) as client, following(Watched(client, NODE_POLICIES)) as it:
        apiserver.served.discard(NODE_POLICIES)
        apiserver.watches.end()
        await until(it, lambda: not it.served)
        apiserver.served.add(NODE_POLICIES)
        await until(it, lambda: it.served and not it.problem)


async def test_a_wiped_server_is_seen_as_it_is(apiserver: ApiServer, watched: Watched) -> None:
    """What follows from it is for those who follow."""
    apiserver.objects.wipe()
    await until(watched, lambda: not watched.objects)
    assert (watched.known, watched.served, watched.problem) == (True, True, "")


GARBAGE = [
    pytest.param(b"[]\n", id="no object"),
    pytest.param(b"{\n", id="no JSON"),
    pytest.param(b"\n", id="an empty line"),
    pytest.param(b'{"type":"MODIFIED"}\n', id="no object in it"),
    pytest.param(b'{"type":"MODIFIED","object":"a"}\n', id="a text as the object"),
    pytest.param(b'{"type":"MODIFIED","object":{"metadata":{}}}\n', id="an object without a name"),
    pytest.param(b'{"type":["x"],"object":{"metadata":{"name":"a"}}}\n', id="a type that is none"),
    pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"oh"}}\n', id="an error"),
    pytest.param(b'{"type":"BOOKMARK","object":null}\n' * 3 + b"x\n", id="a bookmark without an object"),
]


@pytest.mark.parametrize("line", GARBAGE)
async def test_what_is_no_event_changes_nothing(apiserver: ApiServer, watched: Watched, line: bytes) -> None:
    """All is read again after it, since what it wanted to say is not known."""
    apiserver.watches.send("nodepolicies", line)
    await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2)
    assert dict(watched.objects).keys() == {"a"}
    apiserver.objects.create(NODE_POLICIES, policy("b"))
    await until(watched, lambda: len(watched.objects) == 2 and not watched.problem)
    assert apiserver.requests["list", "nodepolicies"] == 2


async def test_an_event_without_end_is_bounded(apiserver: ApiServer) -> None:
    """In memory; the watch begins again."""
    long = b'{"type":"MODIFIED","object":{"metadata":{"name":"' + b"x" * (64 << 20) + b'"}}}\n'
    async with (
        client_of(apiserver, replace(SHORT, line_bytes=1 << 20)) as client,
        following(Watched(client, NODE_POLICIES)) as watched,
    ):
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.watches.send("nodepolicies", long)
        await until(watched, lambda: "more than 1048576 bytes" in watched.problem)
        await until(watched, lambda: not watched.problem)


async def test_a_failing_server_is_not_stormed(apiserver: ApiServer) -> None:
    """Pauses grow, with a server that ends each watch at once, too."""
    apiserver.faults.bodies["watch", "nodepolicies"] = b""
    limits = replace(SHORT, first_pause_s=0.02, longest_pause_s=60.0)
    async with client_of(apiserver, limits) as client, following(Watched(client, NODE_POLICIES)):
        await asyncio.sleep(1.0)
    assert 2 <= apiserver.requests["watch", "nodepolicies"] <= 40


async def test_the_watches_of_all_agents_do_not_return_together(apiserver: ApiServer) -> None:
    """When a server that restarts has ended them together."""
    limits, agents = replace(SHORT, healthy_s=0.0, reopen_s=1.0), 30
    async with AsyncExitStack() as stack:
        for _ in range(agents):
            client = await stack.enter_async_context(client_of(apiserver, limits))
            await stack.enter_async_context(following(Watched(client, NODE_POLICIES)))
        await apiserver.until(lambda: len(apiserver.watches) == agents)
        apiserver.watches.end()
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] > agents)
        first_s = time.monotonic()
        await apiserver.until(lambda: apiserver.requests["watch", "nodepolicies"] == 2 * agents)
        assert time.monotonic() - first_s > 0.3


async def test_pauses_are_random_and_grow_up_to_the_longest() -> None:
    """Full jitter: each is between nothing and its bound."""
    pauses, found = Backoff(1.0, 60.0, least=0.0), [list[float]() for _ in range(9)]
    for _ in range(300):
        for each in found:
            each.append(pauses.pause_s())
        pauses.reset()
    for bound_s, each in zip((1, 2, 4, 8, 16, 32, 60, 60, 60), found, strict=True):
        assert 0 <= min(each) < 0.1 * bound_s
        assert 0.9 * bound_s < max(each) <= bound_s


async def test_the_memory_stays_flat(apiserver: ApiServer, watched: Watched) -> None:
    """Over 2,000 changes of an object of 20 kB and 20 resets."""
    process = psutil.Process()
    sizes = []
    for turn in range(20):
        for number in range(100):
            spec = {"priority": turn * 100 + number, "policy": {"text": "x" * 20_000}}
            apiserver.objects.update(NODE_POLICIES, "a", "", lambda old, spec=spec: old | {"spec": spec})  # type: ignore[misc]
        wanted = turn * 100 + 99
        await until(watched, lambda wanted=wanted: watched.objects["a"]["spec"]["priority"] == wanted)  # type: ignore[misc]
        apiserver.objects.compact()
        apiserver.bookmark()
        apiserver.watches.reset()
        sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[5] < 16 << 20


async def test_what_follows_is_cancelled_at_once(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Also in a silence, and its connection is closed."""
    apiserver.faults.silence()
    async with following(Watched(api_client, NODE_POLICIES), known=False):
        await apiserver.until(lambda: apiserver.requests["list", "nodepolicies"] == 1)
    apiserver.faults.speak()
    async with following(Watched(api_client, NODE_POLICIES)):
        await apiserver.until(lambda: len(apiserver.watches) == 1)
    await apiserver.until(lambda: not len(apiserver.watches))


async def test_an_object_of_kilobytes_is_one_line(apiserver: ApiServer, watched: Watched) -> None:
    """Of which the parts come when they do."""
    text = "ü\\n\u2028" * 100_000
    line = json.dumps({"type": "ADDED", "object": policy("a") | {"text": text}}, ensure_ascii=False).encode()
    for first in range(0, len(line), 9_999):
        apiserver.watches.send("nodepolicies", line[first : first + 9_999])
    apiserver.watches.send("nodepolicies", b"\n")
    await until(watched, lambda: "text" in watched.objects["a"])
    assert watched.objects["a"]["text"] == text
