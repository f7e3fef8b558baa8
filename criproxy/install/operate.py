"""`criproxy install` and `criproxy uninstall`, from the look at the node to the last line that people read.

An uninstallation takes the steps of all installations back, and others with which the kubelet calls the runtime: those
are in the journal, too, as steps that do it when they are taken back; so a kill in the middle leaves nothing undone.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.errors import CriproxyError, reason_of
from criproxy.install import kubelet_files, paths
from criproxy.install.host import CommandFailed, Host, former
from criproxy.install.journal import Journal, load, save
from criproxy.install.kubelet import Kubelet, NodeKind, find_kubelet
from criproxy.install.plan import Plan, Request, active_units, configured_runtime, runtime_of, stop_controls, unit_texts
from criproxy.install.policy import policy_notes, wrong_policy
from criproxy.install.steps import KUBELET, PROGRAM, START, Check, File, Folder, Run, Step
from criproxy.install.texts import CannotEdit
from criproxy.install.verification import Checks

_RECOVERED = "An installation or uninstallation was interrupted: what it had begun was taken back."
_NOTHING = "Nothing to do: the kubelet does not call criproxy, and criproxy does not run."
_AS_BEFORE = "criproxy is uninstalled: the node is as it was."
_UNINSTALLED = "criproxy is uninstalled, and the kubelet's endpoint that was set by hand is removed."
_LEFT = (
    "The kubelet calls the runtime, and criproxy is stopped. It was not installed by 'criproxy install', so "
    f"these stay: {paths.POLICY}, {paths.STATE_DIR} and the program."
)


@dataclass(frozen=True, slots=True)
class Operator:
    """Installs and uninstalls on one node."""

    host: Host
    report: Callable[[str], None]
    """Gets the lines for people."""
    kind: NodeKind | None = None
    timeout_s: float = 120.0
    """Of each check."""
    payload: paths.Payload | None = None
    """What can be put on the node; None: what this program has with it."""

    def install(self, request: Request, *, dry_run: bool = False) -> None:
        """Install criproxy, or with *dry_run* tell what this would do.

        Raises:
            CriproxyError: that is impossible, or a step failed; the text says whether the node is as it was.
        """
        if dry_run:
            if load(self.host).is_open:
                self.report("An installation was interrupted. The next one takes it back first; this is the node now.")
            self._planned(request)
            return
        with self.host.lock():
            self._recover()
            plan = self._planned(request)
            if steps := [*plan.steps()]:
                self._take(plan, steps)
                is_changed = any(not isinstance(step, Check) for step in steps)
                self.report(f"{'' if is_changed else 'Nothing to do: '}{_installed(request)}.")

    def uninstall(self, *, dry_run: bool = False, force: bool = False) -> None:
        """Remove what `install` has made, and what else makes the kubelet call criproxy.

        Raises:
            CriproxyError: containers may still be pinned, and there is no *force*; a setting has to be removed by
                hand; or a step failed. The next one continues.
        """
        if dry_run:
            journal, _ = self._removal(load(self.host), force=force)
            titles = [*dict.fromkeys(filter(None, (step.undo_title for step in journal.to_undo())))]
            release_title = f"release all containers: {' '.join(self._release_command())}"
            self._number((release_title, *titles) if titles else ())
            return
        with self.host.lock():
            self._recover()
            installed = load(self.host)
            journal, changes = self._removal(installed, force=force)
            if not journal.steps:
                self.report(_NOTHING)
                return
            self._release(force=force)
            for change in changes:
                self.report(change.title)
            save(self.host, journal)
            self._take_back(journal, force=force)
            self.report(_LEFT if not installed.steps else _UNINSTALLED if changes else _AS_BEFORE)

    def _removal(self, installed: Journal, *, force: bool) -> tuple[Journal, list[File]]:
        """Return the journal of an uninstallation, and its changes of files that are not in the one of installations.

        Raises:
            CriproxyError: something has to be done by hand.
        """
        kubelet, by_hand = find_kubelet(self.host, self.kind), not installed.steps
        journal = replace(installed, completed=0)
        try:
            changes = _changes_by_others(kubelet, journal, force=force)
        except CannotEdit as error:
            raise CriproxyError(str(error)) from error
        if by_hand and not self.host.exists(paths.PACKAGE_LIST):
            files = (paths.CRIO_DROP_IN, *(f"{paths.UNIT_FOLDER}/{name}" for name in sorted(unit_texts(self.host))))
            changes += [File(path, None, "a unit of criproxy") for path in files if self.host.read(path) is not None]
        runs = list[Run]()
        if changes or (by_hand and active_units(self.host)):
            restart = ("systemctl", "restart", kubelet.unit)
            runs += [Run("let systemd read the kubelet's unit", KUBELET, undo_command=paths.RELOAD)]
            runs += [Run("restart the kubelet", KUBELET, undo_command=restart)]
            runs += [Run("stop criproxy", START, undo_command=paths.STOP)] if unit_texts(self.host) else []
        if self.host.exists(paths.CONTROLS_STATE_DIR) and paths.CONTROLS in unit_texts(self.host):
            runs += stop_controls()
        if any(change.part == PROGRAM for change in changes):
            runs += [Run("let systemd forget the units", PROGRAM, undo_command=paths.RELOAD)]
        inverse = [change.inverse(self.host) for change in reversed(changes)]
        return replace(journal, steps=(*journal.steps, *runs, *inverse)).for_removal(), changes

    def _recover(self) -> None:
        """Take back what a process that ended in the middle has begun."""
        journal = load(self.host)
        self.host.forget_temporary(paths.JOURNAL)
        if journal.is_open:
            self._take_back(journal)
            self.report(_RECOVERED)
        else:
            self._clean(journal)

    def _clean(self, journal: Journal) -> None:
        """Remove what completed steps have kept for the case that they are taken back."""
        for step in journal.steps:
            if isinstance(step, Folder) and step.source:
                self.host.remove_tree(former(step.path))

    def _take(self, plan: Plan, steps: Sequence[Step]) -> None:
        """Take all *steps*; if one fails, take back those that were begun."""
        journal, since_s = load(self.host), time.time()
        checks = Checks(self.host, self.timeout_s, plan.kubelet, plan.request.read_node)
        try:
            for planned in steps:
                step = planned.begun(self.host) if isinstance(planned, File | Folder) else planned
                if step.title:
                    self.report(step.title)
                if isinstance(step, Check):
                    checks(step, since_s)
                    continue
                journal = replace(journal, steps=(*journal.steps, step))
                save(self.host, journal)
                since_s = time.time()
                step.apply(self.host)
            if journal.is_open:
                save(self.host, replace(journal, completed=len(journal.steps)))
        except BaseException as error:
            if journal.is_open:
                self._go_back(journal, error)
            raise
        try:
            self._clean(journal)
        except OSError as error:
            reason = reason_of(error, with_path=True)
            self.report(f"note: a copy of the former version stays until the next run of this command: {reason}")

    def _go_back(self, journal: Journal, error: BaseException) -> None:
        self.report(f"failed: {reason_of(error, with_path=True)}; going back")
        try:
            self._take_back(journal)
        except (OSError, CriproxyError) as second:
            raise CriproxyError(
                f"{reason_of(error, with_path=True)}; some steps could not be undone, so the node is not as it was "
                f"before: {reason_of(second, with_path=True)}; correct the cause, and run 'criproxy uninstall'"
            ) from error

    def _take_back(self, journal: Journal, *, force: bool = False) -> None:
        """Take back all steps that are not completed, part by part.

        Raises:
            CriproxyError: one could not be taken back; it and the others are in the journal for the next time.
        """
        for step in journal.to_undo():
            try:
                self._undo(step, force=force)
            except (OSError, CriproxyError, CannotEdit) as error:
                raise CriproxyError(f"{step.undo_title or step.title}: {reason_of(error, with_path=True)}") from error
            journal = journal.without(step)
            with suppress(OSError):  # a full disk: the next run repeats what was taken back
                save(self.host, journal)
        save(self.host, replace(journal, steps=journal.steps[: journal.completed]))

    def _undo(self, step: File | Folder | Run, *, force: bool) -> None:
        if not isinstance(step, Run):
            if note := step.undo(self.host, force=force):
                self.report(note)
            return
        self.report(f"  {step.undo_title}")
        try:
            self.host.must(step.undo_command)
        except CommandFailed as error:
            if step.undo_command[0] != paths.PROGRAM:  # without the release, containers stay where they are
                raise
            self.report(f"  {error}")

    def _planned(self, request: Request) -> Plan:
        """Tell what there is on the node and what is to be done.

        Raises:
            CriproxyError: something stands against an installation.
        """
        kubelet = find_kubelet(self.host, self.kind)
        plan = Plan(kubelet, request, self.payload or paths.payload_for(self.host.root), load(self.host))
        notes = (*plan.notes(), *policy_notes(plan))
        for line in (*plan.about(), *(f"note: {note}" for note in notes)):
            self.report(line)
        if problems := [*plan.problems(), *wrong_policy(plan)]:
            raise CriproxyError("\n".join(("criproxy cannot be installed:", *(f"- {each}" for each in problems))))
        titles = [step.title for step in plan.steps()]
        if not titles:
            self.report(f"Nothing to do: {_installed(request)}.")
        self._number(filter(None, titles))
        return plan

    def _number(self, titles: Iterable[str]) -> None:
        for number, title in enumerate(titles, 1):
            self.report(f"{number:3}. {title}")

    def _release_command(self) -> paths.Command:
        return paths.release(runtime_of(find_kubelet(self.host, self.kind)))

    def _release(self, *, force: bool) -> None:
        """Unpin all containers.

        Raises:
            CriproxyError: some may still be pinned, and there is no *force*.
        """
        self.report("release all containers")
        try:
            self.host.must(self._release_command())
        except CommandFailed as error:
            if not force:
                raise CriproxyError(
                    f"nothing was changed, because containers may still be pinned: {error}; "
                    "--force uninstalls criproxy all the same"
                ) from error
            self.report(f"containers may still be pinned: {error}")


def _installed(request: Request) -> str:
    return f"criproxy is installed, and the {'runtime asks' if request.nri else 'kubelet calls'} it"


def _changes_by_others(kubelet: Kubelet, journal: Journal, *, force: bool) -> list[File]:
    """Return the changes that are needed so that the kubelet does not call criproxy once *journal* is taken back.

    Raises:
        CannotEdit: something has to be done by hand.
    """
    texts = dict[str, str | None]()
    for step in journal.to_undo():
        if isinstance(step, File) and step.part == KUBELET:
            now = texts.get(step.path, kubelet.host.read(step.path))
            try:
                texts[step.path] = step.restored(now, force=force)
            except CannotEdit as error:
                raise CannotEdit(f"{step.path}: {error}") from error
    after = kubelet.with_texts(texts)
    if journal.steps and not paths.is_ours(after.endpoint):
        return []
    return kubelet_files.to_runtime(after, configured_runtime(kubelet.host), texts)
