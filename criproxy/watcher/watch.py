"""The watcher: follows what reports the use of cards, as the policy file says, and tells the daemon."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.devices.plan import PluginPlan, UsageSource
from criproxy.devices.usage_options import unwatched
from criproxy.discovery.patience import Patience
from criproxy.observe.children import Child
from criproxy.observe.logger import Log
from criproxy.observe.tasks import Tasks
from criproxy.usage.totals import ClassUse
from criproxy.usage.values import Quantity
from criproxy.watcher import nvml_usage
from criproxy.watcher.classes import ClassWatch, Names
from criproxy.watcher.daemon import Daemon
from criproxy.watcher.files import FileSource
from criproxy.watcher.grants import Grants
from criproxy.watcher.incidents import KILL, QuotaIncidents
from criproxy.watcher.judging import ClassJudge
from criproxy.watcher.killing import may_kill
from criproxy.watcher.processes import Processes
from criproxy.watcher.programs import ProgramSource, Took, silent_s
from criproxy.watcher.reports import UsageReports
from criproxy.watcher.works import Wanted, Works


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The watcher at one moment, for metrics."""

    problems: Mapping[str, bool] = field(default_factory=dict)
    """By class, whether its use is not known."""
    pending: int = 0
    """Incidents of which the daemon has still to be told."""
    kills: int = 0
    kills_failed: int = 0


class Watcher:
    """Watches the use of the node's cards.

    Args:
        socket: the daemon's control socket.
        host_root: above /proc, and the files that the plan names.
        log: is told of what cannot be watched, and of containers over their quota.
        nvml: the program that queries NVML, to which the period is added.
    """

    def __init__(self, socket: str, host_root: Path, log: Log, nvml: Sequence[str] = nvml_usage.COMMAND) -> None:
        self._log = log
        self._nvml = tuple(nvml)
        self._host_root = host_root
        self._patience = Patience()
        daemon = Daemon(socket, log)
        self._grants = Grants(daemon, log)
        self._incidents = QuotaIncidents(daemon, Processes(host_root), log)
        self._reports = UsageReports(daemon, self._uses)
        self._plan = PluginPlan(advertised=())
        self._classes: dict[str, ClassWatch] = {}
        self._children: dict[tuple[str, ...], Child] = {}
        """By class and command; kept, since one that hangs is not to be started again."""
        self._names: dict[str, Names] = {}
        self._has_nvml = False
        self._nvml_problem = "it is not known yet which cards exist"
        self._changed = asyncio.Event()

    @property
    def sample(self) -> Watched:
        """How it is with it now."""
        return Watched(
            problems={kind: bool(each.use.problem) for kind, each in self._classes.items()},
            pending=self._incidents.pending,
            kills=self._incidents.kills,
            kills_failed=self._incidents.kills_failed,
        )

    def start(self, tasks: Tasks) -> None:
        """Begin to watch."""
        tasks.forever("card usage", partial(self._run, Works(tasks)))
        tasks.forever("quota incidents", self._incidents.run)
        tasks.forever("usage reports", self._reports.run)

    def use(self, plan: PluginPlan) -> None:
        """Watch as *plan* says from now on."""
        before, self._plan = self._plan, plan
        is_same = (plan.usage, plan.quota) == (before.usage, before.quota)
        if not is_same or plan.profiles != before.profiles:
            self._warn(plan)
        if is_same:
            return
        self._reports.period_s = plan.quota.period_s
        self._incidents.stop_timeout_s = plan.quota.stop_timeout_s
        classes, self._classes = self._classes, {source.kind: self._class(source) for source in plan.usage}
        for kind in classes.keys() - self._classes.keys():
            for within in classes[kind].judge.end():
                self._incidents.within(within, kind)
        self._reports.soon()
        self._changed.set()

    def found(self, names: Mapping[str, Names], *, has_nvml: bool, nvml_problem: str = "") -> None:
        """Note which cards there are.

        Args:
            names: by class, the ids of cards by whatever they are called, the ids among it.
            has_nvml: whether there are cards that NVML knows.
            nvml_problem: why it knows none though there are some, or may be.
        """
        self._names = dict(names)
        for kind, each in self._classes.items():
            each.names = self._names.get(kind, {})
        if (has_nvml, nvml_problem) != (self._has_nvml, self._nvml_problem):
            self._has_nvml, self._nvml_problem = has_nvml, nvml_problem
            self._changed.set()

    async def _run(self, works: Works) -> None:
        try:
            while True:
                self._changed.clear()
                await works.use(self._wanted())
                self._rest()
                await self._changed.wait()
        finally:
            await works.use({})

    def _wanted(self) -> dict[str, Wanted]:
        """What has to run now."""
        wanted: dict[str, Wanted] = {}
        period_s = self._plan.quota.period_s
        for source in filter(self._is_used, self._plan.usage):
            watch = self._classes[source.kind]
            loop = partial(self._source, source, period_s, watch)
            wanted[f"usage of {source.kind}"] = Wanted(watch.run)
            wanted[f"usage source of {source.kind}"] = Wanted(loop, same=(source, period_s, watch.run))
        return {**wanted, "card grants": Wanted(self._grants.run)} if wanted else {}

    def _is_used(self, source: UsageSource) -> bool:
        return source.source != "nvml" or self._has_nvml

    def _rest(self) -> None:
        """Say of the classes that nothing watches why that is so: only now, when nothing takes their readings."""
        for source in self._plan.usage:
            if not self._is_used(source):
                self._classes[source.kind].rest(self._nvml_problem)

    async def _source(self, source: UsageSource, period_s: float, watch: ClassWatch) -> None:
        try:
            await self._program(source, period_s, watch.took)
        except Exception as error:
            watch.fail(f"criproxy failed: {error!r}")
            raise

    async def _program(self, source: UsageSource, period_s: float, took: Took) -> None:
        if source.source == "file":
            path = self._host_root / source.file.lstrip("/")
            await FileSource(source.kind, path, took, period_s, self._patience).run()
            return
        is_nvml = source.source == "nvml"
        command = (*self._nvml, f"{period_s:g}") if is_nvml else source.command
        title = "the program that queries NVML" if is_nvml else command[0]
        child = self._children.setdefault((source.kind, source.source, *source.command), Child())
        await ProgramSource(source.kind, command, title, took, silent_s(period_s), child=child).run()

    def _class(self, source: UsageSource) -> ClassWatch:
        """The class as before, if it is the same source: who is over a quota stays so."""
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
            incidents=self._incidents,
            changed=self._reports.soon,
            log=self._log,
        )
        watch.names = self._names.get(source.kind, {})
        return watch

    def _uses(self) -> tuple[ClassUse, ...]:
        return tuple(each.use for each in self._classes.values())

    def _warn(self, plan: PluginPlan) -> None:
        """Say what of the plan cannot be done."""
        for kind in unwatched(plan):
            text = "quotas of a class are not enforced: it has no source of usage data"
            self._log.warning(text, **{"class": kind}, hint="add the class to devices.plugin.usage")
        kinds = {profile.kind for profile in plan.profiles if "watch" in profile.enforce}
        quantities: tuple[Quantity, ...] = ("memory", "cores")
        actions = {plan.quota.action(kind, quantity) for kind in kinds for quantity in quantities}
        if KILL in actions and not may_kill():
            text = "kill-process can only kill processes of root: the unit lacks CAP_KILL"
            self._log.warning(text, hint="see docs/vgpu.md for a drop-in")
