"""The steps of an installation as values, which do something to a node and take it back. Every undo can be repeated."""

from dataclasses import dataclass, replace

from criproxy.install.host import Attributes, Host
from criproxy.install.paths import Command
from criproxy.install.texts import with_former

KUBELET, START, PROGRAM = PARTS = ("kubelet", "start", "program")
"""The parts of an installation, as they are taken back: the kubelet's files, criproxy's start with what the runtime
needs for it, and criproxy's own files."""


@dataclass(frozen=True, slots=True)
class File:
    """A file gets another content, or is removed."""

    path: str
    text: str | None
    """None: there is no such file."""
    why: str
    part: str = PROGRAM
    setting: str = ""
    """What of the file is ours: only that is taken back if others have changed the file since; empty: all of it."""
    keep: bool = False
    """Whether the file stays when this is taken back, if others have changed it since."""
    mode: int = 0o644
    """Of a file that does not exist yet."""
    before: str | None = None
    attributes: Attributes | None = None
    """Before; None: the file keeps those that it has."""
    folders: tuple[str, ...] = ()
    """The directories above that did not exist before, the outermost first."""

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return f"{'remove' if self.text is None else 'write'} {self.path}: {self.why}"

    @property
    def undo_title(self) -> str:
        """What taking it back does, in a sentence."""
        if self.before is not None and self.attributes is None:  # an inverse
            return f"write {self.path}: {self.why}"
        return f"{'remove' if self.before is None else 'restore'} {self.path}"

    def begun(self, host: Host) -> "File":
        """Return the step with what the node has now."""
        before, folders = host.read(self.path), tuple(host.missing_folders(self.path))
        attributes = None if before is None else host.attributes(self.path)
        return replace(self, before=before, attributes=attributes, folders=folders)

    def inverse(self, host: Host) -> "File":
        """Return a step that does this one when it is taken back; a directory of drop-ins goes with its last one."""
        folder = self.path.rpartition("/")[0]
        folders = (folder,) if self.text is None and folder.endswith(".d") else ()
        return replace(self, text=host.read(self.path), before=self.text, folders=folders)

    def apply(self, host: Host) -> None:
        """Do it."""
        host.remove(self.path) if self.text is None else host.write(self.path, self.text, mode=self.mode)

    def restored(self, now: str | None, *, force: bool) -> str | None:
        """Return the content that the file with the content *now* gets when this is taken back; *force*: at any price.

        Raises:
            CannotEdit: others have changed the file so that our setting has to be removed by hand.
        """
        if now == self.text:
            return self.before
        if None in (now, self.text) or now == self.before:
            return now
        if force or not (self.keep or self.setting):
            return self.before
        return now if self.keep else with_former(self.setting, self.before or "", now or "")

    def undo(self, host: Host, *, force: bool) -> str:
        """Take it back; return a sentence if the file stays."""
        host.forget_temporary(self.path)
        now = host.read(self.path)
        after = self.restored(now, force=force)
        if after is None:
            host.remove(self.path)
        elif after != now:
            is_shared = bool(self.setting) and now != self.text and not force
            host.write(self.path, after, None if is_shared else self.attributes)
        host.remove_folders(self.folders)
        stays = self.keep and after == now and now not in (None, self.before)
        return f"{self.path} was changed since and stays" if stays else ""


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory is copied to the node, or made by later steps: taken back, it is removed with all that is in it."""

    path: str
    source: str = ""
    """A directory of this program's machine; it replaces an older copy. Empty: later steps make the directory."""
    part: str = PROGRAM
    existed: bool = False
    folders: tuple[str, ...] = ()
    """The directories above that did not exist before, the outermost first."""

    @property
    def title(self) -> str:
        """The step in a sentence; empty if there is nothing to do yet."""
        return f"copy {self.source} to the node's {self.path}" if self.source else ""

    @property
    def undo_title(self) -> str:
        """What taking it back does, in a sentence; empty: nothing."""
        return "" if self.existed else f"remove {self.path}"

    def begun(self, host: Host) -> "Folder":
        """Return the step with what the node has now."""
        return replace(self, existed=host.exists(self.path), folders=tuple(host.missing_folders(self.path)))

    def apply(self, host: Host) -> None:
        """Do it."""
        if self.source:
            host.copy_tree(self.source, self.path)

    def undo(self, host: Host, *, force: bool) -> str:
        """Take it back; return an empty sentence."""
        host.restore_tree(self.path)
        if not self.existed:
            host.remove_tree(self.path)
        host.remove_folders(self.folders)
        return ""


@dataclass(frozen=True, slots=True)
class Run:
    """A command, and the one that takes it back when the files of their part are restored."""

    what: str
    part: str
    command: Command = ()
    undo_command: Command = ()

    @property
    def title(self) -> str:
        """The step in a sentence; empty if there is nothing to do yet."""
        return f"{self.what}: {' '.join(self.command)}" if self.command else ""

    @property
    def undo_title(self) -> str:
        """What taking it back does: the command."""
        return " ".join(self.undo_command)

    def apply(self, host: Host) -> None:
        """Do it."""
        if self.command:
            host.must(self.command)


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing changes; the installation goes on only if the answer is yes."""

    what: str
    """``version``, ``calls``, ``plugin`` or ``ready``."""
    about: str
    remedy: str = ""
    """What may help if the answer stays no."""

    @property
    def title(self) -> str:
        """The step in a sentence."""
        return _CHECKS[self.what].format(self.about)


_CHECKS = {
    "version": "check that the runtime answers through {}",
    "calls": "check that the kubelet's calls arrive at criproxy ({})",
    "plugin": "check that the runtime asks criproxy ({})",
    "ready": "check that the node is Ready, by {}",
}
Step = File | Folder | Run | Check
