"""The configuration of this node for the controller: the policy, and the settings in its file.

No file comes into force that `criproxy check` rejects: start and reload use the same function (`config.load.judge`)
with the same machine. Only a file that was good before may require CPUs or devices that the machine does not have.
"""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.errors import ConfigError
from criproxy.host.machine import host_reader
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.text.sources import hash_of
from criproxy.node.settings import Adopt, Loaded, OnError, Promote, Settings
from criproxy.placement.checked_policy import CheckedPolicy
from criproxy.placement.options.policy_options import Options
from criproxy.placement.options.usable import HostReader
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.process.logger import Log
from criproxy.store.configurations import GoodFile

if TYPE_CHECKING:  # imported only where there is a file
    from criproxy.config.load import Report

DEFAULT_CONFIG = Path("/etc/criproxy/policy.yaml")
FALLBACK = "fallback"
"""The name of the policy that is in force where no file can be used."""
_LOGGED = 10
"""Mistakes that are logged, a line each."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of one policy file."""

    policy: Policy
    settings: Settings
    source: Path | None
    """None: there is no file, so that no container is placed."""
    misfits: tuple[str, ...] = ()
    """What the file requires but the machine no longer has, with the location in the file."""
    good: GoodFile = field(default_factory=GoodFile)
    """The file to save for the next start; empty unless all of it is in force."""
    said: GoodFile = field(default_factory=GoodFile)
    """What the file in force says, also where the machine lacks something; empty without a file."""
    problem: str = ""
    """Why the file of this node is not in force, one line for each mistake; empty if it is."""
    instead: str = ""
    """Which configuration is in force instead, in a sentence for people."""
    file_hash: str = ""
    """As `Loaded.hash`; empty where no file is in force."""

    def loaded(self, before: Loaded | None = None) -> Loaded:
        """What to show as the file in effect from now on; *before* if it is the same one."""
        file = str(self.source or "")
        if before is not None and (before.file, before.hash) == (file, self.file_hash):
            return before
        return Loaded(file, self.file_hash, time.time())

    @property
    def named(self) -> dict[str, str]:
        """How the log names the file."""
        return {"file": str(self.source or ""), "hash": self.file_hash}

    def log_to(self, log: Log) -> None:
        """Log the configuration in force, and as errors what differs from the file."""
        log_mistakes(log, self.problem, self.instead)
        if self.source is None and not self.problem:
            log.warning("no policy file: no container is placed", file=str(DEFAULT_CONFIG), policy="none")
            return
        for misfit in self.misfits:
            event = "the machine does not have everything that the policy file names"
            log.error(event, file=str(self.source), missing=misfit)
        log.info("policy loaded", policy=self.settings.policy_name, **self.named)


def log_mistakes(log: Log, problem: str, instead: str) -> None:
    """Log why a policy file is not in force, one line for each mistake, and what is in force *instead*."""
    mistakes = problem.splitlines()
    for mistake in mistakes[:_LOGGED]:
        log.error("the policy file cannot be used", instead=instead, mistake=mistake)
    if more := len(mistakes[_LOGGED:]):
        log.error("the policy file has more mistakes, which criproxy check lists", more=more)


class BadFile(ConfigError):
    """The policy file of this node cannot be used; the text has one line for each mistake."""

    def __init__(self, text: str, report: "Report | None" = None) -> None:
        super().__init__(text)
        self.report = report
        """The report about the file; None if it was not found."""


def failed_at(error: Exception) -> BadFile:
    """Return that the policy file cannot be used, since criproxy failed at it with an unexpected *error*."""
    return BadFile(f"criproxy failed at the policy file: {error!r}")


def load_configuration(
    config: Path | None, topology: Topology, base: Settings, *, required: bool = False, good: Collection[str] = ()
) -> Configuration:
    """Read the policy file of this node and check it. May block; imports modules that only files need.

    Args:
        config: a file or directory; None: `DEFAULT_CONFIG`, which may be absent.
        topology: the machine.
        base: settings that files do not set.
        required: whether a missing file is an error, because there was one before.
        good: `Settings.configuration` of files that were good: from such a file, CPUs and devices that the machine no
            longer has are omitted, as long as some remain.

    Raises:
        BadFile: the file is invalid, or missing although *required*.
    """
    if config is None and not required and not os.path.lexists(DEFAULT_CONFIG):
        return without_file(base)
    from criproxy.config.files import choose
    from criproxy.config.load import examine

    try:
        choice = choose(config or DEFAULT_CONFIG, os.uname().nodename)
    except ConfigError as error:
        raise BadFile(str(error)) from error
    report = examine(choice, topology, host_reader(base.host_root))
    return _made(report, topology, base, good)


def without_file(base: Settings) -> Configuration:
    """Return the configuration of a node that has never had a policy file: no container is placed."""
    none = replace(base, policy_name="none", configuration="", apply_all=False, devices=None)
    return Configuration(NonePolicy(Options()), none, None)


def candidate(text: str, source: str, topology: Topology, base: Settings) -> Configuration:
    """Return the configuration of a file that may come into force, by its *text*. May block.

    Raises:
        BadFile: the file is invalid, or needs something that the machine does not have.
    """
    from criproxy.config.files import Choice
    from criproxy.config.load import judge

    report = judge(text, Choice(Path(source), "it was named"), topology, host_reader(base.host_root))
    return _made(report, topology, base, ())


def configuration_instead(bad: BadFile, good: GoodFile | None, topology: Topology, base: Settings) -> Configuration:
    """Return the configuration for a start with a *bad* file: the last *good* one or the fallback. May block.

    Args:
        bad: the mistakes in the file.
        good: the last file that was in force; None if none is known.
        topology: the machine.
        base: settings that files do not set, with the node's `configuration`: the fallback does not change it.
    """
    if (report := bad.report) is not None:
        before = (base.configuration, good.configuration if good else "")
        with suppress(BadFile), _unless_failed():  # a node that lost a CPU over a reboot must come up
            return _made(report, topology, base, before)
    why = "no good one is known"
    if good is not None and good.text:
        try:
            last = rebuilt(good, topology, base)
        except BadFile as error:
            first, _, _ = str(error).partition("\n")
            why = f"the last good one cannot be used here ({first})"
        else:
            return replace(last, problem=str(bad), instead=last_good(good.source), good=good)
    from criproxy.config.load import devices_alone

    devices = devices_alone(bad.report.text if bad.report else None)
    settings = replace(base, policy_name=FALLBACK, devices=devices.rules() if devices is not None else None)
    text = f"{why}: placed containers keep their places, and new containers share the CPUs that are not exclusive"
    return Configuration(Fallback(), settings, None, problem=str(bad), instead=text)


def last_good(source: str) -> str:
    """Return the sentence that the last good file, read from *source*, is in effect."""
    return f"the last good one, read from {source}, is in effect"


@contextmanager
def _unless_failed() -> Iterator[None]:
    """Raise BadFile for any exception, also an unexpected one: a defect must not cost the node its CRI socket."""
    try:
        yield
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"criproxy failed at it: {error!r}") from error


@_unless_failed()
def rebuilt(good: GoodFile, topology: Topology, base: Settings) -> Configuration:
    """Return the configuration of a file that was in force before. May block.

    Raises:
        BadFile: the machine no longer has what it needs, or criproxy fails at it.
    """
    from criproxy.config.files import Choice
    from criproxy.config.load import judge

    host = host_reader(base.host_root)
    known = parse_cpuset(good.available) if good.available else None

    def cgroup(path: str) -> CpuSet | None:
        cpus = host.cgroup(path)
        return known if cpus is None else cpus

    reader = HostReader(cgroup, host.device, host.controllable, was_good=True)
    report = judge(good.text, Choice(Path(good.source), "it was good"), topology, reader)
    return _made(report, topology, base, (report.unfit.digest(),) if report.unfit else ())


def _made(report: "Report", topology: Topology, base: Settings, good: Collection[str]) -> Configuration:
    """Return the configuration of a checked file; raise BadFile."""
    file, policy = report.settings, report.policy
    misfits: tuple[str, ...] = ()
    if report.unfit is not None and report.unfit.digest() in good and report.unfit.options.rest(topology):
        file = report.unfit
        try:
            policy = file.build_policy()
        except ConfigError as error:
            raise BadFile(str(error), report) from error
        misfits = tuple(mistake.located(report.choice.file) for mistake in report.mistakes)
    if file is None or policy is None:
        raise BadFile(str(report.error), report)
    common = file.common
    settings = replace(
        base,
        policy_name=common.policy,
        on_error=OnError(common.on_error),
        adopt=Adopt(common.adopt),
        promote=Promote(common.promote or ""),
        apply_all=common.apply == "all",
        devices=common.devices.rules() if common.devices is not None else None,
        configuration=file.digest(),
    )
    policy = CheckedPolicy(policy, common.policy, file.options) if file.external else policy
    available = file.options.available_resources.cpu
    cpus = available.cpus if available and available.cgroup else None
    text, known = report.text or "", format_cpuset(cpus or frozenset())
    said = GoodFile(text=text, source=str(file.source), configuration=settings.configuration, available=known)
    kept = GoodFile() if misfits else said  # save only what fits the whole machine
    return Configuration(policy, settings, file.source, misfits, kept, said, file_hash=hash_of(text))
