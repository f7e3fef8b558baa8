"""How far it is with a container that is over a quota."""

from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.incident import KILL_S, Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.answers.vgpu_excesses import begun, followed, going_on
from criproxy.placement.engine import step
from criproxy.placement.events import CardReported
from criproxy.simulate.hosts import machine
from criproxy.store.database import Database
from tests.node.world import STATIC

EMPTY = Node(machine(nodes=1, cores=4, threads=1))
EXCESS = Excess(life="r-1", quantity=Quantity.MEMORY, used=9000, allowed=8192)
OVER = Incident(device_class="nvidia", card="GPU-a", since_s=12.5, excess=EXCESS)
STOP = replace(OVER, action=Action.STOP)
KILLS = replace(OVER, excess=replace(EXCESS, kills=True, acted_s=100.0))
RUNNING = Container(key="c-1", pod="p", name="main", reservation="r-1", state=ContainerState.RUNNING)


def node_with(state: ContainerState | None) -> Node:
    """A node on which the container is in that state; None: it is not there."""
    return EMPTY.replace(containers={"c-1": replace(RUNNING, state=state)}) if state else EMPTY


@pytest.mark.parametrize(
    ("incident", "state", "goes_on", "ended", "use"),
    [
        pytest.param(OVER.with_uses({"r-1": Use.USES}), "running", False, False, Use.USES, id="observed"),
        pytest.param(OVER.with_uses({"r-1": Use.USES}), "exited", False, True, None, id="ended-by-itself"),
        pytest.param(OVER.with_uses({"r-1": Use.USES}), None, False, True, None, id="gone"),
        pytest.param(STOP.with_uses({"r-1": Use.USES}), "running", True, False, Use.STOPPING, id="to-be-stopped"),
        pytest.param(STOP.with_uses({"r-1": Use.USES}), "unknown", True, False, Use.STOPPING, id="maybe-running"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPING}), "exited", True, True, Use.STOPPED, id="its-end"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPED}), "exited", False, True, Use.STOPPED, id="stopped"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPED}), None, False, True, None, id="stopped-and-removed"),
        pytest.param(KILLS.with_uses({"r-1": Use.KILLED}), "running", False, False, Use.KILLED, id="killed"),
        pytest.param(KILLS.with_uses({"r-1": Use.KILLED}), "exited", False, True, Use.KILLED, id="killed-and-ended"),
    ],
)
def test_incidents_that_go_on(
    incident: Incident, state: str | None, goes_on: bool, ended: bool, use: Use | None
) -> None:
    """The incident follows its container."""
    excess, node = incident.excess, node_with(ContainerState(state) if state else None)
    assert excess is not None
    now = followed(incident, excess, node, 100.0, goes_on=goes_on)

    assert (now.ended, now.containers.get("r-1")) == (ended, use)


@pytest.mark.parametrize(
    ("incident", "state", "goes_on", "now_s", "use"),
    [
        pytest.param(OVER.with_uses({"r-1": Use.USES}), "running", False, 100.0, None, id="observed"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPING}), "running", False, 100.0, None, id="not-stopped-yet"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPING}), "running", True, 100.0, Use.STOPPING, id="under-way"),
        pytest.param(STOP.with_uses({"r-1": Use.STOPPING}), "exited", False, 100.0, Use.STOPPED, id="its-end"),
        pytest.param(STOP.with_uses({"r-1": Use.USES}), "running", True, 100.0, None, id="not-begun"),
        pytest.param(KILLS.with_uses({"r-1": Use.KILLED}), "running", False, 100.0, Use.KILLED, id="may-end-yet"),
        pytest.param(KILLS.with_uses({"r-1": Use.KILLED}), "running", False, 101.0 + KILL_S, None, id="runs-on"),
        pytest.param(KILLS.with_uses({"r-1": Use.KILLED}), "exited", False, 101.0 + KILL_S, Use.KILLED, id="ended"),
    ],
)
def test_incidents_that_are_over(incident: Incident, state: str, goes_on: bool, now_s: float, use: Use | None) -> None:
    """They are kept only as long as the status of the container has something to say of them."""
    assert incident.excess is not None
    over = replace(incident, ended=True)
    now = followed(over, incident.excess, node_with(ContainerState(state)), now_s, goes_on=goes_on)

    assert (now.ended, now.containers.get("r-1")) == (True, use)


def test_new_incidents() -> None:
    """Who is to be stopped is so at once, and a kill is stamped with its time."""
    assert begun(OVER, RUNNING, 50.0) == OVER.with_uses({"r-1": Use.USES})
    assert begun(STOP, RUNNING, 50.0) == STOP.with_uses({"r-1": Use.STOPPING})
    killed = begun(KILLS, RUNNING, 50.0)
    assert killed.containers == {"r-1": Use.KILLED}
    assert killed.excess == replace(EXCESS, kills=True, acted_s=50.0)


def test_incidents_of_one_quota() -> None:
    """One goes on for each container, card and quantity; an unhealthy card is none."""
    lost = Incident(device_class="nvidia", card="GPU-a", since_s=12.5)
    found = [lost, replace(OVER, ended=True), OVER]
    card = ("nvidia", "GPU-a")

    assert going_on(found, "r-1", card, Quantity.MEMORY) is OVER
    assert going_on(found, "r-1", card, Quantity.CORES) is None
    assert going_on(found, "r-2", card, Quantity.MEMORY) is None
    assert going_on(found, "r-1", ("nvidia", "GPU-b"), Quantity.MEMORY) is None
    assert len({each.key for each in (lost, OVER, replace(OVER, excess=replace(EXCESS, life="r-2")))}) == 3


@pytest.mark.parametrize("incident", [OVER, STOP.with_uses({"r-1": Use.STOPPING}), replace(KILLS, ended=True)])
def test_incidents_are_stored(tmp_path: Path, incident: Incident) -> None:
    """They come back as they were, from the table of all incidents."""
    node = step(EMPTY, CardReported(incident.key, incident), STATIC).node
    database = Database(tmp_path)
    database.save(EMPTY, node, ())

    assert database.load(EMPTY.topology).incidents == {incident.key: incident}
    database.close()


@pytest.mark.parametrize(
    ("quantity", "reason", "sentence"),
    [
        (Quantity.MEMORY, "GPUMemoryQuotaExceeded", "9000 MiB used, 8192 MiB allowed on GPU-a"),
        (Quantity.CORES, "GPUCoresQuotaExceeded", "9000 % of the cores used, 8192 % of the cores allowed on GPU-a"),
    ],
)
def test_what_people_read(quantity: Quantity, reason: str, sentence: str) -> None:
    """The reason names the quantity, and the sentence both amounts and the card."""
    incident = replace(OVER, excess=replace(EXCESS, quantity=quantity))

    assert incident.excess is not None
    assert (incident.excess.reason, incident.sentence) == (reason, sentence)


@pytest.mark.parametrize(
    ("incident", "word", "is_shown"),
    [
        (OVER, "observe", False),
        (replace(OVER, action=Action.ANNOTATE), "annotate", True),
        (STOP, "stop", True),
        (KILLS, "kill-process", True),
        (replace(OVER, excess=None), "none", False),
    ],
)
def test_actions(incident: Incident, word: str, is_shown: bool) -> None:
    """They have the words of the policy file, and statuses say all but those that change nothing."""
    assert (incident.action_word, incident.is_shown) == (word, is_shown)
