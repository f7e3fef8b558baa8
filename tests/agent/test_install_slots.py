"""First installations wait for each other: never more at a time than allowed, whatever happens to the API server."""

import asyncio
from pathlib import Path

import pytest

from criproxy.agent.install_slots import InstallSlots, give_up_when_well
from criproxy.agent.kubernetes.client import LEASES, PODS, ApiClient
from criproxy.agent.node_view import NodeView
from criproxy.agent.troubles import Troubles
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from lab.emulator.runtime import EmbeddedRuntime
from tests.agent.parts import kubeconfig, program, until_said
from tests.daemons import Serve
from tests.node.world import RecordingLog

NAMESPACE = "criproxy"
PAUSE_S = 0.01


def slots(
    apiserver: ApiServer, client: ApiClient, name: str, *, exists: bool = True, log: RecordingLog | None = None
) -> InstallSlots:
    """Return what the pod *name* has, on a node of the same name."""
    if exists:
        apiserver.objects.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}}, "test")
    return InstallSlots(client, NAMESPACE, name, f"node-of-{name}", log or RecordingLog(), PAUSE_S)


def holders(apiserver: ApiServer) -> list[str]:
    """Return who has the Leases."""
    return sorted(each["spec"]["holderIdentity"] for each in apiserver.objects.all(LEASES))


async def test_one_after_the_other(apiserver: ApiServer, api_client: ApiClient) -> None:
    """The second pod waits until the first one gives its Lease up, and its log says for which node, once."""
    log = RecordingLog()
    first, second = slots(apiserver, api_client, "one"), slots(apiserver, api_client, "two", log=log)
    await first.take(1)
    waiting = asyncio.create_task(second.take(1))
    looks = apiserver.requests["get", "leases"] + 5
    await apiserver.until(lambda: apiserver.requests["get", "leases"] > looks)
    assert (waiting.done(), holders(apiserver)) == (False, ["one"])
    await first.give_up()
    await waiting

    assert holders(apiserver) == ["two"]
    told = [keys["waits_for"] for _, keys in log.lines if "waits_for" in keys]
    assert told == [
        "criproxy on node-of-one (Lease criproxy-install-0, pod one); deleting a Lease lets one more node begin"
    ]


@pytest.mark.parametrize("count", [1, 3])
async def test_never_more_than_allowed(apiserver: ApiServer, api_client: ApiClient, count: int) -> None:
    """Of many that start together, each gets its turn, as many as allowed at the same time, and never more."""
    installing, most, full = 0, 0, asyncio.Event()

    async def installs(each: InstallSlots) -> None:
        nonlocal installing, most
        await each.take(count)
        installing += 1
        most = max(most, installing)
        if installing == count:
            full.set()
        await full.wait()
        installing -= 1
        await each.give_up()

    await asyncio.gather(*(installs(slots(apiserver, api_client, f"pod-{number}")) for number in range(12)))

    assert (most, holders(apiserver)) == (count, [])


async def test_a_pod_that_starts_again_goes_on(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Its container was killed between the Lease and the installation: it has the Lease still."""
    await slots(apiserver, api_client, "one").take(1)
    await slots(apiserver, api_client, "one", exists=False).take(1)

    assert holders(apiserver) == ["one"]


async def test_a_pod_that_is_gone_holds_nothing(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Its node was removed in the middle: the Lease is free without anybody's help, and without a clock."""
    await slots(apiserver, api_client, "gone", exists=False).take(1)
    await slots(apiserver, api_client, "two").take(1)

    assert holders(apiserver) == ["two"]


async def test_faults_of_the_api_server_only_prolong_the_wait(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Rights that are missing, and pods that cannot be read, which therefore count as running."""
    first, second = (slots(apiserver, api_client, name) for name in ("one", "two"))
    await first.take(1)
    for which in (("get", "leases"), ("get", "pods")):
        apiserver.faults.refuses[which] = Refuses(403)
        waiting = asyncio.create_task(second.take(1))
        tries = apiserver.requests[which] + 3
        await apiserver.until(lambda which=which, tries=tries: apiserver.requests[which] > tries)  # type: ignore[misc]
        assert (waiting.done(), holders(apiserver)) == (False, ["one"])
        waiting.cancel()
        apiserver.faults.refuses.clear()
    await first.give_up()
    await second.take(1)

    assert holders(apiserver) == ["two"]


async def command(apiserver: ApiServer, directory: Path) -> int:
    """Run the command of the pod's first container; return its exit status."""
    kubeconfig(directory, apiserver.url)
    async with program(directory, "--wait-to-install=1", f"--namespace={NAMESPACE}", POD_NAME="one") as process:
        async with asyncio.timeout(60):
            return await process.wait()


async def test_the_command_ends_with_the_lease(apiserver: ApiServer, tmp_path: Path) -> None:
    """Without a daemon on the node, the pod has a Lease when the command ends."""
    assert (await command(apiserver, tmp_path), holders(apiserver)) == (0, ["one"])


async def test_nodes_with_criproxy_do_not_wait(apiserver: ApiServer, tmp_path: Path) -> None:
    """After a reboot of the whole cluster, all daemons answer, and all pods go on at once, without any request."""
    async with EmbeddedRuntime(tmp_path / "runtime.sock"), Serve(tmp_path, policy="policy: none\n"):
        assert await command(apiserver, tmp_path) == 0

    assert (holders(apiserver), apiserver.requests.total()) == ([], 0)


async def test_the_agent_gives_the_lease_up_when_all_is_well(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Not before: a node with a problem keeps the others waiting; a server that refuses is asked again, and told of.

    What a tenant's pod brings about is no such problem.
    """
    own = slots(apiserver, api_client, "one")
    await own.take(1)
    troubles = Troubles(RecordingLog())
    view = NodeView("/nowhere", "node-of-one", troubles)
    keeper = asyncio.create_task(give_up_when_well(own, view, troubles, PAUSE_S))
    for last in ({"ready": "no kubelet", "problems": []}, {"ready": "", "problems": ["a fight over a cpuset"]}):
        view.last, view.problem = last, ""
        view.notify()
        await asyncio.sleep(0)
    assert apiserver.requests["list", "leases"] == 0

    apiserver.faults.refuses["delete", "leases"] = Refuses(403)
    found = [{"kind": kind, "text": f"a pod: {kind}"} for kind in ("undersized", "over-quota")]
    view.last = {"ready": "", "problems": [each["text"] for each in found], "found": found}
    view.notify()
    await apiserver.until(lambda: apiserver.requests["delete", "leases"] > 1)
    assert "other nodes may wait" in troubles.sentences()[0]
    apiserver.faults.refuses.clear()
    await apiserver.until(lambda: not holders(apiserver))
    await until_said(troubles)

    assert not keeper.done()
    keeper.cancel()


async def test_only_its_own_lease_is_given_up(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Neither those of other pods, nor those of rollouts."""
    await slots(apiserver, api_client, "one").take(2)
    await slots(apiserver, api_client, "two").take(2)
    rollout = {"metadata": {"name": "criproxy-rollout-a-0", "namespace": NAMESPACE}, "spec": {"holderIdentity": "one"}}
    await api_client.create(LEASES, rollout)
    await slots(apiserver, api_client, "one", exists=False).give_up()

    assert holders(apiserver) == ["one", "two"]
