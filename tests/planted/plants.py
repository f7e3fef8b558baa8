"""Ways to bring back defects that were mended; `test_planted` has who finds them, tests/matrix those for the matrix."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from criproxy.api import device_plugin
from criproxy.api.page import access
from criproxy.api.views import status_check as report
from criproxy.cli.render import lazy_rich
from criproxy.cri import api_pb2 as api
from criproxy.cri import sizes, translate
from criproxy.deviceplugin.resources import resource_builder
from criproxy.devices import boundary
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.errors import UsageError
from criproxy.host.patience import Patience
from criproxy.model import resources as units
from criproxy.model.text import annotations
from criproxy.model.text.plain import from_plain
from criproxy.node.calls import create as creating
from criproxy.node.calls.intercepted_calls import Handlers
from criproxy.node.calls.start import Locked, Starts
from criproxy.node.calls.update import Updates
from criproxy.node.configuration import load as configuration
from criproxy.node.configuration import reload as reloading
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceGuard, GuardResult
from criproxy.node.record import outbox as journal
from criproxy.node.record.outbox import Outbox
from criproxy.node.sync.exit_events import ExitEvents
from criproxy.node.sync.outcomes import Outcomes
from criproxy.placement.decision import Step
from criproxy.placement.options import unheeded
from criproxy.placement.policies import static
from criproxy.placement.records import log_line
from criproxy.placement.rules import going_back, kept
from criproxy.process import log
from criproxy.process.control_client import DaemonRefuses
from criproxy.process.tasks import Tasks
from criproxy.store import database, reader, writing
from criproxy.wire.calls import Call, Outcome, Proceed


def plant(patch: pytest.MonkeyPatch, owner: object, name: str, value: Callable[..., Any]) -> None:
    """Plant *value*; it must be called as what it replaces is, or criproxy fails at the call instead of going wrong."""
    has, takes = list(signature(getattr(owner, name)).parameters), list(signature(value).parameters)
    assert has == takes, f"{name} takes {has}, and what is planted takes {takes}"
    patch.setattr(owner, name, value)


def what_cannot_be_read_passes(patch: pytest.MonkeyPatch) -> None:
    """A create with a string that is not UTF-8 goes to the runtime as it came, which may understand it."""

    def passes(self: Any, message: Any, error: Any) -> Any:  # noqa: ANN401 (as they come)
        return Proceed()

    plant(patch, creating.Creates, "_not_utf8", passes)


def what_does_not_fit_is_taken(patch: pytest.MonkeyPatch) -> None:
    """Start and reload take a file whatever the judge says of it and the machine."""
    made = configuration._made

    def broken(report: Any, topology: Any, base: Any, good: Any) -> Any:  # noqa: ANN401 (passed on)
        known = (report.unfit.digest(),) if report.unfit else good
        return made(report, topology, base, known)

    plant(patch, configuration, "_made", broken)


def markup_is_obeyed(patch: pytest.MonkeyPatch) -> None:
    """What tenants write in brackets is markup."""

    def broken(text: str, style: str = "", **keys: Any) -> Text:  # noqa: ANN401 (passed on)
        return Text.from_markup(text, style=style, **keys)

    patch.setattr(lazy_rich, "Text", broken, raising=False)


def numbers_have_no_end(patch: pytest.MonkeyPatch) -> None:
    """A quota is read however large it is, and a row that cannot be written for its value is a failing disk."""

    def endless(quota_us: int, period_us: int) -> int | None:
        return quota_us * 1000 // (period_us or 1) if quota_us > 0 else None

    plant(patch, units, "quota_to_milli", endless)
    plant(patch, writing, "is_of_value", lambda error: False)


def watchers_die(patch: pytest.MonkeyPatch) -> None:
    """Endless work that raises has ended, and nobody hears of it."""

    async def broken(self: Tasks, name: str, loop: Callable[[], Any]) -> None:
        with suppress(Exception):
            await loop()

    plant(patch, Tasks, "keep_going", broken)


def a_task_for_each_question(patch: pytest.MonkeyPatch) -> None:
    """Each failed call about a container asks for it once more."""

    def broken(self: Outcomes, key: str) -> None:
        self.context.tasks.spawn(f"ask for {key}", self.resolve_outcome(key))

    plant(patch, Outcomes, "ask", broken)


def events_wait_for_answers(patch: pytest.MonkeyPatch) -> None:
    """The event stream goes on when the runtime has told of the container of the last event."""

    async def broken(self: ExitEvents, event: api.ContainerEventResponse) -> None:
        await self.outcomes.resolve_outcome(event.container_id)

    plant(patch, ExitEvents, "_apply", broken)


def cards_of_who_runs_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A RemovePodSandbox that failed takes the cards all the same."""
    removed = Handlers.sandbox_removed

    def broken(self: Handlers, remove: api.RemovePodSandboxRequest, outcome: Outcome) -> None:
        self.creates.devices.sandbox_removed(self.context.state.resolve_pod(remove.pod_sandbox_id))
        removed(self, remove, outcome)

    plant(patch, Handlers, "sandbox_removed", broken)


def ids_are_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """A start by the beginning of an id concerns nobody."""

    def broken(self: Starts, call: Call, outcome: Outcome) -> None:
        if isinstance(call.context, Locked):
            self._ended(call.context.key, outcome.kind)
        self.resync.touch(translate.read(api.StartContainerRequest, call.request or b"").container_id)

    plant(patch, Starts, "done", broken)


def words_that_raise_stay_pending(patch: pytest.MonkeyPatch) -> None:
    """An entry of the history that cannot be put into words fails whoever tells of it, and all that come after it."""

    def broken(self: Outbox) -> None:
        item = self._waiting[0]
        if isinstance(item, Step):
            self._publish(item)
        else:
            self._write(journal.record_of(item() if callable(item) else item, self._refusals))
        self._waiting.popleft()

    plant(patch, Outbox, "_next", broken)


def a_reader_makes_files(patch: pytest.MonkeyPatch) -> None:
    """The database is read in its place, where SQLite makes its files."""

    @contextmanager
    def broken(path: Path, busy_s: float) -> Iterator[tuple[sqlite3.Connection, float]]:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=busy_s)) as connection:
            connection.execute("PRAGMA user_version").fetchone()
            yield connection, max(part.stat().st_mtime for part in path.parent.iterdir())

    plant(patch, reader, "_connected", broken)


def lines_have_no_end(patch: pytest.MonkeyPatch) -> None:
    """What is logged and kept is as long as a tenant wants it."""
    patch.setattr(annotations, "MAX_POD_BYTES", 1 << 30)
    patch.setattr(unheeded, "_MOST_NOTES", 1 << 30)
    plant(patch, log, "bounded_text", lambda text, limit=0: text)
    for module in (log_line, journal):
        plant(patch, module, "bounded_texts", lambda texts, most=0, limit=0: tuple(texts))


def no_pod_has_a_total(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads what a sandbox says of its pod as a whole."""
    plant(patch, sizes, "pod_total", lambda resources: 0)


def refused_resizes_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """--check says nothing of a resize for which there is no room."""
    plant(patch, report, "undersized", lambda node, known={}: iter(()))


def a_refused_size_is_a_trap(patch: pytest.MonkeyPatch) -> None:
    """A container that restarts while its resize is refused is refused, too."""
    plant(patch, creating, "as_before", lambda node, new, at_s: None)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The CPUs of a container that crashes are free for all."""
    plant(patch, kept, "with_leaver", lambda node, container, had, policy: node)


def the_fallback_has_what_failed(patch: pytest.MonkeyPatch) -> None:
    """The rule about devices fails the create, and its fallback, since that asks the rule again."""

    async def broken(self: DeviceGuard, request: api.CreateContainerRequest, container: Any) -> GuardResult:  # noqa: ANN401
        return await self._guard(self.rules, request, container) if self.rules else GuardResult()

    plant(patch, DeviceGuard, "guard", broken)


def a_manager_competes_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A create without a cpuset does not tell that the kubelet's manager is off."""
    see = Updates.on_create

    def broken(self: Updates, title: str, cpus: str) -> None:
        if cpus:
            see(self, title, cpus)

    plant(patch, Updates, "on_create", broken)


def what_hangs_is_waited_for_again(patch: pytest.MonkeyPatch) -> None:
    """Whoever looks at a file that is known to hang waits for it, too."""
    begin = Patience.begin

    def broken(self: Patience, name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (passed on)
        look = self._reads.get(name)
        return look.future if look else begin(self, name, work)

    plant(patch, Patience, "begin", broken)


def mounts_need_a_slash(patch: pytest.MonkeyPatch) -> None:
    """A mount asks for cards only below the folder, and not with whatever begins as its name does."""
    asked = DeviceClass.asked_by_mount

    def broken(self: DeviceClass, container_path: str) -> str | None:
        found = asked(self, container_path)
        return found if found and f"/{found}" in container_path else None

    plant(patch, DeviceClass, "asked_by_mount", broken)


def who_is_found_has_no_cards(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks which cards those have at whose create nobody looked."""

    async def broken(self: DeviceGuard, item: Any, info: Any) -> GuardResult:  # noqa: ANN401
        return GuardResult()

    plant(patch, DeviceGuard, "found", broken)


def the_image_shows_all_beside_cdi(patch: pytest.MonkeyPatch) -> None:
    """What an image says of cards stands beside a CDI specification that does not speak of it."""
    plant(patch, boundary._Case, "_beside_cdi", lambda self, asked: None)


def mps_serves_any_number(patch: pytest.MonkeyPatch) -> None:
    """Cards are shared by more clients of MPS than they can serve, and no control daemon starts."""
    plant(patch, resource_builder, "overloaded", lambda offers, gpus, config: {})


def a_release_goes_with_the_database(patch: pytest.MonkeyPatch) -> None:
    """A database that is set aside takes the release of the node with it, and containers are placed again."""
    plant(patch, database, "_release_in", lambda path: {})


def an_unknown_action_is_refused(patch: pytest.MonkeyPatch) -> None:
    """A report of a newer device plugin is lost for a word that the daemon does not know."""

    def strict(kind: type[Any], arguments: dict[str, Any], weakest: object, log: object) -> object:
        del weakest, log
        try:
            return from_plain(kind, arguments)
        except ValueError as error:
            raise UsageError(str(error)) from None

    plant(patch, device_plugin, "report_of", strict)


def an_unknown_command_is_a_mistake(patch: pytest.MonkeyPatch) -> None:
    """The device plugin does not repeat a report whose command only a newer daemon knows."""
    begin = DaemonRefuses.__init__

    def broken(self: DaemonRefuses, text: str, *, wrong: bool, unknown: bool = False) -> None:
        begin(self, text, wrong=wrong or unknown)

    plant(patch, DaemonRefuses, "__init__", broken)


def who_is_found_has_what_the_next_policy_says(patch: pytest.MonkeyPatch) -> None:
    """A container that the state has lost is placed by a policy that is not in force yet."""
    patch.setattr(Context, "is_before_change", False)


def the_previous_one_stays(patch: pytest.MonkeyPatch) -> None:
    """Beside a bad policy file nobody says what is tried."""
    plant(patch, reloading, "in_effect", lambda tried: "the previous one stays in effect")


def what_was_available_is_kept(patch: pytest.MonkeyPatch) -> None:
    """An owner keeps CPUs that are not available any more."""

    def broken(node: Any, container: Any) -> Any:  # noqa: ANN401 (passed on)
        grant = node.grants.get(container.key)
        return grant.exclusive if grant else frozenset()

    plant(patch, static, "_own", broken)


def tunnels_share_a_cookie(patch: pytest.MonkeyPatch) -> None:
    """Whoever opens the page of a second node through a tunnel is thrown out of that of the first one."""
    plant(patch, access, "cookie_name", lambda token: access.COOKIE)


def each_request_reads_the_token(patch: pytest.MonkeyPatch) -> None:
    """A token file that hangs takes all threads of the daemon, one with each request."""
    token = access.Access.token

    async def broken(self: access.Access) -> str:
        self._reading = None
        return await token(self)

    plant(patch, access.Access, "token", broken)


def what_was_missed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Whoever shared for lack of room before a try has all that it should have afterwards, as the tried policy says."""
    plant(patch, going_back, "_owed_as_before", lambda node, back, places: node)


def a_size_without_room_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A container that was resized during a try counts as one of the new size, on the CPUs of the old one."""
    plant(patch, going_back, "_waiting", lambda container, place, at_s: container)
