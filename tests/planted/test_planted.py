"""Defects that were mended are found again when somebody brings them back; the matrix has more of them.

A defect that is mended gets a row here: how it is brought back, who finds it, and by which words.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from criproxy.cli.queries import explain as explain_text
from criproxy.model.node import Node
from criproxy.node.settings import OnError
from criproxy.store import Store
from criproxy.wire.calls import OutcomeKind
from lab.tenant.hostile import Attempt
from tests.api import test_skew as skew
from tests.api.page import test_access as page_access
from tests.cli import test_changes_nothing as changes_nothing
from tests.cli import test_hostile_text as hostile_text
from tests.deviceplugin.resources import test_resource_builder as offered
from tests.devices import test_beside_cdi as beside_cdi
from tests.devices import test_boundary as boundary
from tests.host import test_patience as patience
from tests.lab.tenant import test_tenant as tenant
from tests.node import test_kept as kept
from tests.node import test_supervision as supervision
from tests.node import test_traces as traces
from tests.node import test_true_words as true_words
from tests.node.calls import test_not_utf8 as not_utf8
from tests.node.configuration import test_reload as reload
from tests.node.configuration import test_try_meets as try_meets
from tests.node.configuration.tried_node import Node as TriedNode
from tests.node.configuration.tried_node import static_node
from tests.node.devices import test_guard_faults as guard_faults
from tests.node.devices import test_holdings as holdings
from tests.node.devices.test_guard import VOID
from tests.node.record import test_outbox as outbox
from tests.node.record import test_refusals_resizes as refused_resizes
from tests.node.sync import test_outcomes as inquiry
from tests.node.sync import test_resync as resync
from tests.node.world import KEEPING, World
from tests.placement.policies import test_fewer_available as fewer_available
from tests.placement.rules import test_going_back as going_back
from tests.planted import plants
from tests.store import test_downgrade as downgrade
from tests.store import test_quota_incidents as quota_incidents
from tests.sysfs import write_sysfs

SOON_S = 2.0
"""What never comes is waited for so long; what comes is there in a fraction of that."""


@dataclass(frozen=True, slots=True)
class Plant:
    """A defect, and how it is caught."""

    number: int
    """Of the issue about seams; 0 for a mistake of another kind."""
    bring_back: Callable[[pytest.MonkeyPatch], None]
    catcher: Callable[[Path, pytest.MonkeyPatch], Awaitable[None] | None]
    """A test that is there anyway, or one of the small ones below."""
    sentence: str = ""
    """How it fails: a regular expression; empty where something is waited for in vain."""


async def lived(path: Path, one: Attempt) -> None:
    """Nothing is wrong with a hostile pod."""
    assert await tenant.lived(path, one) == []


async def in_world(path: Path, catcher: Callable[[World], Awaitable[None]]) -> None:
    """A test that takes a world has one in which a pod keeps the CPUs of its containers."""
    async with World(path, policy=KEEPING) as world:
        await catcher(world)


async def with_tries(path: Path, catcher: Callable[[TriedNode], Awaitable[None]]) -> None:
    """A test that takes a node whose configurations are tried."""
    node = static_node(path)
    async with node.world:
        await node.begun()
        await catcher(node)


async def a_file_that_does_not_fit_is_told(path: Path, _: pytest.MonkeyPatch) -> None:
    """A reload of a file that reserves a CPU that there is not changes nothing, and says so."""
    (file := path / "policy.yaml").write_text(reload.STATIC)
    async with World(path) as world:
        scene = reload.Scene(world, file)
        file.write_text('policy: static\nreservedCpus: "0,9"\n')
        await scene.reload._once(asked=True)
        assert world.controller.context.in_force.problem, "nobody says that the file does not fit"


def markup_is_text(_: Path, __: pytest.MonkeyPatch) -> None:
    """Of `explain`."""
    hostile_text.test_every_renderer_draws_it_as_text(explain_text.render, hostile_text.EXPLAINED, "[/x]", True)


async def a_look_changes_nothing(path: Path, _: pytest.MonkeyPatch) -> None:
    """After a clean stop."""
    write_sysfs(path / "host", changes_nothing.MACHINE)
    store = Store(path / "state")
    await store.save(Node(changes_nothing.MACHINE), changes_nothing.NODE, [])
    store.close()
    changes_nothing.age(path / "state")
    changes_nothing.test_a_look_at_the_state_changes_no_file(path / "state")


def a_release_is_not_forgotten(path: Path, _: pytest.MonkeyPatch) -> None:
    """Though the database is set aside."""
    quota_incidents.saved(path, quota_incidents.EMPTY.replace(released="criproxy release", configuration="c"))
    downgrade.execute(path, "PRAGMA user_version = 99")
    assert downgrade.loaded_anew(path).released == "criproxy release", "containers are placed again"


async def it_is_waited_for_once(_: Path, __: pytest.MonkeyPatch) -> None:
    """What hangs; who is told so at once does not wait."""
    gate = Event()
    try:
        async with asyncio.timeout(SOON_S):
            await patience.test_what_hangs_is_waited_for_once(gate)
    finally:
        gate.set()


async def a_trace(name: str, policy: str, path: Path) -> None:
    """A recording of a real kubelet is answered as it was there."""
    if name not in traces.RECORDED:
        pytest.skip("no traces beside the repository (../shared)")
    await traces.test_what_a_real_kubelet_says_is_answered_as_there(name, policy, path)


UNKNOWN_ACTION = "device-incident", skew.SICK, "none"
VOID_BESIDE = (beside_cdi.GPU,), {beside_cdi.GPU: False}, (), ["NVIDIA_VISIBLE_DEVICES=void"]

PLANTS = [
    Plant(3, plants.what_does_not_fit_is_taken, a_file_that_does_not_fit_is_told, "nobody says"),
    Plant(5, plants.markup_is_obeyed, markup_is_text, r"closing tag '\[/x\]'"),
    Plant(
        6,
        plants.numbers_have_no_end,
        lambda path, _: lived(path, tenant.attempt({}, cpu_quota=1 << 62, cpu_period=1, cpu_shares=100)),
        "an error was logged: .*state cannot be stored",
    ),
    Plant(7, plants.watchers_die, supervision.test_a_cgroup_that_cannot_be_read_once_ends_no_watch),
    Plant(7, plants.watchers_die, supervision.test_a_list_that_cannot_be_read_once_ends_no_watch),
    Plant(
        8,
        plants.a_task_for_each_question,
        lambda path, _: inquiry.test_a_container_is_asked_for_once_at_a_time(path),
        "200 == 1",
    ),
    Plant(
        8,
        plants.events_wait_for_answers,
        lambda path, _: inquiry.test_one_container_that_cannot_be_asked_for_holds_up_no_event(path),
    ),
    Plant(
        9,
        plants.cards_of_who_runs_are_forgotten,
        lambda path, _: holdings.test_a_removal_that_fails_takes_nobodys_card(path, OutcomeKind.FAILED),
        "None is not None",
    ),
    Plant(
        9,
        plants.ids_are_taken_as_they_come,
        lambda path, _: resync.test_a_start_by_the_beginning_of_an_id_touches_its_container(path),
        "_touched",
    ),
    Plant(
        10,
        plants.words_that_raise_stay_pending,
        lambda _, __: outbox.test_what_cannot_be_put_into_words_is_left_out(),
        "no words",
    ),
    Plant(11, plants.a_reader_makes_files, a_look_changes_nothing, "criproxy.db-shm"),
    Plant(
        12,
        plants.lines_have_no_end,
        lambda path, _: lived(path, tenant.attempt({f"k{i}.criproxy.io": "v" for i in range(8000)}, **tenant.ONE_CPU)),
        "bytes were logged",
    ),
    Plant(13, plants.no_pod_has_a_total, lambda path, _: a_trace("pod_level_resources", "static", path), "exclusive"),
    Plant(
        15,
        plants.refused_resizes_are_not_told,
        lambda path, _: in_world(path, refused_resizes.test_status_shows_it_with_the_sizes),
        "not enough values to unpack",
    ),
    Plant(
        15,
        plants.a_refused_size_is_a_trap,
        lambda path, _: in_world(path, refused_resizes.test_a_container_that_restarts_gets_what_it_had_and_grows_later),
        "asks for 3 exclusive CPUs",
    ),
    Plant(
        16,
        plants.nothing_is_kept,
        lambda path, _: in_world(path, kept.test_a_crash_loop_beside_a_waiting_pod),
        "DID NOT RAISE",
    ),
    Plant(
        17,
        plants.the_fallback_has_what_failed,
        lambda path, patch: guard_faults.test_a_broken_rule_hides_every_card(path, patch, OnError.SHARED, [], "", VOID),
        "CreateContainer of .*the call continues",
    ),
    Plant(
        18,
        plants.a_manager_competes_for_ever,
        lambda path, _: true_words.test_a_competing_manager_is_told_until_it_is_off(path),
        "competing-manager",
    ),
    Plant(20, plants.what_hangs_is_waited_for_again, it_is_waited_for_once),
    Plant(
        20,
        plants.mounts_need_a_slash,
        lambda _, __: boundary.test_the_bypass_by_mounts_is_closed(f"{boundary.VOLUMES}all"),
        "devicesall",
    ),
    Plant(
        20,
        plants.who_is_found_has_no_cards,
        lambda path, _: holdings.test_who_was_found_has_what_the_kubelet_says(path),
        "checkpoint",
    ),
    Plant(
        20,
        plants.the_image_shows_all_beside_cdi,
        lambda _, __: beside_cdi.test_void_beside_cdi(*VOID_BESIDE),
        "NVIDIA_VISIBLE_DEVICES=void",
    ),
    Plant(
        0,
        plants.who_is_found_has_what_the_next_policy_says,
        lambda path, _: with_tries(
            path, lambda node: try_meets.test_who_came_under_none_shares_after_a_kill(node, True)
        ),
        "0,2-3",
    ),
    Plant(
        0,
        plants.the_previous_one_stays,
        lambda path, _: with_tries(path, try_meets.test_a_mistake_in_the_policy_file),
        "which is being tried",
    ),
    Plant(
        0,
        plants.what_was_missed_is_forgotten,
        lambda _, __: going_back.test_what_was_missed_before_is_missed_again(going_back.EX, True),
        "Miss.UNFIT",
    ),
    Plant(
        0,
        plants.a_size_without_room_is_believed,
        lambda _, __: going_back.test_a_resize_without_room_keeps_the_place(going_back.EX, True, True),
        "Desired",
    ),
    Plant(
        0,
        plants.what_was_available_is_kept,
        lambda _, __: fewer_available.test_with_apply_all_nobody_stays_on_it("static", 1),
        "frozenset",
    ),
    Plant(
        0,
        plants.mps_serves_any_number,
        lambda _, __: offered.test_more_clients_of_mps_than_a_card_serves(),
        "DID NOT RAISE",
    ),
    Plant(0, plants.a_release_goes_with_the_database, a_release_is_not_forgotten, "placed again"),
    Plant(
        0,
        plants.an_unknown_action_is_refused,
        lambda path, _: skew.test_an_unknown_action_is_stored_as_the_weakest(
            path, "device-incident", skew.SICK, "none"
        ),
        "action must be one of",
    ),
    Plant(
        0,
        plants.an_unknown_command_is_a_mistake,
        lambda path, _: skew.test_an_unknown_command_says_that_the_daemon_is_older(path),
        "assert \\(False, True\\) == \\(True, False\\)",
    ),
    Plant(
        0,
        plants.tunnels_share_a_cookie,
        lambda path, _: page_access.test_two_nodes_behind_tunnels(path),
        "assert \\[False, True\\] == \\[True, True\\]",
    ),
    Plant(
        0,
        plants.what_cannot_be_read_passes,
        lambda path, _: not_utf8.test_with_device_rules_no_create_passes_unread(path, OnError.PASS),
        "StatusCode.OK",
    ),
    Plant(0, plants.each_request_reads_the_token, page_access.test_a_file_that_hangs, "assert 5 == 1"),
]


every_plant = pytest.mark.parametrize(
    "plant", PLANTS, ids=lambda plant: f"{plant.number:02}-{plant.bring_back.__name__}"
)


async def caught(plant: Plant, path: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the catcher look; it raises what it finds."""
    waits = plant.catcher(path, patch)
    if inspect.isawaitable(waits):
        await waits


@every_plant
async def test_a_planted_defect_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    """Who is to find it fails, and says why."""
    for module in () if plant.sentence else (supervision, inquiry):
        monkeypatch.setattr(module, "LIMIT_S", SOON_S)
    plant.bring_back(monkeypatch)
    kinds = (Exception, pytest.fail.Exception) if plant.sentence else TimeoutError
    with pytest.raises(kinds, match=plant.sentence or None):
        await caught(plant, tmp_path, monkeypatch)


@every_plant
async def test_nothing_is_caught_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    """It is the defect that is found."""
    await caught(plant, tmp_path, monkeypatch)
