"""A handler that failed is in `status` and ``--check`` for an hour, with the container's name and one sentence."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.situation import Situation
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.grant import Applied, Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.node.calls import status_replies as replies
from criproxy.node.calls.create import Creates
from criproxy.node.calls.intercepted_calls import Handlers
from criproxy.node.calls.start import Starts
from criproxy.node.calls.update import Updates
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.process.failures import KEPT_S, KINDS, MAX_COUNTED, MAX_KEPT, MAX_NOTICES, MAX_TEXT, Failures
from criproxy.simulate.hosts import machine
from tests.node.calls.test_update import size
from tests.node.failing import plant_failure
from tests.node.world import FAST, NO_EVENTS, NO_LOOKS, World, owner, problems, said, sharer, situation

QUIET = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0)
WEB = "default/web/main"


async def whole(world: World) -> None:
    """A pod comes, is resized and goes; whatever the kubelet is refused, it goes on."""
    sandbox_id = await world.kubelet.run_sandbox(owner("web", 1))
    container_id = await world.kubelet.create(owner("web", 1), sandbox_id, owner("web", 1).containers[0])
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: world.kubelet.start(container_id),
        lambda: world.kubelet.update(container_id, size(2000)),
        lambda: world.kubelet.stop(container_id),
        lambda: world.kubelet.remove(container_id),
        lambda: world.kubelet.remove_pod(sandbox_id),
    ]
    for step in steps:
        with suppress(RuntimeCallError):
            await step()


HANDLERS = [
    pytest.param(Creates, "hold", "CreateContainer", WEB, id="create"),
    pytest.param(Creates, "done", "CreateContainer", WEB, id="create-done"),
    pytest.param(Starts, "hold", "StartContainer", WEB, id="start"),
    pytest.param(Updates, "hold", "UpdateContainerResources", WEB, id="update"),
    pytest.param(Handlers, "sandbox_run", "RunPodSandbox", "default/web", id="sandbox-run"),
    pytest.param(Handlers, "sandbox_removed", "RemovePodSandbox", "", id="sandbox-removed"),
    pytest.param(Handlers, "container_stopped", "StopContainer", WEB, id="stop"),
    pytest.param(Handlers, "container_removed", "RemoveContainer", WEB, id="remove"),
]


@pytest.mark.parametrize(("kind", "method", "call", "title"), HANDLERS)
async def test_a_handler_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type, method: str, call: str, title: str
) -> None:
    """Held and watched calls alike; the kubelet's call is answered by us or by the runtime all the same."""
    plant_failure(monkeypatch, kind, method)
    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        await whole(world)

        await world.poll(lambda: bool(said(world, call)))
        (text,) = said(world, call)
        assert title in text
        assert "planted" in text
        assert world.controller.context.failures.counts["call"] >= 1
        assert text in [notice.text for notice in situation(world.controller).notices]


async def test_an_edit_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet gets the runtime's own reply then."""
    plant_failure(monkeypatch, replies, "as_asked")
    lifting = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0", "cpuQuota": "lift"}))
    async with World(tmp_path, NO_EVENTS, QUIET, policy=lifting) as world:
        container_id = await world.run(owner("web", 1))
        status = await world.client.container_status(container_id)

        assert status.status.id == container_id
        assert any("ContainerStatus" in text and WEB in text and "planted" in text for text in said(world))


class FailsAt(StaticPolicy):
    """A policy with a mistake at the release of containers, or at their placement."""

    def __init__(self, method: str) -> None:
        super().__init__(StaticOptions.model_validate({"reservedCpus": "0"}))
        self.method = method

    def place(self, node: Node, container: Container) -> Change:
        """Fail, or place."""
        if self.method == "place" and container.pod_name == "web":
            raise ZeroDivisionError("planted")
        layout = super().place(node, container)
        if self.method == "wrong" and container.pod_name == "web":
            return replace(layout, grants={**layout.grants, container.key: Grant(frozenset(), frozenset())})
        return layout

    def release(self, node: Node, left: Grant) -> Change:
        """Fail, or release."""
        if self.method == "release":
            raise ZeroDivisionError("planted")
        return super().release(node, left)


POLICIES = [
    pytest.param(FailsAt("place"), "planted", id="place"),
    pytest.param(FailsAt("release"), "planted", id="release"),
    pytest.param(CheckedPolicy(FailsAt("wrong"), "acme", Options()), "has no CPU", id="wrong-layout"),
    pytest.param(CheckedPolicy(FailsAt("release"), "acme", Options()), "planted", id="guarded-release"),
]


@pytest.mark.parametrize(("policy", "why"), POLICIES)
async def test_a_policy_that_fails_is_told(tmp_path: Path, policy: FailsAt, why: str) -> None:
    """Whatever became of the call: it went on sharing, or nobody moved."""
    async with World(tmp_path, NO_EVENTS, QUIET, policy=policy) as world:
        await world.kubelet.stop(await world.run(owner("web", 1)))

        await world.poll(lambda: any(why in text for text in said(world, WEB)))
        assert (world.counters.policy_faults > 0) is isinstance(policy, CheckedPolicy)


async def test_a_runtime_that_has_not_told_yet_is_no_failure_of_ours(tmp_path: Path) -> None:
    """That is told as what it is."""
    hasty = replace(NO_LOOKS, resync_timeout_s=0.05)  # no comparison follows that tells it
    async with World(tmp_path, NO_EVENTS, hasty) as world:
        await world.poll(lambda: world.controller.ready)
        sandbox_id = await world.kubelet.run_sandbox(owner("web", 1))
        world.controller.resync._ready.clear()
        with pytest.raises(RuntimeCallError, match="does not know yet what is running"):
            await world.kubelet.create(owner("web", 1), sandbox_id, owner("web", 1).containers[0])

        assert not world.controller.context.failures.recent()


def test_what_failed_is_bounded_and_forgotten() -> None:
    """In number, length and time; what comes again is one, with its number."""
    now_s = [1000.0]
    failures = Failures(clock=lambda: now_s[0])
    for number in range(MAX_KEPT + 5):
        failures.add("call", f"{number} " + "x" * 10_000)
    assert len(failures.recent()) == MAX_KEPT
    assert len(list(failures.notices())) == MAX_NOTICES + 1
    assert all(len(failure.text) <= MAX_TEXT + 1 for failure in failures.recent())

    now_s[0] += KEPT_S / 2
    for _ in range(3):
        failures.add("call", "again")
    now_s[0] += KEPT_S / 2 + 1

    (notice,) = failures.notices()
    assert notice.wrong
    assert notice.text.startswith("again (3 times, last at 1970-01-01T00:")
    now_s[0] += KEPT_S
    assert not failures.recent()
    assert failures.counts["call"] == MAX_KEPT + 8


def test_a_flood_hides_no_other_failure() -> None:
    """Neither one of another kind nor one of another namespace; how many more there are is right."""
    failures = Failures()
    failures.add("watcher", "the watch ended")
    failures.add("call", "create of shop/web failed", namespace="shop")
    for number in range(1000):
        failures.add("call", f"create of evil/p{number} failed", namespace="evil")

    texts = [notice.text for notice in failures.notices()]

    assert [failure.kind for failure in failures.recent()].count("watcher") == 1
    assert any("the watch ended" in text for text in texts)
    assert any("shop/web" in text for text in texts)
    assert "evil/p999 " in texts[0]
    assert texts[-1].startswith(f"{1002 - MAX_NOTICES} more failures of criproxy within the last hour")
    assert len(texts) == MAX_NOTICES + 1


def test_a_failure_that_is_only_counted_is_counted_once() -> None:
    """One that returns is shown, with how often it happened, and after an hour none counts."""
    now_s = [1000.0]
    failures = Failures(clock=lambda: now_s[0])
    for _ in range(2):
        for number in range(MAX_KEPT + 5):
            failures.add("call", f"{number}", namespace="evil")
    assert failures.recent()[0].times == 2
    assert [*failures.notices()][-1].text.startswith(f"{MAX_KEPT + 5 - MAX_NOTICES} more failures")

    now_s[0] += KEPT_S
    assert not [*failures.notices()]
    assert failures.add("call", "0", namespace="evil")


def test_what_is_only_counted_is_bounded() -> None:
    """The memory of the node is not a tenant's."""
    failures = Failures()
    for number in range(MAX_KEPT + MAX_COUNTED + 50):
        failures.add("call", f"{number}", namespace="evil")

    assert [*failures.notices()][-1].text.startswith(f"{MAX_KEPT + MAX_COUNTED - MAX_NOTICES} more failures")


def test_many_namespaces_hide_no_other_kind() -> None:
    """A tenant may have several; each kind is shown."""
    failures = Failures()
    for kind in KINDS:
        failures.add(kind, f"the {kind} failed")
    for number in range(2 * MAX_KEPT):
        failures.add("call", f"create of evil-{number}/p failed", namespace=f"evil-{number}")

    texts = [notice.text for notice in failures.notices()]

    assert [kind for kind in KINDS if kind != "call" and not any(f"the {kind} failed" in text for text in texts)] == []


async def test_a_failed_call_belongs_to_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant whose calls fail again and again hides no failure at the calls of others."""
    plant_failure(monkeypatch, Creates, "hold")
    async with World(tmp_path, NO_EVENTS, QUIET) as world:
        failures = world.controller.context.failures
        await world.run(replace(sharer("web"), namespace="shop"))
        for number in range(2 * MAX_KEPT):
            failures.add("call", f"{number}", namespace="evil")

        assert any("shop/web/main" in failure.text for failure in failures.recent())


def test_who_has_no_place_and_may_run_on_anothers_cpus_is_found() -> None:
    """Nobody guards the owner against it."""
    own = frozenset({1})
    here = {key: Container(key=key, pod="s", name=key, state=ContainerState.RUNNING) for key in ("own", "lost")}
    node = Node(
        machine(nodes=1, cores=4, threads=1),
        containers=here,
        grants={"own": Grant(own, frozenset({0}), own)},
        applied={"own": Applied(own, frozenset({0})), "lost": Applied(frozenset({0, 1}), frozenset({0}))},
    )

    assert "lost has no place and may run on CPU 1, exclusive to another container" in problems_of(node)
    apart = node.replace(applied={**node.applied, "lost": Applied(frozenset({0}), frozenset({0}))})
    assert problems_of(apart) == []


def problems_of(node: Node) -> list[str]:
    """What ``--check`` says of a node."""
    found: list[str] = problems(Situation(node=node))["problems"]
    return found
