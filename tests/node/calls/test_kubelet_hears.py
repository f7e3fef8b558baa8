"""The kubelet, and with it whoever reads a pod's events, hears sentences of ours: texts of errors are in the log."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import NotEnough, StatusCode, StoreError, for_kubelet
from criproxy.node.calls.create import Creates
from criproxy.node.record.policy_failures import PolicyFailed
from criproxy.node.settings import OnError
from lab.emulator.runtime import RuntimeOptions
from tests.node.calls.test_on_error import FailsAt
from tests.node.failing import plant_failure
from tests.node.world import FAST, World, owner, said, sharer

REFUSING = replace(FAST, on_error=OnError.REFUSE)
SECRET = "Object of type date at /etc/secret"  # noqa: S105 (no password)


def caused(error: Exception, cause: Exception | None) -> Exception:
    """*error* as ``raise error from cause`` has it."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        pytest.param(TypeError(SECRET), "criproxy failed; its log has the cause", id="any"),
        pytest.param(
            caused(PolicyFailed(f"the policy failed: {SECRET}"), TypeError(SECRET)),
            "the policy failed; criproxy's log has the cause", id="policy",
        ),
        pytest.param(
            caused(StoreError(f"the state could not be stored: {SECRET}"), OSError(SECRET)),
            "the state could not be stored; criproxy's log has the cause", id="store",
        ),
        pytest.param(StoreError("no answer for 2 s"), "no answer for 2 s", id="slow-disk"),
        pytest.param(NotEnough("c asks for 9 CPUs"), "c asks for 9 CPUs", id="refusal"),
    ],
)  # fmt: skip
def test_what_the_kubelet_hears(error: Exception, heard: str) -> None:
    """What we wrote ourselves, and of everything else that the log has it."""
    assert for_kubelet(error) == heard


async def refusal(world: World) -> RuntimeCallError:
    """What the kubelet hears at a create."""
    with pytest.raises(RuntimeCallError) as caught:
        await world.run(owner("web"))
    return caught.value


async def test_a_policy_that_fails(tmp_path: Path) -> None:
    """The refusal and the history have our sentence, `status` has the cause."""
    async with World(tmp_path, settings=REFUSING, policy=FailsAt("place")) as world:
        error = await refusal(world)
        assert (StatusCode(error.code), error.details) == (
            StatusCode.UNAVAILABLE,
            "the policy failed; criproxy's log has the cause",
        )
        assert said(world, "planted")


@pytest.mark.parametrize("fallback", ["works", "fails"])
async def test_a_handler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fallback: str) -> None:
    """Whether what is done then fails, too, or not."""
    plant_failure(monkeypatch, Creates, "hold", error=TypeError(SECRET))
    async with World(tmp_path, settings=REFUSING) as world:
        if fallback == "fails":
            plant_failure(monkeypatch, world.proxy, "on_error", error=TypeError(SECRET))
        assert (await refusal(world)).details.endswith("its log has the cause")


@pytest.mark.parametrize("way", OnError)
async def test_a_create_that_cannot_be_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: OnError
) -> None:
    """What failed at first fails again where the failure is reported: `onError` holds all the same."""
    plant_failure(monkeypatch, translate, "container", error=TypeError(SECRET))
    async with World(tmp_path, settings=replace(FAST, on_error=way)) as world:
        if way is OnError.REFUSE:
            error = await refusal(world)
            heard = "criproxy failed; its log has the cause"
            assert (StatusCode(error.code), error.details) == (StatusCode.UNAVAILABLE, heard)
        else:
            await world.run(owner("web"))
            await world.until(lambda: len(world.owned()) == 1)  # it is placed afterwards
            assert world.counters.fallbacks == {way.value: 1}


async def test_a_start_at_which_the_runtime_fails(tmp_path: Path) -> None:
    """The container has its name, the runtime's own words are in the log."""
    fails = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with World(tmp_path, fails) as world:
        _, created = await world.created(sharer("web"))
        await world.created(owner("other"))

        with pytest.raises(RuntimeCallError) as caught:
            await world.kubelet.start(created)

        assert caught.value.details == (
            "cannot prepare container default/web/main for its start: a call to the runtime about it has failed; "
            "criproxy's log has the cause"
        )
        (keys,) = (keys for event, keys in world.log.lines if event == "start refused")
        assert "UpdateContainerResources: UNIMPLEMENTED" in str(keys["error"])
