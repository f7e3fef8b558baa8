"""Defects that were mended are found again when somebody brings them back; the matrix has more of them.

A defect that is mended gets a row here: how it is brought back, who finds it, and by which words.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Event
from typing import Any

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
from tests.node.configuration.tried_node import static_node, two
from tests.node.devices import test_guard_faults as guard_faults
from tests.node.devices import test_holdings as holdings
from tests.node.devices.test_guard import VOID
from tests.node.record import test_outbox as outbox
from tests.node.record import test_refusals_resizes as refused_resizes
from tests.node.sync import test_outcomes as inquiry
from tests.node.sync import test_resync as resync
from tests.node.world import KEEPING, Slow, World
from tests.placement.policies import test_fewer_available as fewer_available
from tests.placement.rules import test_going_back as going_back
from tests.planted import plants
from tests.store import test_downgrade as downgrade
from tests.sysfs import write_sysfs

SOON_S = 2.0
"""What never comes is waited for so long; what comes is there in a fraction of that."""
Test = Callable[..., Any]


def row(defect: Callable[[pytest.MonkeyPatch], None], test: Test, sentence: str = "", **arguments: object) -> Any:  # noqa: ANN401 (a ParameterSet)
    """A defect, and how it is caught.

    Args:
        defect: brings it back.
        test: one that is there anyway, or one of the small ones below.
        sentence: how it fails, as a regular expression; empty where something is waited for in vain.
        arguments: of the test, beside its fixtures.
    """
    return pytest.param(defect, test, sentence, arguments, id=f"{defect.__name__}-{test.__name__}")


async def hostile_pod(tmp_path: Path, one: Attempt) -> None:
    """Nothing is wrong with it."""
    assert await tenant.lived(tmp_path, one) == []


async def a_file_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """A reload of a file that reserves a CPU that there is not changes nothing, and says so."""
    (file := tmp_path / "policy.yaml").write_text(reload.STATIC)
    async with World(tmp_path) as world:
        scene = reload.Scene(world, file)
        file.write_text('policy: static\nreservedCpus: "0,9"\n')
        await scene.reload._once(asked=True)
        assert world.controller.context.in_force.problem, "nobody says that the file does not fit"


def markup_is_text() -> None:
    """Of `explain`."""
    hostile_text.test_every_renderer_draws_it_as_text(explain_text.render, hostile_text.EXPLAINED, "[/x]", True)


async def a_look_changes_nothing(tmp_path: Path) -> None:
    """After a clean stop."""
    write_sysfs(tmp_path / "host", changes_nothing.MACHINE)
    store = Store(tmp_path / "state")
    await store.save(Node(changes_nothing.MACHINE), changes_nothing.NODE, [])
    store.close()
    changes_nothing.age(tmp_path / "state")
    changes_nothing.test_a_look_at_the_state_changes_no_file(tmp_path / "state")


def a_release_is_not_forgotten(tmp_path: Path) -> None:
    """Though the database is set aside."""
    downgrade.saved(tmp_path, downgrade.EMPTY.replace(released="criproxy release", configuration="c"))
    downgrade.execute(tmp_path, "PRAGMA user_version = 99")
    assert downgrade.loaded_anew(tmp_path).released == "criproxy release", "containers are placed again"


async def it_is_waited_for_once() -> None:
    """What hangs; who is told so at once does not wait."""
    gate = Event()
    try:
        async with asyncio.timeout(SOON_S):
            await patience.test_what_hangs_is_waited_for_once(gate)
    finally:
        gate.set()


async def a_trace(tmp_path: Path, name: str, policy: str) -> None:
    """A recording of a real kubelet is answered as it was there."""
    if name not in traces.RECORDED:
        pytest.skip("no traces beside the repository (../shared)")
    await traces.test_what_a_real_kubelet_says_is_answered_as_there(name, policy, tmp_path)


ENDLESS_QUOTA = tenant.attempt({}, cpu_quota=1 << 62, cpu_period=1, cpu_shares=100)
MANY_KEYS = tenant.attempt({f"k{i}.criproxy.io": "v" for i in range(8000)}, **tenant.ONE_CPU)
VOID_TEXT = "NVIDIA_V=void"
VOID_BESIDE = {"cdi": (beside_cdi.GPU,), "sets": {beside_cdi.GPU: False}, "envs": (), "then": [VOID_TEXT]}
UNKNOWN_ACTION = {"command": "device-incident", "report": skew.SICK, "instead": "none"}
BROKEN_RULE = {"way": OnError.SHARED, "asks": [], "cdi": "", "gets": VOID}

PLANTS = [
    row(plants.what_does_not_fit_is_taken, a_file_that_does_not_fit_is_told, "nobody says"),
    row(plants.markup_is_obeyed, markup_is_text, r"closing tag '\[/x\]'"),
    row(plants.numbers_have_no_end, hostile_pod, "an error was logged: .*state cannot be stored", one=ENDLESS_QUOTA),
    row(plants.watchers_die, supervision.test_a_cgroup_that_cannot_be_read_once_ends_no_watch),
    row(plants.watchers_die, supervision.test_a_list_that_cannot_be_read_once_ends_no_watch),
    row(plants.a_task_for_each_question, inquiry.test_a_container_is_asked_for_once_at_a_time, "200 == 1"),
    row(plants.events_wait_for_answers, inquiry.test_one_container_that_cannot_be_asked_for_holds_up_no_event),
    row(
        plants.cards_of_who_runs_are_forgotten,
        holdings.test_a_removal_that_fails_takes_nobodys_card,
        "None is not None",
        kind=OutcomeKind.FAILED,
    ),
    row(
        plants.ids_are_taken_as_they_come,
        resync.test_a_start_by_the_beginning_of_an_id_touches_its_container,
        "_touched",
    ),
    row(plants.words_that_raise_stay_pending, outbox.test_what_cannot_be_put_into_words_is_left_out, "no words"),
    row(plants.a_reader_makes_files, a_look_changes_nothing, "criproxy.db-shm"),
    row(plants.lines_have_no_end, hostile_pod, "bytes were logged", one=MANY_KEYS),
    row(plants.no_pod_has_a_total, a_trace, "exclusive", name="pod_level_resources", policy="static"),
    row(
        plants.refused_resizes_are_not_told,
        refused_resizes.test_status_shows_it_with_the_sizes,
        "not enough values to unpack",
    ),
    row(
        plants.a_refused_size_is_a_trap,
        refused_resizes.test_a_container_that_restarts_gets_what_it_had_and_grows_later,
        "asks for 3 exclusive CPUs",
    ),
    row(plants.nothing_is_kept, kept.test_a_crash_loop_beside_a_waiting_pod, "DID NOT RAISE"),
    row(
        plants.the_fallback_has_what_failed,
        guard_faults.test_a_broken_rule_hides_every_card,
        "CreateContainer of .*the call continues",
        **BROKEN_RULE,
    ),
    row(
        plants.a_manager_competes_for_ever,
        true_words.test_a_competing_manager_is_told_until_it_is_off,
        "competing-manager",
    ),
    row(plants.what_hangs_is_waited_for_again, it_is_waited_for_once),
    row(
        plants.mounts_need_a_slash,
        boundary.test_the_bypass_by_mounts_is_closed,
        "devicesall",
        path=f"{boundary.VOLUMES}all",
    ),
    row(plants.who_is_found_has_no_cards, holdings.test_who_was_found_has_what_the_kubelet_says, "checkpoint"),
    row(plants.the_image_shows_all_beside_cdi, beside_cdi.test_void_beside_cdi, VOID_TEXT, **VOID_BESIDE),
    row(
        plants.who_is_found_has_what_the_next_policy_says,
        try_meets.test_who_came_under_none_shares_after_a_kill,
        "0,2-3",
        tried=True,
    ),
    row(plants.the_previous_one_stays, try_meets.test_a_mistake_in_the_policy_file, "which is being tried"),
    row(
        plants.what_was_missed_is_forgotten,
        going_back.test_what_was_missed_before_is_missed_again,
        "Miss.UNFIT",
        policy=going_back.EX,
        apply_all=True,
    ),
    row(
        plants.a_size_without_room_is_believed,
        going_back.test_a_resize_without_room_keeps_the_place,
        "Desired",
        policy=going_back.EX,
        apply_all=True,
        is_known=True,
    ),
    row(
        plants.what_was_available_is_kept,
        fewer_available.test_with_apply_all_nobody_stays_on_it,
        "frozenset",
        name="static",
        lost=1,
    ),
    row(plants.mps_serves_any_number, offered.test_more_clients_of_mps_than_a_card_serves, "DID NOT RAISE"),
    row(plants.a_release_goes_with_the_database, a_release_is_not_forgotten, "placed again"),
    row(
        plants.an_unknown_action_is_refused,
        skew.test_an_unknown_action_is_stored_as_the_weakest,
        "action must be one of",
        **UNKNOWN_ACTION,
    ),
    row(
        plants.an_unknown_command_is_a_mistake,
        skew.test_an_unknown_command_says_that_the_daemon_is_older,
        r"assert \(False, True\) == \(True, False\)",
    ),
    row(
        plants.tunnels_share_a_cookie,
        page_access.test_two_nodes_behind_tunnels,
        r"assert \[False, True\] == \[True, True\]",
    ),
    row(
        plants.what_cannot_be_read_passes,
        not_utf8.test_with_device_rules_no_create_passes_unread,
        "StatusCode.OK",
        way=OnError.PASS,
    ),
    row(plants.each_request_reads_the_token, page_access.test_a_file_that_hangs, "assert 5 == 1"),
]
OWN = [row for row in PLANTS if row.values[1].__module__ == __name__ or row.values[3]]
"""Those that are caught by tests of this file, or with its arguments; all other tests also run by themselves."""


async def run(test: Test, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    """Run a test with the fixtures that it names: of a world, one in which a pod keeps the CPUs of its containers."""
    values = {"tmp_path": tmp_path, "monkeypatch": monkeypatch, "slow": Slow(), **arguments}
    names = inspect.signature(test).parameters
    async with AsyncExitStack() as stack:
        if "world" in names:
            values["world"] = await stack.enter_async_context(World(tmp_path, policy=KEEPING))
        if "node" in names:
            values["node"] = node = static_node(tmp_path)
            await stack.enter_async_context(node.world)
            await node.begun()
            if "first" in names:
                values["first"], _ = await two(node)
        waits = test(**{name: values[name] for name in names})
        if inspect.isawaitable(waits):
            await waits


@pytest.mark.parametrize(("defect", "test", "sentence", "arguments"), PLANTS)
async def test_a_planted_defect_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defect: Callable[[pytest.MonkeyPatch], None],
    test: Test,
    sentence: str,
    arguments: dict[str, Any],
) -> None:
    """Who is to find it fails, and says why."""
    if not sentence:
        monkeypatch.setattr(supervision, "LIMIT_S", SOON_S)
        monkeypatch.setattr(World, "limit_s", SOON_S)
    defect(monkeypatch)
    kinds = (Exception, pytest.fail.Exception) if sentence else TimeoutError
    with pytest.raises(kinds, match=sentence or None):
        await run(test, tmp_path, monkeypatch, arguments)


@pytest.mark.parametrize(("defect", "test", "sentence", "arguments"), OWN)
async def test_nothing_is_caught_without_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defect: object,
    test: Test,
    sentence: str,
    arguments: dict[str, Any],
) -> None:
    """It is the defect that is found."""
    await run(test, tmp_path, monkeypatch, arguments)
