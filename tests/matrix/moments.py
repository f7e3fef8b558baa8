"""What happens to a node while containers come: states that last, and acts.

Each is a context: it begins, containers come within it, and it ends. It asserts that it was really there.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from criproxy.errors import StatusCode
from criproxy.node.bypass import BypassMode
from lab.chaos.checker.cgroups import show
from tests.matrix.scene import MEMORY_BYTES, OURS, Asks, Ran, Scene, pod
from tests.node.world import cut

MORE_MEMORY_BYTES = MEMORY_BYTES + (32 << 20)
Moment = Callable[[Scene], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def bypass_on(scene: Scene) -> AsyncIterator[None]:
    """Somebody has ordered the bypass; a restart of criproxy forgets it."""
    scene.bypass.set(BypassMode.ORDERED, "asked for by the matrix")
    front, known = scene.front, len(scene.runs)
    assert front.stats.bypass
    scene.ledger.away = True
    yield
    if front is scene.front and scene.mode() is BypassMode.ORDERED:
        passed = [ran for ran in scene.runs[known:] if ran.container_id]
        assert not any(scene.has_stamp(ran) for ran in passed), "calls pass during the bypass"
        scene.bypass.set(BypassMode.OFF, "the matrix goes on")
        scene.ledger.looks()


@asynccontextmanager
async def bypass_automatic(scene: Scene) -> AsyncIterator[None]:
    """Criproxy has bypassed its policy by itself."""
    if scene.mode() is not BypassMode.OFF:  # an ordered one stays
        yield
        return
    scene.bypass.set(BypassMode.AUTOMATIC, "for the matrix")
    assert scene.controller.context.state.bypassed
    scene.ledger.failing += 1
    yield
    scene.ledger.failing -= 1
    if scene.mode() is BypassMode.AUTOMATIC:
        scene.bypass.set(BypassMode.OFF, "the matrix goes on")


@asynccontextmanager
async def released(scene: Scene) -> AsyncIterator[None]:
    """Everybody was let go; undone in the end, unless a policy file has done that."""
    await scene.controller.policy_switch.release("for the matrix")
    assert scene.controller.node.released
    scene.ledger.releases()
    yield
    if scene.controller.policy_switch.places:
        await scene.controller.policy_switch.undo()
        scene.ledger.undoes()


@asynccontextmanager
async def disk_full(scene: Scene) -> AsyncIterator[None]:
    """The disk of the state has no byte free."""
    scene.disk.full, scene.disk.failures = True, 0
    scene.ledger.failing += 1
    saves = scene.controller.policy_switch.active and scene.mode() is BypassMode.OFF
    yield
    if saves:  # something is to be stored soon, and cannot be
        await scene.poll(lambda: bool(scene.disk.failures))
    scene.ledger.failing -= 1
    scene.disk.full = False
    await scene.controller.context.persister.check()  # a write that fails now has begun before
    await scene.poll(lambda: not scene.controller.problem)


@asynccontextmanager
async def adoption(scene: Scene) -> AsyncIterator[None]:
    """A container came while criproxy was down."""
    await scene.stop_criproxy()
    ran = await scene.bring(pod("stranger", 1000), scene.stranger, direct=True)
    assert ran.container_id
    assert not ran.refusal
    await scene.start_criproxy()
    await scene.reconnect()
    await scene.poll(lambda: scene.controller.ready)
    if scene.controller.policy_switch.active:
        assert ran.container_id in scene.controller.node.containers, "it is adopted"
    yield


@asynccontextmanager
async def criproxy_restart(scene: Scene) -> AsyncIterator[None]:
    """Criproxy ends and starts again with its state."""
    before = scene.controller
    await scene.stop_criproxy()
    await scene.start_criproxy()
    await scene.reconnect()
    assert scene.controller is not before
    yield


@asynccontextmanager
async def runtime_restart(scene: Scene) -> AsyncIterator[None]:
    """The runtime ends and starts again with its containers."""
    await scene.runtime.stop()
    await scene.runtime.start()
    await scene.reconnect()
    await scene.client.version()
    await scene.poll(lambda: scene.controller.ready and not scene.controller.resync.error)
    yield


@asynccontextmanager
async def resize(scene: Scene) -> AsyncIterator[None]:
    """The kubelet gives every Guaranteed container more memory, which moves none of them, and the first a third CPU."""
    first, *_ = scene.runs
    for ran in scene.runs:
        if ran.container_id and not ran.refusal and ran.pod.qos == "Guaranteed":
            await _more_memory(scene, ran)
    resources = scene.runtime.core.records.container(first.container_id).resources
    assert resources.memory_limit_in_bytes == MORE_MEMORY_BYTES
    error = await scene.resize(first, 3000)
    assert error is None or error.code in OURS, error
    yield


async def _more_memory(scene: Scene, ran: Ran) -> None:
    """A resize of memory alone moves nobody, and is no reason to refuse."""
    await scene.settled()
    before = scene.running()[ran.container_id]
    error = await scene.resize(ran, 0, memory_bytes=MORE_MEMORY_BYTES)
    assert error is None, f"a resize of memory alone is refused: {error}"
    await scene.settled()
    after = scene.running()[ran.container_id]
    assert after == before, f"a resize of memory alone moves {ran.pod.name} from CPUs {show(before)} to {show(after)}"


@asynccontextmanager
async def repeated(scene: Scene) -> AsyncIterator[None]:
    """A create is cut, repeated in vain since the runtime was faster, and tried once more as the next attempt."""
    spec = pod("again", 1000)
    sandbox_id = await scene.kubelet.run_sandbox(spec)
    scene.slow["CreateContainer"] = 0.05
    await cut(scene.create(spec, scene.request(spec, sandbox_id, Asks()), scene.client), scene.slow)
    await scene.poll(
        lambda: any(one.sandbox.id == sandbox_id for one in scene.runtime.core.records.containers.values())
    )
    scene.slow.pop("CreateContainer")
    again = await scene.create(spec, scene.request(spec, sandbox_id, Asks()), scene.client)
    assert again.refusal
    assert again.refusal.code is StatusCode.UNKNOWN
    assert "is reserved for" in again.refusal.details
    scene.runs.remove(again)
    await scene.create(spec, scene.request(spec, sandbox_id, Asks(), attempt=1), scene.client)
    yield


@asynccontextmanager
async def reload_to(policy: str, scene: Scene) -> AsyncIterator[None]:
    """The policy file names another policy."""
    await scene.change_policy(policy)
    settings = scene.controller.context.settings
    assert (settings.policy_name, settings.apply_all) == (policy, scene.everybody)
    yield


@asynccontextmanager
async def nothing(scene: Scene) -> AsyncIterator[None]:
    """Containers come, and that is all; a create that was cut before may still get its id, or be given up."""
    known = {ran.container_id for ran in scene.runs} & set(scene.controller.node.containers)
    yield
    assert not known - set(scene.controller.node.containers)


POLICIES = ("none", "static", "topology-aware", "balloons", "pools")
MOMENTS: Mapping[str, Moment] = {
    "nothing": nothing,
    "adoption": adoption,
    "bypass on": bypass_on,
    "bypass automatic": bypass_automatic,
    "release": released,
    "disk full": disk_full,
    "runtime restart": runtime_restart,
    "criproxy restart": criproxy_restart,
    "resize": resize,
    "repeat": repeated,
    **{f"reload to {policy}": partial(reload_to, policy) for policy in POLICIES},
}
"""By the words in a case."""
