"""`criproxy install` and `criproxy uninstall`, from the look at the node to the last line that people read.

An uninstallation takes it back together with the journal: before criproxy stops, and also after a kill in the middle.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from criproxy import __version__
from criproxy.errors import ConfigError, CriproxyError, UsageError
from criproxy.install.host import CommandFailed, Host
from criproxy.install.journal import Before, Entry, Journal, JournalFile
from criproxy.install.look import look
from criproxy.install.planning import edits, paths
from criproxy.install.planning.facts import Brought, Facts, NodeKind
from criproxy.install.planning.plan import (
    RELOAD,
    RESTART_KUBELET,
    SYSTEMCTL,
    Plan,
    Wishes,
    facts_active,
    plan,
    release,
    runtime_of,
)
from criproxy.install.planning.removal import STOP, left, removal
from criproxy.install.planning.steps import Remove, Run, Write
from criproxy.install.runner import Runner, content_after, undo_title
from criproxy.install.verification import Checks

_CHECKOUT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
_RECOVERED = "An installation or uninstallation was interrupted: what it had begun was taken back."
_UNINSTALLED = "criproxy is uninstalled, and the kubelet's endpoint that was set by hand is removed."
_LEFT = (
    "The kubelet calls the runtime, and criproxy is stopped. It was not installed by 'criproxy install', so "
    f"these stay: {paths.POLICY}, {paths.STATE_DIR} and the program."
)


def brought(host_root: Path) -> Brought:
    """Return what can be put on the node with the root directory *host_root*.

    In a container, that is the program itself, with its virtual environment, and the units and the policy file of the
    container's image. On the node itself, the program is in its place, and a checkout has the units and the policy.
    """
    if _is_same(host_root):
        return Brought(__version__, "", _units(_CHECKOUT / "systemd"), _text(_CHECKOUT / "policies/default.yaml"))
    home = paths.HOME if Path(paths.PROGRAM).exists() and Path(sys.prefix) == Path(paths.HOME) else ""
    units = next(filter(None, map(_units, map(Path, (*paths.UNIT_FOLDERS, f"{_CHECKOUT}/systemd")))), {})
    policy = _text(Path(paths.POLICY)) or _text(_CHECKOUT / "policies/default.yaml")
    return Brought(__version__, home, units, policy)


@dataclass(frozen=True, slots=True)
class Operator:
    """Installs and uninstalls on one node."""

    host: Host
    tell: Callable[[str], None]
    """Gets the lines for people."""
    kind: NodeKind | None = None
    timeout_s: float = 120.0
    """Of each check."""
    brought: Brought | None = None
    """What can be put on the node; None: what this program has with it."""

    def install(self, wishes: Wishes, *, dry_run: bool = False) -> None:
        """Install criproxy, or with *dry_run* tell what this would do.

        Raises:
            CriproxyError: that is impossible, or a step failed and the node is as it was.
        """
        if dry_run:
            if self._file.load().is_open:
                self.tell("An installation was interrupted. The next one takes it back first; this is the node now.")
            self._planned(wishes)
            return
        with self.host.lock():
            if self._runner(None).recover():
                self.tell(_RECOVERED)
            facts, planned = self._planned(wishes)
            if planned.steps:
                self._runner(facts).install(planned.steps)
                self.tell("criproxy is installed, and the kubelet calls it.")

    def uninstall(self, *, dry_run: bool = False, force: bool = False) -> None:
        """Remove what `install` has made, or what else makes the kubelet call criproxy.

        Raises:
            CriproxyError: containers may still be pinned, and there is no *force*; a setting has to be removed by
                hand; or a step failed.
        """
        if dry_run:
            self._tell_uninstall(self._file.load(), force=force)
            return
        with self.host.lock():
            runner = self._runner(None)
            if runner.recover():
                self.tell(_RECOVERED)
            if (journal := self._file.load()).entries:
                journal, left = self._with_leftover(journal, force=force)
                self._release(force=force)
                for step in left:
                    self.tell(step.title)
                runner.uninstall(journal, force=force)
                self.tell(_UNINSTALLED if left else "criproxy is uninstalled: the node is as it was.")
            elif steps := [*_by_hand(lambda: tuple(removal(self._facts())))]:
                self._release(force=force)
                runner.remove(steps)
                self.tell(_LEFT)
            else:
                self.tell("Nothing to do: the kubelet does not call criproxy, and criproxy does not run.")

    @property
    def _file(self) -> JournalFile:
        return JournalFile(self.host)

    def _facts(self, runtime: str = "") -> Facts:
        return look(self.host, self.kind, self.brought or brought(self.host.root), runtime)

    def _runner(self, facts: Facts | None) -> Runner:
        named = (node_name(self.host, facts), facts.kubelet) if facts else ("", "")
        checks = Checks(self.host, self.timeout_s, *named)
        return Runner(self.host, self._file, checks, self.tell)

    def _planned(self, wishes: Wishes) -> tuple[Facts, Plan]:
        """Look at the node, and tell what there is and is to be done.

        Raises:
            CriproxyError: something stands against an installation.
        """
        facts = replace(self._facts(wishes.runtime), written=self._file.load().written)
        planned = plan(facts, wishes)
        notes = (*planned.notes, *_policy_notes(self.host, facts, wishes), *_page_notes(facts, wishes))
        for line in (*planned.about, *(f"note: {note}" for note in notes)):
            self.tell(line)
        problems = [*planned.problems, *([] if wishes.policy is not None else _wrong_policy(self.host, facts))]
        if problems:
            raise CriproxyError("\n".join(("criproxy cannot be installed:", *(f"- {each}" for each in problems))))
        if not planned.steps:
            self.tell("Nothing to do: criproxy is installed, and the kubelet calls it.")
        titles = [step.title for step in planned.steps if step.title]
        for number, title in enumerate(titles, 1):
            self.tell(f"{number:3}. {title}")
        return facts, planned

    def _with_leftover(self, journal: Journal, *, force: bool) -> tuple[Journal, list[Write | Remove]]:
        """Return the journal with what it has to take back besides, and those changes of files by themselves."""
        facts = self._facts()
        left = _by_hand(lambda: leftover(journal, facts, force=force))
        return with_leftover(journal, facts, self.host, left), left

    def _tell_uninstall(self, journal: Journal, *, force: bool) -> None:
        titles: Sequence[str]
        if journal.entries:
            whole, left = self._with_leftover(journal, force=force)
            entries = reversed(whole.entries[: len(whole.entries) - len(left)])
            titles = [*(step.title for step in left), *(title for entry in entries if (title := undo_title(entry)))]
        else:
            titles = [step.title for step in _by_hand(lambda: tuple(removal(self._facts())))]
        if not titles:
            self.tell("Nothing to do: the kubelet does not call criproxy, and criproxy does not run.")
            return
        for number, title in enumerate(("release all containers: " + " ".join(self._release_command), *titles), 1):
            self.tell(f"{number:3}. {title}")

    @property
    def _release_command(self) -> tuple[str, ...]:
        return release(runtime_of(self._facts()))

    def _release(self, *, force: bool) -> None:
        """Unpin all containers.

        Raises:
            CriproxyError: some may still be pinned, and there is no *force*.
        """
        self.tell("release all containers")
        try:
            self.host.must(self._release_command)
        except CommandFailed as error:
            if not force:
                raise CriproxyError(
                    f"nothing was changed, because containers may still be pinned: {error}; "
                    "--force uninstalls criproxy all the same"
                ) from error
            self.tell(f"containers may still be pinned: {error}")


def node_name(host: Host, facts: Facts) -> str:
    """Return the name under which the kubelet registers the node."""
    named = facts.kubelet_value("hostname-override", "") or facts.own_value("node-name")
    return named or (host.read("/etc/hostname") or "").strip().lower()


def policy_text(file: Path, host_root: Path) -> str:
    """Return the text of a policy file that this machine can use.

    Raises:
        UsageError: it is a directory.
        ConfigError: it cannot be read, or has mistakes.
        CriproxyError: the machine cannot be read, and the file has no mistakes by itself.
    """
    from criproxy.config.load import load
    from criproxy.host.host_paths import host_reader
    from criproxy.host.machine import discover

    if file.is_dir():
        raise UsageError(f"--policy: {file} is a directory; name the policy file of this node")
    try:
        topology = discover(host_root)
    except CriproxyError:
        load(file, "")  # first, what is wrong with the file that the user names
        raise
    load(file, "", topology=topology, host=host_reader(host_root))
    return file.read_text()


def _wrong_policy(host: Host, facts: Facts) -> list[str]:
    """Return what is wrong with the policy file of the node, if criproxy is to start with it."""
    if facts_active(facts) or paths.POLICY not in facts.texts or facts.option("config") not in (None, paths.POLICY):
        return []
    folder, _, name = paths.POLICY.rpartition("/")
    try:
        policy_text(host.path(folder) / name, host.root)
    except ConfigError as error:
        return str(error).splitlines()
    except CriproxyError:  # files of the machine are not below this root: the daemon will see them
        return []
    return []


def _policy_notes(host: Host, facts: Facts, wishes: Wishes) -> list[str]:
    """Return how the policy with which criproxy is to run differs from the kubelet; nothing if that is unknown."""
    from criproxy.config.choice import Choice
    from criproxy.config.load import judge
    from criproxy.host.host_paths import host_reader
    from criproxy.host.machine import discover
    from criproxy.install.kubelet_cpus import differences

    given = (wishes.policy, facts.texts.get(paths.POLICY), facts.brought.policy)
    text = next((text for text in given if text is not None), None)
    if text is None or facts.option("config") not in (None, paths.POLICY):
        return []
    reader = host_reader(host.root)
    try:
        topology = discover(host.root)
    except CriproxyError:  # files of the machine are not below this root
        return []
    settings = judge(text, Choice(Path(paths.POLICY), ""), topology, reader).settings
    if settings is None or settings.common.policy == "none":
        return []
    return [*differences(facts, settings.options, topology, reader.cgroup)]


def _page_notes(facts: Facts, wishes: Wishes) -> Iterator[str]:
    """Yield a sentence if nobody could open the page, although it is to be served."""
    from criproxy.process.http.address import Address

    kept = facts.option("http-token-file") and not facts.has_written("http-token-file")
    if wishes.http and not Address.parse(wishes.http).is_local and not (wishes.page_token or kept):
        text = f"nobody will be able to open the page at {wishes.http}: it is not on loopback, and there is no token"
        yield f"{text}; name a file with one with --http-token-file. Metrics and health checks need no token"


def _by_hand(steps: Callable[[], T]) -> T:
    try:
        return steps()
    except edits.CannotEdit as error:
        raise CriproxyError(str(error)) from error


def _is_same(host_root: Path) -> bool:
    return host_root.resolve() == Path("/")


def _units(folder: Path) -> dict[str, str]:
    names = (*paths.UNITS, *paths.OPTIONAL_UNITS)
    texts = {name: _text(folder / name) for name in names}
    return {name: text for name, text in texts.items() if text is not None}


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def leftover(journal: Journal, facts: Facts, *, force: bool) -> list[Write | Remove]:
    """Return the changes that are needed so that the kubelet does not call criproxy once *journal* is taken back.

    Raises:
        CannotEdit: something has to be done by hand.
    """
    texts = dict[str, str | None]()
    for entry in reversed(journal.entries):
        path = entry.step.path if isinstance(entry.step, Write) else ""
        if path in facts.texts and path != paths.DEFAULTS:  # until criproxy has stopped, its options are in effect
            texts[path] = _text_after(entry, texts.get(path, facts.texts[path]), force=force)
    return left(facts, texts)


def _text_after(entry: Entry, now: str | None, *, force: bool) -> str | None:
    assert isinstance(entry.step, Write)
    content = None if now is None else now.encode("utf-8", "surrogateescape")
    try:
        after = content_after(entry.step, entry.before, content, force=force)
    except edits.CannotEdit as error:
        raise edits.CannotEdit(f"{entry.step.path}: {error}") from error
    return None if after is None else after.decode("utf-8", "surrogateescape")


def with_leftover(journal: Journal, facts: Facts, host: Host, steps: Sequence[Write | Remove]) -> Journal:
    """Return *journal* with entries at its end that do *steps* when they are taken back; the same one without steps."""
    if not steps:
        return journal
    runs = [entry.step for entry in journal.entries if isinstance(entry.step, Run)]
    undone = {command for run in runs for command in run.undo}
    restart = (SYSTEMCTL, "restart", facts.kubelet)
    first = [Run("stop criproxy", undo=(STOP,))] if facts.active and STOP not in undone else []
    last = [Run(RESTART_KUBELET, undo=(restart,))] if restart not in undone else []
    last.append(Run("let systemd read the kubelet's unit", undo=(RELOAD,)))
    files = [_entry(facts, host, step) for step in reversed(steps)]
    return replace(journal, entries=(*map(Entry, first), *journal.entries, *map(Entry, last), *files))


def _entry(facts: Facts, host: Host, step: Write | Remove) -> Entry:
    """Return an entry that does *step* when it is taken back."""
    done = Write(step.path, facts.texts[step.path], step.why)
    folder = step.path.rpartition("/")[0]
    if isinstance(step, Remove):
        return Entry(done, Before(folders=(folder,) if folder.endswith(".d") else ()))
    node = replace(host.attributes(step.path), mtime_ns=None)
    return Entry(done, Before(step.text.encode("utf-8", "surrogateescape"), node, existed=True))
