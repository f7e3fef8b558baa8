"""What can go wrong in a rollout, one thing at a time, in virtual time: three nodes, of which one tries at a time."""

import asyncio
from typing import Any

import pytest

from criproxy.agent.kubernetes.client import LEASES, NODE_PLACEMENTS, NODE_POLICIES, NODES
from criproxy.agent.objects.node_policy import Failure, NodePolicy
from criproxy.agent.rollout.slots import GENERATION, HASH, lease_names
from criproxy.errors import CriproxyError
from tests.agent.rollout.cluster_model import NAMESPACE, Cluster, Fuse, played, settled
from tests.agent.rollout.daemon_model import FILE, PROBLEM, configuration_of, policy_object

THIS, OTHER = "NodePolicy/p", "NodePolicy/q"


def good(**options: Any) -> dict[str, Any]:  # noqa: ANN401
    """A NodePolicy that every node keeps."""
    return policy_object(**{"policy": "balloons", "rollout_try": "1m", **options})


def bad(**options: Any) -> dict[str, Any]:  # noqa: ANN401
    """A NodePolicy that fails on every node."""
    return good(fails_on=["n0", "n1", "n2"], after_s=20, **options)


def sources(cluster: Cluster) -> set[str]:
    """What is in force."""
    return {each.now.source for each in cluster.daemons.values()}


def phases(cluster: Cluster) -> dict[str, str]:
    """By node, of its last agent."""
    states = {name: agents[-1].rollout.state for name, agents in cluster.agents.items()}
    return {name: state.phase if state else "" for name, state in states.items()}


def status(cluster: Cluster) -> tuple[bool, tuple[Failure, ...]]:
    """Whether the rollout has stopped, and the failures."""
    found = NodePolicy.read(cluster.policy()).status
    return found.stopped, tuple(found.failures)


async def in_a_try(cluster: Cluster) -> str:
    """Wait for a try; return the node."""
    await settled(cluster, lambda: bool(cluster.trying()))
    await asyncio.sleep(3)
    return next(iter(cluster.trying()))


async def all_kept(cluster: Cluster) -> None:
    """Wait until all nodes keep the NodePolicy, and have said so."""
    await settled(cluster, lambda: all(each.kept and each.now.source == THIS for each in cluster.daemons.values()))
    await settled(cluster, lambda: set(phases(cluster).values()) == {"Applied"} and not cluster.holders())
    await asyncio.sleep(5)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("requests", range(12))
@pytest.mark.parametrize("make", [good, bad])
@played
async def test_an_agent_is_killed_at_any_request(cluster: Cluster, make: Any, requests: int, before: bool) -> None:  # noqa: ANN401
    """A good policy reaches all nodes, and a bad one touches only one, wherever its agent is killed and restarted."""
    cluster.put_policy(make())
    await settled(cluster, lambda: bool(cluster.holders()))
    (first,) = cluster.holders()
    agent = cluster.agents[first][0]
    agent.network.fuse = Fuse(requests, before)
    await settled(cluster, lambda: not agent.alive or phases(cluster)[first] in ("Applied", "RolledBack"))
    await asyncio.sleep(7)
    agent.kill()
    cluster.agents[first] = []
    cluster.start_agent(first)
    if make is good:
        await all_kept(cluster)
    else:
        await settled(cluster, lambda: status(cluster)[0])
        await asyncio.sleep(1000)
        assert [name for name, each in cluster.daemons.items() if each.tried] == [first]
        assert sources(cluster) == {FILE}
        assert [each.node for each in status(cluster)[1]] == [first]


@played
async def test_an_agent_that_never_returns_counts_as_a_failure(cluster: Cluster) -> None:
    """A node that dies in its try stops the rollout: the next one says so before it takes the turn."""
    cluster.put_policy(bad())
    first = await in_a_try(cluster)
    cluster.agents[first][0].kill()
    cluster.agents.pop(first)
    await settled(cluster, lambda: status(cluster)[0])
    await asyncio.sleep(1000)
    assert [name for name, each in cluster.daemons.items() if each.tried] == [first]
    (failure,) = status(cluster)[1]
    assert (failure.node, "did not say" in failure.text) == (first, True)


@played
async def test_a_node_that_was_removed_is_no_failure(cluster: Cluster) -> None:
    """A node that an autoscaler takes away in its try does not stop the rollout."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    cluster.agents.pop(first)[0].kill()
    del cluster.daemons[first]
    cluster.objects.delete(NODES, first)
    await all_kept(cluster)
    assert status(cluster) == (False, ())


@played
async def test_an_agent_that_dies_after_keeping_is_no_failure(cluster: Cluster) -> None:
    """The NodePlacement says that the node has the policy: its turn expires, and the others go on."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    agent = cluster.agents[first][0]
    agent.network.forbidden = {("update", "leases")}
    await settled(cluster, lambda: cluster.daemons[first].kept)
    await asyncio.sleep(5)
    agent.kill()
    cluster.agents.pop(first)
    others = [each for name, each in cluster.daemons.items() if name != first]
    await settled(cluster, lambda: all(each.kept for each in others))
    assert status(cluster) == (False, ())


@played
async def test_an_agent_that_remembers_nothing_of_its_try_does_not_give_up_the_turn(cluster: Cluster) -> None:
    """It could write neither its NodePlacement nor the failure, and is ill after its restart: others must not begin."""
    for (each,) in cluster.agents.values():
        each.network.forbidden = {("patch", "nodeplacements"), ("create", "nodeplacements")}
    cluster.put_policy(bad())
    first = await in_a_try(cluster)
    agent, daemon = cluster.agents[first][0], cluster.daemons[first]
    agent.network.forbidden |= {("patch", "nodepolicies")}
    await settled(cluster, lambda: not daemon.trial)
    agent.kill()
    cluster.agents[first] = []
    daemon.other_problems = ["the disk is broken"]
    cluster.start_agent(first)
    await settled(cluster, lambda: status(cluster)[0])
    assert [name for name, each in cluster.daemons.items() if each.tried] == [first]


@pytest.mark.parametrize("ends", [False, True], ids=["in its try", "after its try"])
@pytest.mark.parametrize("changed", ["refused", "ill"])
@played
async def test_an_agent_that_restarted_gives_up_the_turn_of_a_former_spec(
    cluster: Cluster, changed: str, *, ends: bool
) -> None:
    """Its node refuses the new spec, or cannot try it now: the others need not wait until the old turn expires."""
    cluster.put_policy(good(rollout_try="24h"))
    first = await in_a_try(cluster)
    daemon = cluster.daemons[first]
    cluster.agents[first].pop().kill()
    if changed == "ill":
        daemon.other_problems = ["the disk is broken"]
    else:
        refusal = {"accepted": False, "mistakes": ["no such card here"], "same": False}
        daemon.answers = {**daemon.answers, "reload-dry-run": lambda _: refusal}
    if ends:
        daemon.answer("reload", {})
        cluster.put_policy(good(number=2))
    cluster.start_agent(first)
    await asyncio.sleep(5)
    cluster.put_policy(good(number=2))
    others = [each for name, each in cluster.daemons.items() if name != first]
    hash_ = configuration_of(good(number=2)).hash
    await settled(cluster, lambda: all(each.kept and each.now.hash == hash_ for each in others), limit_s=600)
    assert phases(cluster)[first] == ("Refused" if changed == "refused" else "Waiting")
    await settled(cluster, lambda: not cluster.holders())
    asked = cluster.requests
    await asyncio.sleep(300)
    assert cluster.requests == asked


@played
async def test_an_agent_that_remembers_only_a_former_try_does_not_give_up_the_turn(cluster: Cluster) -> None:
    """Its NodePlacement is of the spec before: how the try of the present one ended is unknown, while it is ill too."""
    cluster.put_policy(good(rollout_try="1h"))
    first = await in_a_try(cluster)
    agent, daemon = cluster.agents[first].pop(), cluster.daemons[first]
    agent.network.forbidden = {("patch", "nodeplacements"), ("patch", "nodepolicies")}
    new = bad(number=2)
    cluster.put_policy(new)
    await settled(cluster, lambda: len(daemon.tried) == 2)
    await settled(cluster, lambda: not daemon.trial)
    agent.kill()
    daemon.other_problems = ["the disk is broken"]
    cluster.start_agent(first)
    await settled(cluster, lambda: status(cluster)[0])
    hash_ = configuration_of(new).hash
    assert [name for name, each in cluster.daemons.items() if hash_ in each.tried] == [first]


@played
async def test_the_api_server_is_gone_during_a_try(cluster: Cluster) -> None:
    """The node keeps what was well all the time; nobody else begins; when the server is back, all go on."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    for agents in cluster.agents.values():
        agents[0].network.api_down = True
    cluster.notify()
    await asyncio.sleep(3600)
    assert cluster.daemons[first].kept
    assert sum(bool(each.tried) for each in cluster.daemons.values()) == 1
    assert cluster.holders() == {first}
    for agents in cluster.agents.values():
        agents[0].network.api_down = False
    cluster.notify()
    await all_kept(cluster)
    assert status(cluster) == (False, ())


@played
async def test_a_failure_that_cannot_be_written_keeps_the_turn(cluster: Cluster) -> None:
    """While only the node that failed cannot reach the server, no other one tries: its turn does not end silently."""
    cluster.put_policy(bad())
    first = await in_a_try(cluster)
    agent = cluster.agents[first][0]
    agent.network.api_down = True
    cluster.notify()
    await asyncio.sleep(1000)
    assert cluster.daemons[first].now.source == FILE
    assert [name for name, each in cluster.daemons.items() if each.tried] == [first]
    assert agent.said
    agent.network.api_down = False
    cluster.notify()
    await settled(cluster, lambda: status(cluster)[0])


@pytest.mark.parametrize(
    "denied",
    [("list", "nodes"), ("patch", "nodepolicies"), ("create", "leases"), ("get", "leases"), ("get", "nodepolicies")],
    ids="-".join,
)
@played
async def test_rights_are_missing(cluster: Cluster, denied: tuple[str, str]) -> None:
    """Nothing is tried; the node says which right is missing; with it, the rollout goes on by itself."""
    agents = [each for agents in cluster.agents.values() for each in agents]
    for each in agents:
        each.network.forbidden = {denied}
    cluster.put_policy(good())
    await asyncio.sleep(600)
    assert sources(cluster) == {FILE}
    assert any("forbidden" in each.said for each in agents)
    for each in agents:
        each.network.forbidden = set()
    await all_kept(cluster)
    assert {each.said for each in agents} == {""}


@played
async def test_a_wiped_api_server_changes_nothing(cluster: Cluster) -> None:
    """All objects are gone; agents restart; new Node objects come: the nodes keep what they have, and say why."""
    cluster.put_policy(good())
    await all_kept(cluster)
    cluster.objects.wipe()
    await asyncio.sleep(600)
    assert sources(cluster) == {THIS}
    cluster.register_nodes()
    await asyncio.sleep(600)
    assert sources(cluster) == {THIS}
    for name in cluster.daemons:
        cluster.agents[name][0].kill()
        cluster.agents[name] = []
        cluster.start_agent(name)
    await asyncio.sleep(600)
    assert sources(cluster) == {THIS}
    assert all("criproxy reload" in each.said for (each,) in cluster.agents.values())
    cluster.put_policy(good())
    await settled(cluster, lambda: set(phases(cluster).values()) == {"Applied"})
    assert all(len(each.tried) == 1 for each in cluster.daemons.values())


@pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "agent away meanwhile"])
@played
async def test_a_deleted_policy_gives_way_to_the_file(cluster: Cluster, restarts: bool) -> None:
    """What the user deleted is not wanted any more, also if the agent was away then."""
    cluster.put_policy(good())
    await all_kept(cluster)
    if restarts:
        for agents in cluster.agents.values():
            agents.pop().kill()
    cluster.delete_policy()
    await asyncio.sleep(10)
    for name in cluster.daemons if restarts else ():
        cluster.start_agent(name)
    await settled(cluster, lambda: sources(cluster) == {FILE})
    await settled(cluster, lambda: set(phases(cluster).values()) == {""})
    file = next(iter(cluster.daemons.values())).file.hash
    assert all(each.in_force.count(file) == 1 for each in cluster.daemons.values())  # it is asked for once


@pytest.mark.parametrize("in_its_try", [False, True])
@played
async def test_a_deleted_policy_stays_while_the_file_cannot_be_used(cluster: Cluster, in_its_try: bool) -> None:
    """The node says so, also after a restart of the agent, and returns to it once it can be."""
    why = "/etc/criproxy/policy.yaml:1:10: a bracket is not closed"

    def fails(_: Any) -> None:  # noqa: ANN401
        raise CriproxyError(why)

    cluster.put_policy(good())
    daemon = cluster.daemons[await in_a_try(cluster)]
    if not in_its_try:
        await all_kept(cluster)
    answers, daemon.answers = daemon.answers, {**daemon.answers, "reload": fails}
    cluster.delete_policy()
    await asyncio.sleep(5)
    state = cluster.state(daemon.name)
    assert state is not None
    assert (daemon.now.source, state.phase, state.message) == (THIS, "LastGood", why)
    cluster.agents[daemon.name].pop().kill()
    cluster.start_agent(daemon.name)
    await asyncio.sleep(5)
    daemon.answers = answers
    await settled(cluster, lambda: sources(cluster) == {FILE})
    await settled(cluster, lambda: set(phases(cluster).values()) == {""})


@played
async def test_a_renamed_policy_that_is_deleted_gives_way_to_the_file(cluster: Cluster) -> None:
    """A NodePolicy of another name said the same, so that nothing was tried; the agent has restarted since then."""
    cluster.put_policy(good())
    await all_kept(cluster)
    cluster.put_policy(good(name="q"))
    cluster.delete_policy()
    await asyncio.sleep(10)
    assert sources(cluster) == {THIS}
    for name in cluster.daemons:
        cluster.agents[name].pop().kill()
        cluster.start_agent(name)
    await asyncio.sleep(10)
    cluster.delete_policy("q")
    await settled(cluster, lambda: sources(cluster) == {FILE})


@played
async def test_a_policy_is_deleted_during_a_try(cluster: Cluster) -> None:
    """The node returns to its file at once."""
    cluster.put_policy(good())
    await in_a_try(cluster)
    cluster.delete_policy()
    await asyncio.sleep(10)
    assert sources(cluster) == {FILE}
    assert not cluster.trying()


@played
async def test_the_policy_file_changes_on_a_node(cluster: Cluster) -> None:
    """It takes effect, as on every node; then the NodePolicy is tried and kept again."""
    cluster.put_policy(good())
    await all_kept(cluster)
    daemon = cluster.daemons["n1"]
    daemon.change_file('{"policy": "static", "changed": true}')
    assert daemon.now.source == FILE
    await settled(cluster, lambda: daemon.trial is not None)
    await all_kept(cluster)


@played
async def test_a_node_knows_why_its_try_was_ended(cluster: Cluster) -> None:
    """For the Event about it; nothing is said of other policies, and on other nodes."""
    cluster.put_policy(bad())
    await settled(cluster, lambda: status(cluster)[0])
    (failure,) = status(cluster)[1]
    for name, (each,) in cluster.agents.items():
        assert each.rollout.why_back(failure.hash) == (failure.text if name == failure.node else "")
        assert not each.rollout.why_back("0123456789ab")


@played
async def test_somebody_ends_a_try_on_the_node(cluster: Cluster) -> None:
    """He had a reason: it counts as a failure."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    cluster.daemons[first].answer("reload", {})
    await settled(cluster, lambda: status(cluster)[0])
    assert phases(cluster)[first] == "RolledBack"
    assert "somebody ended the try" in status(cluster)[1][0].text


@played
async def test_a_policy_is_changed_during_a_try(cluster: Cluster) -> None:
    """The try ends, which is no failure; the new one is rolled out, still by one node at a time."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    new = good(number=2)
    cluster.put_policy(new)
    await asyncio.sleep(10)
    assert cluster.daemons[first].now.hash != configuration_of(good()).hash
    await settled(cluster, lambda: {each.now.hash for each in cluster.daemons.values()} == {configuration_of(new).hash})
    await all_kept(cluster)
    assert status(cluster) == (False, ())


@played
async def test_a_daemon_restarts_during_a_try(cluster: Cluster) -> None:
    """The try goes on, and the policy is kept."""
    cluster.put_policy(good())
    daemon = cluster.daemons[await in_a_try(cluster)]
    daemon.up = False
    daemon.notify()
    await asyncio.sleep(20)
    daemon.up = True
    daemon.restart()
    await all_kept(cluster)
    assert len(daemon.tried) == 1


@played
async def test_a_daemon_is_down_until_its_try_is_over(cluster: Cluster) -> None:
    """Nobody kept the policy: that counts as a failure, since it may be the reason."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    daemon = cluster.daemons[first]
    daemon.up = False
    daemon.notify()
    await asyncio.sleep(120)
    daemon.up = True
    daemon.restart()
    await settled(cluster, lambda: status(cluster)[0])
    assert [each.node for each in status(cluster)[1]] == [first]
    assert phases(cluster)[first] == "RolledBack"


@pytest.mark.parametrize("make", [good, bad])
@played
async def test_two_agents_of_one_node(cluster: Cluster, make: Any) -> None:  # noqa: ANN401
    """They do the same, and what one has done already is well."""
    for name in cluster.daemons:
        cluster.start_agent(name)
    cluster.put_policy(make())
    if make is good:
        await all_kept(cluster)
    else:
        await settled(cluster, lambda: status(cluster)[0])
        await asyncio.sleep(600)
        assert sources(cluster) == {FILE}
        assert sum(bool(each.tried) for each in cluster.daemons.values()) == 1
        assert len(status(cluster)[1]) == 1


@played
async def test_a_policy_that_the_nodes_refuse(cluster: Cluster) -> None:
    """It is never tried; each node says why, and is not well because of it; a corrected one is rolled out."""
    cluster.put_policy(good(refused="policy: must be one of …"))
    await asyncio.sleep(30)
    assert set(phases(cluster).values()) == {"Refused"}
    for (each,) in cluster.agents.values():
        assert each.troubles.sentences(wrong=True)
        assert "policy: must be one of …" in each.said
    assert not any(each.tried for each in cluster.daemons.values())
    cluster.put_policy(good())
    await all_kept(cluster)
    assert {each.said for (each,) in cluster.agents.values()} == {""}


@played
async def test_a_policy_that_cannot_be_checked_is_not_applied(cluster: Cluster) -> None:
    """The daemon gives no answer about it: the node says so, instead of what it said about the one before."""

    def fails(_: Any) -> None:  # noqa: ANN401
        raise CriproxyError("the daemon did not answer within 60 s")

    cluster.put_policy(good())
    await all_kept(cluster)
    for each in cluster.daemons.values():
        each.answers = {**each.answers, "reload-dry-run": fails}
    cluster.put_policy(good(number=2))
    await settled(cluster, lambda: set(phases(cluster).values()) == {"Waiting"})
    state = cluster.agents["n0"][0].rollout.state
    assert state is not None
    assert "did not answer within 60 s" in state.message


@played
async def test_what_is_in_force_already_needs_no_try(cluster: Cluster) -> None:
    """The same text, or an equivalent one."""
    cluster.put_policy(policy_object(policy="static"))
    await asyncio.sleep(20)
    assert set(phases(cluster).values()) == {"Applied"}
    cluster.put_policy(policy_object(policy="static", same=True))
    await asyncio.sleep(20)
    assert set(phases(cluster).values()) == {"Applied"}
    assert not any(each.tried for each in cluster.daemons.values())
    assert sources(cluster) == {FILE}


@played
async def test_a_policy_that_failed_before_is_tried_again_when_the_object_says_so(cluster: Cluster) -> None:
    """Failures are of a generation and a hash: changed back to a former content, it is tried again."""
    cluster.put_policy(bad())
    await settled(cluster, lambda: status(cluster)[0])
    cluster.put_policy(good())
    await all_kept(cluster)
    assert not status(cluster)[0]
    cluster.put_policy(bad())
    await settled(cluster, lambda: status(cluster)[0])
    await asyncio.sleep(600)
    assert [each.generation for each in status(cluster)[1]] == [1, 3]
    assert sources(cluster) == {THIS}
    assert {each.now.hash for each in cluster.daemons.values()} == {configuration_of(good()).hash}


@pytest.mark.parametrize(("attribute", "value"), [("released", "asked"), ("bypass", "automatic")])
@played
async def test_a_node_is_taken_out_of_use_while_it_tries_or_waits(cluster: Cluster, attribute: str, value: str) -> None:
    """In a try, that is a failure; before one, the node lets others go first."""
    out = cluster.daemons["n0"]
    before = getattr(out, attribute)
    setattr(out, attribute, value)
    out.notify()
    await asyncio.sleep(2)  # what its agent knows of it is up to a second old
    cluster.put_policy(good())
    others = [cluster.daemons["n1"], cluster.daemons["n2"]]
    await settled(cluster, lambda: all(each.kept for each in others))
    assert (phases(cluster)["n0"], out.tried) == ("Waiting", [])
    setattr(out, attribute, before)
    out.notify()
    await settled(cluster, lambda: cluster.trying() == {"n0"})
    await asyncio.sleep(3)
    setattr(out, attribute, value)
    out.notify()
    await settled(cluster, lambda: status(cluster)[0])
    assert (phases(cluster)["n0"], out.now.source) == ("RolledBack", FILE)


@played
async def test_a_problem_before_the_try_makes_a_node_wait(cluster: Cluster) -> None:
    """A node that is not well does not begin, and does not hold up the others."""
    ill = cluster.daemons["n0"]
    ill.other_problems = ["the disk is broken"]
    ill.notify()
    await asyncio.sleep(2)  # until its agent knows
    cluster.put_policy(good())
    await settled(cluster, lambda: all(each.kept for name, each in cluster.daemons.items() if name != "n0"))
    assert (phases(cluster)["n0"], ill.tried) == ("Waiting", [])
    ill.other_problems = []
    ill.notify()
    await all_kept(cluster)


@played
async def test_a_short_problem_during_a_try_is_none(cluster: Cluster) -> None:
    """A kubelet that restarts does not end a try; what lasts does."""
    cluster.put_policy(good())
    daemon = cluster.daemons[await in_a_try(cluster)]
    daemon.other_problems = ["the kubelet does not call"]
    daemon.notify()
    await asyncio.sleep(5)
    daemon.other_problems = []
    daemon.notify()
    await all_kept(cluster)


@pytest.mark.parametrize("kind", ["over-quota", "undersized"])
@played
async def test_a_tenant_stops_no_rollout(cluster: Cluster, kind: str) -> None:
    """What a pod brings about under any policy ends no try, and keeps no node from one."""
    for daemon in cluster.daemons.values():
        daemon.other_problems, daemon.kinds = ["evil/pod/main wants more"], {"evil/pod/main wants more": kind}
        daemon.notify()
    await asyncio.sleep(2)  # until the agents know
    cluster.put_policy(good())
    await all_kept(cluster)
    assert status(cluster) == (False, ())


@pytest.mark.parametrize("heals", [True, False])
@played
async def test_a_disk_is_full_when_a_policy_is_to_be_kept(cluster: Cluster, heals: bool) -> None:
    """Keeping is repeated until the try ends; then it is a failure with that reason."""
    cluster.put_policy(good())
    first = await in_a_try(cluster)
    daemon = cluster.daemons[first]
    daemon.disk_is_full = True
    await asyncio.sleep(65)
    assert daemon.trial is not None
    if heals:
        daemon.disk_is_full = False
        await all_kept(cluster)
    else:
        await settled(cluster, lambda: status(cluster)[0])
        assert "No space left" in status(cluster)[1][0].text
        assert daemon.now.source == FILE


@played
async def test_a_disk_is_full_when_a_try_begins(cluster: Cluster) -> None:
    """The others go on; the node says why, and tries later."""
    full = cluster.daemons["n0"]
    full.disk_is_full = True
    cluster.put_policy(good())
    await settled(cluster, lambda: all(each.kept for name, each in cluster.daemons.items() if name != "n0"))
    await settled(cluster, lambda: phases(cluster)["n0"] == "Refused")
    assert "No space left" in cluster.agents["n0"][0].said
    full.disk_is_full = False
    await all_kept(cluster)


@played
async def test_clocks_of_nodes_do_not_matter(cluster: Cluster) -> None:
    """A Lease whose times are of another century is respected for as long as it lasts, from when it was first seen."""
    cluster.put_policy(good())
    await settled(cluster, lambda: NodePolicy.read(cluster.policy()).status.rollout is not None)
    said = {"renewTime": "1970-01-01T00:00:00.000000Z", "acquireTime": "2999-01-01T00:00:00.000000Z"}
    spec = {"holderIdentity": "elsewhere", "leaseDurationSeconds": 500, **said}
    (name,) = lease_names(NodePolicy.read(cluster.policy()), "n0")
    for lease in cluster.objects.all(LEASES):
        cluster.objects.delete(LEASES, lease["metadata"]["name"], NAMESPACE)
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": {GENERATION: "0", HASH: "another"}}
    cluster.objects.create(LEASES, {"metadata": metadata, "spec": spec})
    await asyncio.sleep(400)
    assert sum(bool(each.tried) for each in cluster.daemons.values()) <= 1  # one may have been faster
    await all_kept(cluster)


@played
async def test_a_policy_of_higher_priority_replaces_another_one(cluster: Cluster) -> None:
    """It is rolled out like a change; when it is deleted, the other one is."""
    cluster.put_policy(good())
    await all_kept(cluster)
    cluster.put_policy(good(name="q", priority=5, number=7))
    await settled(cluster, lambda: sources(cluster) == {OTHER} and all(e.kept for e in cluster.daemons.values()))
    cluster.delete_policy("q")
    await all_kept(cluster)


@pytest.mark.parametrize("when", ["waiting", "trying", "kept"])
@played
async def test_a_policy_with_a_mistake_gives_way_to_no_other_one(cluster: Cluster, when: str) -> None:
    """What the API server does not refuse may still be wrong: nodes stay as they are, and go on when it is mended."""
    cluster.put_policy(good(name="q", number=7))
    await settled(cluster, lambda: sources(cluster) == {OTHER} and all(e.kept for e in cluster.daemons.values()))
    first = good(priority=5)
    cluster.put_policy(first)
    await (all_kept(cluster) if when == "kept" else in_a_try(cluster))
    if when == "waiting":
        await settled(cluster, lambda: not cluster.trying())
    before = sources(cluster)
    cluster.put_policy(good(priority=5, rollout_try="200h"))
    await asyncio.sleep(1000)
    assert sources(cluster) == before
    states = [agents[-1].rollout.state for agents in cluster.agents.values()]
    assert all("200h" in (state.message if state else "") for state in states)
    for each in (agents[-1] for agents in cluster.agents.values()):
        (wrong,) = each.troubles.sentences(wrong=True)
        assert "200h" in wrong
        assert "200h" not in "".join(each.troubles.sentences(wrong=False))
    cluster.put_policy(first)
    await all_kept(cluster)
    assert {agents[-1].said for agents in cluster.agents.values()} == {""}


@played
async def test_a_node_that_is_not_selected_any_more_returns_to_its_file(cluster: Cluster) -> None:
    """A change of its labels is enough."""
    cluster.put_policy(good(selector={"matchLabels": {"pool": "gpu"}}))
    await all_kept(cluster)
    cluster.objects.update(NODES, "n1", "", lambda node: {**node, "metadata": {**node["metadata"], "labels": {}}})
    await settled(cluster, lambda: cluster.daemons["n1"].now.source == FILE)
    await asyncio.sleep(30)
    assert sources(cluster) == {FILE, THIS}


@played
async def test_what_a_rollout_costs_the_api_server(cluster: Cluster) -> None:
    """Nodes that wait ask rarely and write nothing, and at rest nobody asks."""
    cluster.put_policy(good(rollout_try="10m"))
    await asyncio.sleep(60)
    before = cluster.requests
    await asyncio.sleep(300)
    assert cluster.requests - before <= 2 * 300 / 2.5  # two nodes wait, and look every 2.5 to 7.5 s
    assert cluster.objects.all(NODE_PLACEMENTS)
    await all_kept(cluster)
    before, version = cluster.requests, cluster.objects.get(NODE_POLICIES, "p")["metadata"]["resourceVersion"]
    await asyncio.sleep(3600)
    assert cluster.requests == before
    assert cluster.objects.get(NODE_POLICIES, "p")["metadata"]["resourceVersion"] == version


@played
async def test_the_reason_of_a_failure_is_the_daemons(cluster: Cluster) -> None:
    """What is written is what `criproxy status --check` says on the node."""
    cluster.put_policy(bad())
    await settled(cluster, lambda: status(cluster)[0])
    (failure,) = status(cluster)[1]
    policy = NodePolicy.read(cluster.policy())
    assert (failure.text, failure.generation, failure.hash) == (PROBLEM, 1, policy.hash)
    assert policy.status.message.endswith(f"{failure.node}: {PROBLEM}")
