"""What the daemon tells the controls service, and what it says of one that is absent, silent or of another version."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.config.document import parse
from criproxy.config.settings import read_settings
from criproxy.model.controls import Irqs
from criproxy.node.bypass import BypassMode
from criproxy.node.reconcile import controls_client
from criproxy.node.reconcile.controls_client import ServiceState
from criproxy.placement.events import PolicyChanged, Released
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticPolicy
from criproxy.process.control_socket import ControlServer
from criproxy.wire.sockets import listen
from tests.daemons import until
from tests.node.world import NO_LOOKS, World, metric, owner, said, sharer, situation

Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]


def policy(text: str) -> Policy:
    """A static policy with these lines beside it."""
    found = read_settings(parse(f'policy: static\nreservedCpus: "0"\n{text}'), Path("p"))
    assert found.settings is not None, found.wrong
    return StaticPolicy(found.settings.options)  # type: ignore[arg-type]  # those of the policy in the text


AWAY = policy("classes: {quiet: {irq: away}}")
"""Interrupts leave exclusive CPUs."""


class Service:
    """Takes all that is sent, as the service does."""

    def __init__(self) -> None:
        self.maps: list[Mapping[str, Any]] = []
        self.generation = 0
        self.troubles: list[Mapping[str, str]] = []

    async def apply(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Note what was sent."""
        self.maps.append(arguments)
        self.generation = arguments["generation"]
        return await self.status({})

    async def status(self, _: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Return how it is."""
        return {"generation": self.generation, "troubles": self.troubles}


@asynccontextmanager
async def serving(folder: Path, **commands: Answer) -> AsyncIterator[str]:
    """Answer these commands; returns the path of the socket."""
    server, listener = ControlServer(commands), listen(str(folder / "controls.sock"), 0o600)
    await server.start(listener.sock)
    try:
        yield str(folder / "controls.sock")
    finally:
        await server.stop()
        listener.close()


def world(folder: Path, used: Policy = AWAY) -> World:
    """One whose criproxy is to talk to the service in *folder*."""
    made = World(folder, settings=NO_LOOKS, policy=used)

    def connect(controller: Any) -> None:  # noqa: ANN401 (the world's)
        controller.controls.socket, controller.controls.poll_s = str(folder / "controls.sock"), 0.01

    made.prepare = connect
    return made


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """One that answers."""
    made = Service()
    async with serving(tmp_path, apply=made.apply, status=made.status):
        yield made


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[World]:
    """A criproxy that talks to it."""
    async with world(tmp_path) as made:
        yield made


async def test_all_is_sent_at_first_and_then_what_changes(service: Service, there: World) -> None:
    """An owner's CPUs lose their interrupts when it comes, and have them again when it is gone."""
    await until(lambda: service.maps)
    assert service.maps[0]["desired"]["irqs"] == {"cpus": "0-3"}

    await there.run(owner("one"))
    await until(lambda: len(service.maps) == 2)
    change = service.maps[1]
    assert (change["after"], change["generation"]) == (1, 2)
    assert change["layout"]["irqs"] == {"cpus": "0,2-3"}

    service.generation = 0  # as after a restart of it
    await until(lambda: len(service.maps) == 3)
    assert service.maps[2]["desired"]["irqs"] == {"cpus": "0,2-3"}
    assert said(there) == []


async def test_what_is_of_no_container_is_put_back(service: Service, there: World) -> None:
    """Interrupts alone are a reason to tell the service, too."""
    await until(lambda: service.maps)
    await there.controller.policy_switch.release("for the test")
    await until(lambda: len(service.maps) == 2)
    assert service.maps[1]["layout"] == {}


async def test_it_stays_connected_until_all_is_put_back(service: Service, there: World) -> None:
    """What cannot be put back is told, until it is."""
    await until(lambda: service.maps)
    service.troubles = [{"what": "files", "text": "cannot write '0' to irq"}]
    await there.controller.policy_switch.release("for the test")
    await until(lambda: len(service.maps) == 2)
    await until(lambda: "what classes have changed is not put back: files: cannot write '0' to irq" in said(there))
    assert there.controller.controls.mark.exists()

    service.troubles = []
    await until(lambda: there.controller.controls.state is ServiceState.UNUSED)
    assert said(there, "classes") == []
    assert metric(there.controller, "controls_troubles") == 0


async def test_a_bypass_leaves_what_is_set(service: Service, there: World) -> None:
    """As it leaves CPUs and the files that the runtime was given: nothing is sent."""
    await there.run(owner("one"))
    await until(lambda: there.controller.controls.map.layout.irqs == Irqs(cpus="0,2-3"))
    await until(lambda: not there.controller.controls.is_behind)
    there.controller.bypass(BypassMode.ORDERED)
    there.controller.controls.look()
    assert not there.controller.controls.is_behind
    assert there.controller.controls.map.parts is not None


async def test_classes_that_come_back_on_a_slow_disk_are_sent(service: Service, there: World) -> None:
    """After all was put back, and before the disk has noted that."""
    await until(lambda: service.maps)
    state, client, go_on = there.controller.context.state, there.controller.controls, Event()
    await until(client.mark.exists)
    asyncio.get_running_loop().set_default_executor(slow := ThreadPoolExecutor(1))
    slow.submit(go_on.wait)
    state.submit(Released("for the test"))
    await until(lambda: client.state is ServiceState.UNUSED)
    state.submit(PolicyChanged(apply_all=True))
    await until(lambda: client.map.parts)
    go_on.set()
    await until(lambda: len(service.maps) == 3)
    await until(client.mark.exists)


async def test_without_classes_there_is_no_connection(tmp_path: Path) -> None:
    """Nor a problem, nor a mark on disk."""
    service = Service()
    async with serving(tmp_path, apply=service.apply, status=service.status), world(tmp_path, policy("")) as there:
        await there.run(owner("one"))
        await there.controller.idle()

        assert there.controller.controls.state is ServiceState.UNUSED
        assert service.maps == []
        assert not there.controller.controls.mark.exists()


class HangingService(Service):
    """One that answers only while *answers* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def status(self, _: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        """Return how it is, once it answers."""
        await self.answers.wait()
        return await super().status(_)


@asynccontextmanager
async def hanging(folder: Path) -> AsyncIterator[tuple[HangingService, World]]:
    """A service that answers until it is told not to, and a criproxy whose containers have a class that it applies."""
    service = HangingService()
    service.answers.set()
    async with (
        serving(folder, apply=service.apply, status=service.status),
        world(folder, policy("classes: {batch: {for: {namespaces: ['*']}, scheduling: {nice: 1}}}")) as there,
    ):
        await until(lambda: not there.controller.controls.is_behind)
        yield service, there
        service.answers.set()


async def _starts(folder: Path, steps: list[str]) -> None:
    """Start containers, and let the service hang and answer in between: a wait too many would take an hour."""
    may_wait, late, loop = False, 0, asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controls_client, "SILENCE_S", 3600.0)
        patch.setattr(controls_client, "START_WAIT_S", 3600.0)
        async with hanging(folder) as (service, there):
            controls = there.controller.controls
            for number, what in enumerate(steps):
                if what == "hang":
                    may_wait = may_wait or service.answers.is_set()
                    service.answers.clear()
                elif what == "answer":
                    service.answers.set()
                    await until(lambda: not controls.is_behind)
                else:
                    is_first, may_wait = may_wait and not service.answers.is_set(), False
                    patch.setattr(controls_client, "START_WAIT_S", 0.01 if is_first else 3600.0)
                    begin_s = loop.time()
                    await there.run(sharer(f"pod{number}"))
                    late += not service.answers.is_set()
                    assert not is_first or loop.time() - begin_s >= 0.01
                assert controls.late_starts == late


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(["start", "start", "hang", "answer"]), max_size=12))
def test_each_hang_of_the_service_delays_one_start(steps: list[str]) -> None:
    """Those that follow it start at once, as late ones; when it answers again, starts wait for it again."""
    with TemporaryDirectory() as folder:
        asyncio.run(_starts(Path(folder), steps))


async def test_starts_at_the_same_time_wait_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one of them has waited in vain, the others go on."""
    monkeypatch.setattr(controls_client, "SILENCE_S", 3600.0)
    monkeypatch.setattr(controls_client, "START_WAIT_S", 3600.0)
    async with hanging(tmp_path) as (service, there):
        service.answers.clear()
        patient = asyncio.create_task(there.run(sharer("patient")))
        await until(lambda: there.controller.controls._answered._waiters)  # its start
        monkeypatch.setattr(controls_client, "START_WAIT_S", 0.01)
        await there.run(sharer("hasty"))
        await patient
        assert there.controller.controls.late_starts == 2


async def test_an_absent_service_is_told_and_delays_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never answered, so nobody waits for it."""
    monkeypatch.setattr(controls_client, "START_WAIT_S", 3600.0)
    async with world(tmp_path) as there:
        await there.run(sharer("one"))
        await until(lambda: there.controller.controls.state is ServiceState.ABSENT)

        assert "restart criproxy-controls.service" in said(there)[0]


async def test_a_service_of_another_age_is_told(tmp_path: Path) -> None:
    """It does not know the command."""
    service = Service()
    async with serving(tmp_path, status=service.status), world(tmp_path) as there:
        await until(lambda: there.controller.controls.state is ServiceState.REFUSES)

        assert "is of another version" in said(there)[0]


async def test_a_silent_service_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and answers nothing."""
    monkeypatch.setattr(controls_client, "SILENCE_S", 0.05)

    async def hang(_: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        await asyncio.Event().wait()

    async with serving(tmp_path, apply=hang), world(tmp_path) as there:
        await until(lambda: there.controller.controls.state is ServiceState.SILENT)

        assert "has not answered for" in said(there)[0]


async def test_an_absent_service_is_no_problem_while_it_would_do_nothing(tmp_path: Path) -> None:
    """As where all that a class sets goes through the runtime; with the first container that needs it, it is one."""
    text = 'classes: {soft: {for: {namespaces: ["*"]}, memory: {high: 1Mi}}, nice: {for: {qos: [Guaranteed]}, NICE}}'
    async with world(tmp_path, policy(text.replace("NICE", "scheduling: {nice: 5}"))) as there:
        await there.run(sharer("one"))
        await until(lambda: there.controller.controls.state is ServiceState.ABSENT)
        assert said(there) == []
        assert any("nobody answers" in notice.text for notice in situation(there.controller).notices)

        await there.run(owner("two"))
        await until(lambda: any("is not applied: nobody answers" in text for text in said(there)))
