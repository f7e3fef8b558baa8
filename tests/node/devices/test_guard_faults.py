"""What becomes of a create at which the rule about devices itself fails, and of those for whom exceptions are made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.evidence.evidence import Known, Subject
from criproxy.errors import StatusCode
from criproxy.model.record import Kind
from criproxy.node.devices import evidence as gathering
from criproxy.node.devices import guard as guarding
from criproxy.node.settings import OnError
from criproxy.placement.policies.api import Policy
from lab.emulator.runtime import IMAGE
from tests.node.devices.test_guard import NONE, RULES, VOID, Podresources, create, envs, knows, told, world
from tests.node.world import STATIC, World, problems, refusal, situation

ALL = "NVIDIA_VISIBLE_DEVICES=all"


def found(node: World) -> list[object]:
    """What the log says of devices, container by container."""
    return [keys["found"] for event, keys in node.log.lines if event == "devices"]


def wrong(node: World) -> list[str]:
    """What `status --check` would say."""
    return [*problems(situation(node.controller))["problems"]]


@pytest.mark.parametrize("policy", [pytest.param(STATIC, id="static"), pytest.param(NONE, id="none")])
@pytest.mark.parametrize(
    ("rules", "privileged", "word", "shows"),
    [
        pytest.param(replace(RULES, exempt_namespaces=("default",)), False, "exempt", b"all", id="namespace"),
        pytest.param(replace(RULES, exempt_images=(IMAGE,)), False, "exempt", b"all", id="image"),
        pytest.param(replace(RULES, privileged="allow"), True, "privileged", b"all", id="privileged-allow"),
        pytest.param(replace(RULES, privileged="report"), True, "privileged; nvidia: hidden", b"void", id="report"),
    ],
)
async def test_exceptions_are_let_in(
    tmp_path: Path, policy: Policy, rules: DeviceRules, privileged: bool, word: str, shows: bytes
) -> None:
    """A container for which an exception is made is created, placed and told of, and nothing is wrong."""
    async with world(tmp_path, policy, rules) as node:
        knows(node, Podresources())

        config = await create(node, *([] if shows == b"void" else [ALL]), privileged=privileged)

        assert envs(config) == {"NVIDIA_VISIBLE_DEVICES": shows}
        assert bool(config.linux.resources.cpuset_cpus) is (policy is STATIC)
        assert node.counters.devices["", word.partition(";")[0]] == 1
        assert not node.counters.fallbacks
        assert not wrong(node)
        assert "call not handled" not in node.log.events()
        assert found(node) == [word]


@pytest.mark.parametrize("name", ["event", "kind", "about", "level", "self"])
async def test_a_class_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Not even the names that log and history have for other things get in the way."""
    async with world(tmp_path, rules=DeviceRules(classes=(replace(NVIDIA, name=name),))) as node:
        knows(node, Podresources())

        assert envs(await create(node, "A=1")) == {"A": b"1"} | VOID
        assert not node.counters.fallbacks


def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a mistake in the rule."""

    def broken(*_: object) -> object:
        raise ZeroDivisionError("integer division")

    monkeypatch.setattr(guarding, "boundary", broken)


@pytest.mark.parametrize("way", [OnError.SHARED, OnError.PASS])
@pytest.mark.parametrize(
    ("asks", "cdi", "gets"),
    [
        pytest.param([], "", VOID, id="image-only"),
        pytest.param([ALL, "NVIDIA_VISIBLE_DEVICES=0", "CUDA_DISABLE_CONTROL=1"], "", VOID, id="asks"),
        pytest.param(["A=1"], "nvidia.com/gpu=GPU-b", {"A": b"1"} | VOID, id="cdi"),
    ],
)
async def test_a_broken_rule_hides_every_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: OnError, asks: list[str], cdi: str, gets: dict[str, bytes]
) -> None:
    """The container comes up in a place of its own and sees no card but by CDI; history and status say so."""
    breaks(monkeypatch)
    async with world(tmp_path) as node:
        node.controller.context.in_force.settings = replace(node.controller.context.settings, on_error=way)

        config = await create(node, *asks, cdi=cdi)

        assert envs(config) == gets
        assert [device.name for device in config.CDI_devices] == ([cdi] if cdi else [])
        assert config.linux.resources.cpuset_cpus == "0-3"
        assert "the device rules failed" in (await told(node))[0]
        assert node.counters.devices == {("", "failed"): 1}
        assert len(wrong(node)) == 1
        assert "default/pod-0/main" in wrong(node)[0]
        assert "integer division" not in wrong(node)[0]
        assert all("the container sees only" in text for text in (wrong(node)[0], (await told(node))[0]))


async def test_a_broken_rule_refuses_where_failures_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With onError=refuse the kubelet tries again; status says what is wrong."""
    breaks(monkeypatch)
    async with world(tmp_path) as node:
        node.controller.context.in_force.settings = replace(node.controller.context.settings, on_error=OnError.REFUSE)

        await refusal(create(node, ALL))

        assert len(wrong(node)) == 1
        assert "the device rules failed, last at default/pod-0/main" in wrong(node)[0]
        assert "is refused, and the kubelet retries (onError: refuse)" in wrong(node)[0]


@pytest.mark.parametrize(
    ("rules", "gets"),
    [
        pytest.param(replace(RULES, exempt_namespaces=("default",)), {"NVIDIA_VISIBLE_DEVICES": b"all"}, id="exempt"),
        pytest.param(replace(RULES, hide_unallocated="report"), {"NVIDIA_VISIBLE_DEVICES": b"all"}, id="report"),
        pytest.param(replace(RULES, hide_unallocated="off"), {"NVIDIA_VISIBLE_DEVICES": b"all"}, id="off"),
        pytest.param(replace(RULES, user_override="keep"), {"NVIDIA_VISIBLE_DEVICES": b"all"}, id="keep"),
        pytest.param(replace(RULES, privileged="deny"), None, id="denied"),
    ],
)
async def test_what_the_owner_wants_holds_beside_a_broken_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: DeviceRules, gets: dict[str, bytes] | None
) -> None:
    """Nothing more is hidden than the policy file says, and who must not get in does not."""
    breaks(monkeypatch)
    async with world(tmp_path, rules=rules) as node:
        if gets is not None:
            assert envs(await create(node, ALL)) == gets
            assert "the container sees only" not in f"{wrong(node)} {await told(node)}" or rules.exempt_namespaces
            return
        refused = await refusal(create(node, privileged=True), "container default/pod-0/main is refused: it is priv")
        assert refused.code is StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("where", ["source", "weigh"])
async def test_evidence_that_fails_grants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Literal["source", "weigh"]
) -> None:
    """Where finding out what was given fails, a variable is the pod's own; what the create itself proves counts."""

    class Raising(Podresources):
        """Makes a mistake."""

        async def known(self, container: Subject) -> Known | None:
            """Raise."""
            raise KeyError(container.container)

    async with world(tmp_path) as node:
        knows(node, Raising(main="GPU-b"))
        if where == "weigh":
            monkeypatch.setattr(gathering, "weigh", lambda *_: 1 // 0)

        assert envs(await create(node, "NVIDIA_VISIBLE_DEVICES=GPU-b")) == VOID

        assert len(wrong(node)) == 1
        assert not node.counters.fallbacks


@pytest.mark.parametrize("where", ["log", "history", "memory"])
async def test_telling_fails_no_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A log line or an entry of the history that cannot be written leaves the rule in force."""
    async with world(tmp_path) as node:
        knows(node, Podresources(main="GPU-b"))
        manager = node.controller.context.state
        places: dict[str, tuple[object, str, Callable[..., bool]]] = {
            "log": (node.log, "warning", lambda event, **_: event == "devices"),
            "history": (manager, "note", lambda _, kind, *__, **___: kind is Kind.DEVICES),
            "memory": (node.controller.devices.holdings, "note", lambda *_: True),
        }
        place, name, which = places[where]
        usual = getattr(place, name)

        def raising(*arguments: Any, **keys: Any) -> None:  # noqa: ANN401 (of three functions)
            if which(*arguments, **keys):
                raise TypeError("got multiple values for keyword argument 'container'")
            usual(*arguments, **keys)

        monkeypatch.setattr(type(place), name, lambda _, *arguments, **keys: raising(*arguments, **keys))

        config = await create(node, ALL)

        assert envs(config) == {"NVIDIA_VISIBLE_DEVICES": b"GPU-b"}
        assert [device.host_path for device in config.devices] == ["/dev/nvidia1", "/dev/nvidiactl"]
        assert not node.counters.fallbacks
        assert len(wrong(node)) == 1
