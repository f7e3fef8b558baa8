"""Whatever happens in whatever order: a rollout harms no node, touches no more of them than allowed, and comes to rest.

Agents are killed at any request, API servers and daemons go and come, objects change and are deleted, nodes are
released, and everything at once; then all is well again, and must become as the objects say.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from criproxy.agent.objects.node_policy import NodePolicy, text_of
from criproxy.agent.rollout.choose import why_stopped
from criproxy.model.text.sources import hash_of
from lab.lives.virtual import VirtualLoop
from tests.agent.rollout.cluster_model import Cluster, Fuse
from tests.agent.rollout.daemon_model import policy_object

NODE_COUNT = 4
AT_ONCE = 2
NAMES = st.sampled_from([f"n{number}" for number in range(NODE_COUNT)])
KINDS = ("good", "bad", "bad-on-one", "refused", "same")
DENIED = (
    ("update", "leases"),
    ("create", "leases"),
    ("patch", "nodepolicies"),
    ("list", "nodes"),
    ("get", "nodepolicies"),
)


class Life(RuleBasedStateMachine):
    """A cluster whose rollouts are disturbed."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.numbers = count()
        self.kinds: dict[str, tuple[str, int]] = {}
        """By hash: what is wrong with it, and how many failures are allowed."""
        self.loose = False
        """Whether turns were deleted while nodes tried something."""
        self.kept_at_wipe: dict[str, str] = {}
        self.cluster: Cluster = self.do(Cluster, NODE_COUNT)
        self.pass_time(5.0)

    def run(self, work: Any) -> Any:  # noqa: ANN401
        """Run in virtual time."""
        return self.runner.run(work)

    def do(self, act: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call *act* in the loop."""

        async def work() -> Any:  # noqa: ANN401
            return act(*arguments)

        return self.run(work())

    @rule(seconds=st.sampled_from([0.02, 0.5, 3.0, 12.0, 40.0, 120.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass, and look at each half second."""
        while seconds > 0:
            self.run(asyncio.sleep(min(seconds, 0.5)))
            seconds -= 0.5
            self.look()

    def look(self) -> None:
        """What must hold at every moment."""
        trying = self.cluster.trying()
        self.loose = self.loose and bool(trying)
        assert self.loose or len(trying) <= AT_ONCE, trying
        touched: dict[str, set[str]] = {}
        for name, daemon in self.cluster.daemons.items():
            for each in daemon.tried:
                touched.setdefault(each, set()).add(name)
            kind, _ = self.kinds.get(daemon.now.hash, ("", 0))
            assert kind != "refused"
            assert not (daemon.kept and (kind == "bad" or (kind == "bad-on-one" and name == "n1")))
            if name in self.kept_at_wipe:
                assert daemon.now.hash == self.kept_at_wipe[name], "a wiped API server has changed a placement"
        for hash_, nodes in touched.items():
            kind, allowed = self.kinds[hash_]
            assert kind != "bad" or len(nodes) <= AT_ONCE + allowed - 1, nodes

    @rule(kind=st.sampled_from(KINDS), allowed=st.integers(1, 2))
    def put_policy(self, kind: str, allowed: int) -> None:
        """Write a NodePolicy, another one each time."""
        content: dict[str, Any] = {"number": next(self.numbers)}
        match kind:
            case "bad":
                content |= {"fails_on": list(self.cluster.daemons), "after_s": 4}
            case "bad-on-one":
                content |= {"fails_on": ["n1"], "after_s": 4}
            case "refused":
                content |= {"refused": "unknown policy"}
            case "same":
                content |= {"same": True}
        obj = policy_object(rollout_try="30s", rollout_atOnce=AT_ONCE, rollout_stopAfterFailures=allowed, **content)
        self.kinds[hash_of(text_of(content))] = (kind, allowed)
        self.kept_at_wipe = {}
        self.do(self.cluster.put_policy, obj)

    @precondition(lambda self: self.cluster.has_policy)
    @rule()
    def delete_policy(self) -> None:
        """Delete it, and with it the turns."""
        self.loose = bool(self.cluster.trying())
        self.do(self.cluster.delete_policy)

    @precondition(lambda self: self.cluster.has_policy)
    @rule()
    def wipe(self) -> None:
        """The API server loses all objects."""
        self.loose = bool(self.cluster.trying())
        self.kept_at_wipe = {name: each.now.hash for name, each in self.cluster.daemons.items() if each.kept}
        self.do(self.cluster.objects.wipe)

    @rule()
    def register_nodes(self) -> None:
        """What makes Node objects makes those that are missing."""
        self.do(self.cluster.register_nodes)

    @rule(name=NAMES, requests=st.integers(0, 9), before=st.booleans())
    def kill_at_a_request(self, name: str, requests: int, before: bool) -> None:
        """Kill an agent soon."""
        for each in self.cluster.agents[name]:
            each.network.fuse = Fuse(requests, before)

    @rule(name=NAMES)
    def kill_now(self, name: str) -> None:
        """Kill the agents of a node."""
        for each in self.cluster.agents[name]:
            self.do(each.kill)
        self.run(asyncio.sleep(0))

    @rule(name=NAMES)
    def start_agent(self, name: str) -> None:
        """Start one, perhaps a second one."""
        alive = [each for each in self.cluster.agents[name] if each.alive]
        self.cluster.agents[name] = alive
        if len(alive) < 2:
            self.do(self.cluster.start_agent, name)

    @rule(names=st.sets(NAMES, min_size=1), down=st.booleans(), lost=st.booleans())
    def reach_api(self, names: set[str], down: bool, lost: bool) -> None:
        """Some agents lose the API server, or its answers; or get it back."""
        for name in names:
            for each in self.cluster.agents[name]:
                each.network.api_down, each.network.answers_lost = down, lost
        self.cluster.notify()

    @rule(name=NAMES, denied=st.sets(st.sampled_from(DENIED), max_size=2))
    def deny(self, name: str, denied: set[tuple[str, str]]) -> None:
        """Take away, or give, rights."""
        for each in self.cluster.agents[name]:
            each.network.forbidden = denied

    @rule(name=NAMES, up=st.booleans())
    def restart_daemon(self, name: str, up: bool) -> None:
        """Restart a daemon, or stop it."""
        self.cluster.daemons[name].up = up
        self.do(self.cluster.daemons[name].restart)

    @rule(name=NAMES, released=st.booleans(), bypass=st.booleans(), ill=st.booleans(), full=st.booleans())
    def disturb_node(self, name: str, released: bool, bypass: bool, ill: bool, full: bool) -> None:
        """Release it, bypass it, make it ill, fill its disk; or end that."""
        daemon = self.cluster.daemons[name]
        daemon.released = "asked" if released else ""
        daemon.bypass = "automatic" if bypass else "off"
        daemon.other_problems = ["the disk is broken"] if ill else []
        daemon.disk_is_full = full
        self.do(daemon.restart)

    @rule()
    def heal(self) -> None:
        """All is well again, for a while."""
        self.do(self._heal)
        self.pass_time(60.0)

    def teardown(self) -> None:
        """All is well again: the nodes become as the objects say."""
        try:
            self.do(self._heal)
            self.pass_time(1500.0)
            self.check_rest()
        finally:
            self.run(self.cluster.close())
            self.runner.close()

    def _heal(self) -> None:
        self.cluster.register_nodes()
        for name, daemon in self.cluster.daemons.items():
            daemon.up, daemon.released, daemon.bypass = True, "", "off"
            daemon.other_problems, daemon.disk_is_full = [], False
            daemon.notify()
            agents = [each for each in self.cluster.agents[name] if each.alive]
            for each in agents:
                each.network.api_down = each.network.answers_lost = False
                each.network.forbidden, each.network.fuse = set(), None
            self.cluster.agents[name] = agents or [self.cluster.start_agent(name)]
        self.cluster.notify()

    def check_rest(self) -> None:
        """What must hold after a while."""
        assert not self.cluster.trying()
        if not self.cluster.has_policy:
            return
        policy = NodePolicy.read(self.cluster.policy())
        kind, _ = self.kinds[policy.hash]
        for name, daemon in self.cluster.daemons.items():
            state = self.cluster.agents[name][-1].rollout.state
            assert state is not None
            assert (state.policy_name, state.generation, state.hash) == ("p", policy.generation, policy.hash)
            has_it = daemon.now.hash == policy.hash
            match kind:
                case "refused":
                    assert state.phase == "Refused"
                case "same":
                    assert state.phase == "Applied"
                case "good" if not why_stopped(policy):
                    assert state.phase == "Applied" or any(each.node == name for each in policy.status.failures)
            assert has_it == (state.phase == "Applied") or kind == "same", state
        if kind == "bad":
            assert why_stopped(policy)
            assert policy.status.stopped


Life.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLife = Life.TestCase
