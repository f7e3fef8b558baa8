"""Takes steps and takes them back. Each step is in the journal before it is begun, and every undo can be repeated."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.errors import CriproxyError, reason_of
from criproxy.install.host import CommandFailed, Host
from criproxy.install.journal import Before, Entry, Journal, JournalFile
from criproxy.install.planning import edits
from criproxy.install.planning.steps import Check, Copy, Made, Remove, Run, Step, Write


@dataclass(frozen=True, slots=True)
class Runner:
    """Takes the steps of one node."""

    host: Host
    file: JournalFile
    check: Callable[[Check, float], None]
    """Gets the time in seconds since the epoch at which the last commands began; raises CriproxyError if not so."""
    tell: Callable[[str], None]
    """Gets a line for people for each step."""

    def install(self, steps: Sequence[Step]) -> None:
        """Take all *steps*; if one fails, take back those that were begun.

        Raises:
            CriproxyError: a step failed; the text says whether the node is as it was.
        """
        journal = self.file.load()
        since_s = time.time()
        try:
            for step in steps:
                if isinstance(step, Run) and step.do:
                    since_s = time.time()
                if step.title:
                    self.tell(step.title)
                journal = replace(journal, entries=(*journal.entries, Entry(step, self._before(step))))
                self.file.save(journal)
                self._do(step, since_s)
            self.file.save(_completed(journal))
        except BaseException as error:
            self._go_back(journal, error)
            raise
        try:
            self.clean()
        except OSError as error:
            reason = reason_of(error, with_path=True)
            self.tell(f"note: a copy of the former version stays until the next run of this command: {reason}")

    def remove(self, steps: Sequence[Step]) -> None:
        """Take *steps* that are not to be taken back, since they can be repeated."""
        for step in steps:
            self.tell(step.title)
            self._do(step, time.time())

    def uninstall(self, journal: Journal, *, force: bool = False) -> None:
        """Take back all steps of *journal*, which replaces the one in the file.

        Args:
            journal: with what else is to be taken back.
            force: also remove files that others have changed since.

        Raises:
            CriproxyError: one could not be taken back; the others are in the journal for the next time.
        """
        journal = replace(journal, completed=0, removing=True)
        self.file.save(journal)
        self._take_back(journal, force=force)

    def recover(self) -> bool:
        """Take back what a process that ended in the middle has begun; returns whether there was any."""
        journal = self.file.load()
        self.host.forget_temporary(self.file.name)
        if journal.is_open:
            self._take_back(journal)
        elif journal.entries:
            self.clean()
        return journal.is_open

    def clean(self) -> None:
        """Remove what completed steps have kept for the case that they are taken back."""
        for entry in self.file.load().entries:
            if isinstance(entry.step, Copy):
                self.host.remove_tree(_former(entry.step))

    def _go_back(self, journal: Journal, error: BaseException) -> None:
        self.tell(f"failed: {reason_of(error, with_path=True)}; going back")
        try:
            self._take_back(journal)
        except (OSError, CriproxyError) as second:
            raise CriproxyError(
                f"{reason_of(error, with_path=True)}; some steps could not be undone, so the node is not as it was "
                f"before: {reason_of(second, with_path=True)}; correct the cause, and run 'criproxy uninstall'"
            ) from error

    def _take_back(self, journal: Journal, *, force: bool = False) -> None:
        """Take back all entries that are not completed, the last one first."""
        begun = {entry.step.what for entry in journal.entries if isinstance(entry.step, Run)}
        for entry in reversed(journal.entries[journal.completed : len(journal.entries) - journal.undone]):
            try:
                self._undo(entry, begun, journal, force=force)
            except (OSError, CriproxyError, edits.CannotEdit) as error:
                title, reason = undo_title(entry) or entry.step.title, reason_of(error, with_path=True)
                raise CriproxyError(f"{title}: {reason}") from error
            journal = replace(journal, undone=journal.undone + 1)
            with suppress(OSError):  # a full disk: the next run repeats what was taken back
                self.file.save(journal)
        if journal.completed:
            self.file.save(Journal(journal.entries[: journal.completed], journal.completed))
        else:
            self.file.delete()

    def _before(self, step: Step) -> Before:
        match step:
            case Write(path=path) | Remove(path=path):
                folders = tuple(self.host.missing_folders(path))
                content = self.host.content(path)
                if content is None:
                    return Before(folders=folders)
                return Before(content, self.host.attributes(path), existed=True)
            case Copy(path=path) | Made(path=path):
                return Before(existed=self.host.exists(path), folders=tuple(self.host.missing_folders(path)))
            case _:
                return Before()

    def _do(self, step: Step, since_s: float) -> None:
        match step:
            case Write():
                self.host.write(step.path, _bytes(step.text), mode=step.mode)
            case Remove():
                self.host.remove(step.path)
                self.host.remove_folders([step.path.rpartition("/")[0]] if step.path.count(".d/") else [])
            case Copy():
                self._copy(step)
            case Run():
                for command in step.do:
                    self.host.must(command)
            case Check():
                self.check(step, since_s)

    def _copy(self, step: Copy) -> None:
        self.host.remove_tree(_new(step))
        self.host.copy_tree(step.source, _new(step))
        if self.host.exists(step.path):
            self.host.rename(step.path, _former(step))
        self.host.rename(_new(step), step.path)

    def _undo(self, entry: Entry, begun: set[str], journal: Journal, *, force: bool) -> None:
        step, before = entry.step, entry.before
        match step:
            case Write():
                self._undo_write(step, before, force=force)
            case Remove() if before.content is not None and not self.host.exists(step.path):
                self.host.write(step.path, before.content, before.node)
            case Copy():
                self._undo_copy(step, before)
            case Made() if not before.existed:
                self.host.remove_tree(step.path)
            case Run() if not step.undo_if or step.undo_if in begun:
                self._undo_run(step, journal)
        self.host.remove_folders(before.folders)

    def _undo_write(self, step: Write, before: Before, *, force: bool) -> None:
        self.host.forget_temporary(step.path)
        now = self.host.content(step.path)
        after = content_after(step, before, now, force=force)
        if after == now:
            if step.keep and now not in (None, before.content):
                self.tell(f"{step.path} was changed since and stays")
        elif after is None:
            self.host.remove(step.path)
        else:
            is_shared = bool(step.setting) and now != _bytes(step.text) and not force
            self.host.write(step.path, after, None if is_shared else before.node)

    def _undo_copy(self, step: Copy, before: Before) -> None:
        self.host.remove_tree(_new(step))
        if not before.existed:
            self.host.remove_tree(step.path)
        elif self.host.exists(_former(step)):
            self.host.remove_tree(step.path)
            self.host.rename(_former(step), step.path)

    def _undo_run(self, step: Run, journal: Journal) -> None:
        if step.may_fail and journal.removing:
            return  # done before, where a failure still counted
        for command in step.undo:
            self.tell(f"  {' '.join(command)}")
            try:
                self.host.must(command)
            except CommandFailed as error:
                if not step.may_fail:
                    raise
                self.tell(f"  {error}")


def content_after(step: Write, before: Before, now: bytes | None, *, force: bool) -> bytes | None:
    """Return the content of a file that has the content *now*, after *step* is taken back; None: there is no file.

    Raises:
        CannotEdit: others have changed the file so that our setting has to be removed by hand.
    """
    if now in (None, before.content):
        return now
    if now == _bytes(step.text) or force or not (step.keep or step.setting):
        return before.content
    if step.keep:
        return now
    former = (before.content or b"").decode("utf-8", "surrogateescape")
    return _bytes(edits.taken_back(step.setting, former, now.decode("utf-8", "surrogateescape")))


def undo_title(entry: Entry) -> str:
    """Return what taking back a step does, in a sentence; empty if it does nothing."""
    match entry.step:
        case Write(path=path):
            return f"remove {path}" if entry.before.content is None else f"restore {path}"
        case Remove(path=path):
            return f"restore {path}" if entry.before.existed else ""
        case Copy(path=path) | Made(path=path):
            return "" if entry.before.existed else f"remove {path}"
        case Run(undo=undo, may_fail=False):
            return "; ".join(" ".join(command) for command in undo)
        case _:
            return ""


def _completed(journal: Journal) -> Journal:
    """Return the journal of a completed installation: only what an uninstallation takes back, and once."""
    begun = {entry.step.what for entry in journal.entries if isinstance(entry.step, Run)}
    kept = dict[object, Entry]()
    for number, entry in enumerate(journal.entries):
        match entry.step:
            case Run(undo=undo, undo_if=condition) as step if undo and (not condition or condition in begun):
                kept.setdefault(undo, Entry(replace(step, undo_if=""), entry.before))
            case Copy(path=path) | Made(path=path):
                kept.setdefault(path, entry)
            case Write() | Remove():
                kept[number] = entry
    return Journal(tuple(kept.values()), len(kept))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _new(step: Copy) -> str:
    return f"{step.path}.criproxy-install"


def _former(step: Copy) -> str:
    return f"{step.path}.before-criproxy-install"
