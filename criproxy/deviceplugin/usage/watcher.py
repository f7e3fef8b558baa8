"""The watcher: reads the use of cards from the sources that the policy file names, and reports it to the daemon."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.deviceplugin.daemon_client.asking import REPORT_TIMEOUT_S, DaemonClient
from criproxy.deviceplugin.usage import nvml_usage
from criproxy.deviceplugin.usage.class_judge import ClassJudge
from criproxy.deviceplugin.usage.class_watch import ClassWatch, Names
from criproxy.deviceplugin.usage.grants_client import Grants
from criproxy.deviceplugin.usage.processes import Processes
from criproxy.deviceplugin.usage.quota_incidents import KILL, QuotaIncidents, may_kill
from criproxy.deviceplugin.usage.sources import FileSource, ProgramSource, TakeReading, silent_s
from criproxy.devices.plugin.plan import PluginPlan, UsageSource
from criproxy.devices.usage.values import QUANTITIES, ClassUse, UsageReport, plain_report
from criproxy.host.nvml import INITIALISED_S
from criproxy.host.patience import Patience
from criproxy.process.children import Child
from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from criproxy.process.logger import Log
from criproxy.process.tasks import PART_S, Tasks, Work, wait_at_most

COMMAND = "device-usage"
REPEAT_S = 3.0
"""After so long, an unchanged use is reported again: the daemon may have been restarted, and considers a report
outdated after three periods and five seconds."""


WantedTasks = Mapping[str, tuple[object, Callable[[], Work]]]
"""By name, what a task depends on, and its loop: a running task goes on while what it depends on is equal."""


class Watcher:
    """Watches the use of the node's cards.

    Args:
        socket: the daemon's control socket.
        host_root: the root directory of /proc, and of the files that the plan names.
        log: gets what cannot be watched, and the containers over their quota.
        nvml: the command that queries NVML; the period is added as the last argument.
    """

    def __init__(self, socket: str, host_root: Path, log: Log, nvml: Sequence[str] = nvml_usage.COMMAND) -> None:
        self._log = log
        self._nvml = tuple(nvml)
        self._host_root = host_root
        self._patience = Patience()
        daemon = DaemonClient(socket, log)
        self._grants = Grants(daemon, log)
        self.incidents = QuotaIncidents(daemon, Processes(host_root), log)
        self._reports = UsageReports(daemon, lambda: tuple(each.use for each in self._classes.values()))
        self._plan = PluginPlan(advertised=())
        self._classes: dict[str, ClassWatch] = {}
        self._children: dict[tuple[str, ...], Child] = {}
        """By class and command; kept, since a program that hangs must not be started again."""
        self._names: dict[str, Names] = {}
        self._has_nvml = False
        self._nvml_problem = "it is not known yet which cards exist"
        self._changed = asyncio.Event()
        self._running: dict[str, tuple[object, asyncio.Task[None]]] = {}
        """By name, what a task depends on, and the task."""

    @property
    def problems(self) -> Mapping[str, bool]:
        """By class, whether its use is unknown."""
        return {kind: bool(each.use.problem) for kind, each in self._classes.items()}

    def start(self, tasks: Tasks) -> None:
        """Start the background tasks."""
        tasks.forever("card usage", partial(self._run, tasks))
        tasks.forever("quota incidents", self.incidents.run)
        tasks.forever("usage reports", self._reports.run)

    def use(self, plan: PluginPlan) -> None:
        """Apply another *plan* from now on."""
        before, self._plan = self._plan, plan
        is_same = (plan.usage, plan.quota) == (before.usage, before.quota)
        if not is_same or plan.profiles != before.profiles:
            self._warn(plan)
        if is_same:
            return
        self._reports.period_s = plan.quota.period_s
        self.incidents.stop_timeout_s = plan.quota.stop_timeout_s
        classes, self._classes = self._classes, {source.kind: self._class(source) for source in plan.usage}
        for kind in classes.keys() - self._classes.keys():
            for within in classes[kind].judge.end():
                self.incidents.within(within, kind)
        self._reports.soon()
        self._changed.set()

    def set_cards(self, names: Mapping[str, Names], *, has_nvml: bool, nvml_problem: str = "") -> None:
        """Set which cards exist.

        Args:
            names: by class, the ids of cards by all their names, of which the id is one.
            has_nvml: whether NVML lists any cards.
            nvml_problem: why NVML lists none although there are or may be some.
        """
        self._names = dict(names)
        for kind, each in self._classes.items():
            each.names = self._names.get(kind, {})
        if (has_nvml, nvml_problem) != (self._has_nvml, self._nvml_problem):
            self._has_nvml, self._nvml_problem = has_nvml, nvml_problem
            self._changed.set()

    async def _run(self, tasks: Tasks) -> None:
        try:
            while True:
                self._changed.clear()
                await self._run_only(self._wanted(), tasks)
                for source in self._plan.usage:  # only now: sources that have just ended might set something else
                    if not self._is_used(source):
                        self._classes[source.kind].idle(self._nvml_problem)
                await self._changed.wait()
        finally:
            await self._run_only({}, tasks)

    async def _run_only(self, wanted: WantedTasks, tasks: Tasks) -> None:
        """Run exactly these tasks; return when all others have ended, or after `PART_S`."""
        ended = [name for name, (has, _) in self._running.items() if name not in wanted or wanted[name][0] != has]
        ending = [self._running.pop(name)[1] for name in ended]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=PART_S)
        for name, (needs, loop) in wanted.items():
            if name not in self._running:
                self._running[name] = needs, tasks.begin(name, tasks.keep_going(name, loop))

    def _wanted(self) -> WantedTasks:
        """Return the tasks that have to run now."""
        wanted: dict[str, tuple[object, Callable[[], Work]]] = {}
        period_s = self._plan.quota.period_s
        for source in filter(self._is_used, self._plan.usage):
            watch = self._classes[source.kind]
            loop = partial(self._run_source, source, period_s, watch)
            wanted[f"usage of {source.kind}"] = watch.run, watch.run
            wanted[f"usage source of {source.kind}"] = (source, period_s, watch.run), loop
        return {**wanted, "card grants": (self._grants.run, self._grants.run)} if wanted else {}

    def _is_used(self, source: UsageSource) -> bool:
        return source.source != "nvml" or self._has_nvml

    async def _run_source(self, source: UsageSource, period_s: float, watch: ClassWatch) -> None:
        try:
            await self._source(source, period_s, watch.take).run()
        except Exception as error:
            watch.fail(f"criproxy failed: {error!r}")
            raise

    def _source(self, source: UsageSource, period_s: float, take: TakeReading) -> FileSource | ProgramSource:
        if source.source == "file":
            path = self._host_root / source.file.lstrip("/")
            return FileSource(source.kind, path, take, period_s, self._patience)
        is_nvml = source.source == "nvml"
        command = (*self._nvml, f"{period_s:g}") if is_nvml else source.command
        title = "the program that queries NVML" if is_nvml else command[0]
        child = self._children.setdefault((source.kind, source.source, *source.command), Child())
        first_s = INITIALISED_S if is_nvml else 0.0
        return ProgramSource(source.kind, command, title, take, silent_s(period_s), child=child, first_s=first_s)

    def _class(self, source: UsageSource) -> ClassWatch:
        """Return the watch of a class: the existing one if its source is the same, which keeps its incidents."""
        before = self._classes.get(source.kind)
        judge = before.judge if before else ClassJudge(source.kind, self._plan.quota)
        judge.use(self._plan.quota)
        if before is not None and before.source == source.source:
            return before
        watch = ClassWatch(
            judge=judge,
            source=source.source,
            processes=Processes(self._host_root),
            patience=self._patience,
            grants=self._grants,
            incidents=self.incidents,
            changed=self._reports.soon,
            log=self._log,
        )
        watch.names = self._names.get(source.kind, {})
        return watch

    def _warn(self, plan: PluginPlan) -> None:
        """Log the parts of the plan that cannot be carried out."""
        for kind in plan.unwatched:
            text = "quotas of a class are not enforced: it has no source of usage data"
            self._log.warning(text, **{"class": kind}, hint="add the class to devices.plugin.usage")
        actions = {plan.quota.action(kind, quantity) for kind in plan.watched for quantity in QUANTITIES}
        if KILL in actions and not may_kill():
            text = "kill-process can only kill processes of root: the unit lacks CAP_KILL"
            self._log.warning(text, hint="see docs/vgpu.md for a drop-in")


@dataclass(slots=True, repr=False)
class UsageReports:
    """Sends the reports.

    Args:
        daemon: gets the reports.
        uses: returns the current use of each class.
        period_s: the minimum time between two reports.
        repeat_s: the time after which an unchanged use is reported again.
    """

    daemon: DaemonClient
    uses: Callable[[], tuple[ClassUse, ...]]
    period_s: float = 1.0
    repeat_s: float = REPEAT_S
    _reported: tuple[ClassUse, ...] | None = None
    _reported_s: float = 0.0
    _begun_s: float = 0.0
    """When the last report was due."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: ControlClient = field(init=False)

    def __post_init__(self) -> None:
        self._connection = ControlClient(self.daemon.socket, REPORT_TIMEOUT_S)

    def soon(self) -> None:
        """Report soon: the use may have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Report changes, and regularly without any, as when there are no more readings."""
        try:
            while True:
                await wait_at_most(self.repeat_s, self._wanted.wait())
                left_s = self._begun_s + self.period_s / 2 - time.monotonic()
                if left_s > 0:
                    await asyncio.sleep(left_s)
                self._wanted.clear()
                self._begun_s = time.monotonic()
                await self.report()
        finally:
            self._connection.close()

    async def report(self) -> None:
        """Report the current use, if it has changed or the last report is old.

        A watcher that watches nothing reports that once, and only to a daemon with an earlier report: it may need no
        daemon.
        """
        uses, now_s = self.uses(), time.monotonic()
        if not uses and not self._reported:
            return
        if uses == self._reported and now_s - self._reported_s < self.repeat_s:
            return
        report = UsageReport(at_s=time.time(), period_s=self.period_s, classes=uses)
        try:
            with self.daemon.logged(COMMAND):
                await self._connection.ask(COMMAND, plain_report(report))
        except (NoDaemon, DaemonRefuses):
            self._reported = None
        else:
            self._reported, self._reported_s = uses, now_s
