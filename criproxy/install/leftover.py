"""What others have set so that the kubelet calls criproxy, of which the journal of an installation knows nothing.

An uninstallation takes it back together with the journal: before criproxy stops, and also after a kill in the middle.
"""

from collections.abc import Sequence
from dataclasses import replace

from criproxy.install.host import Host
from criproxy.install.journal import Before, Entry, Journal
from criproxy.install.planning import edits, paths
from criproxy.install.planning.facts import Facts
from criproxy.install.planning.plan import RELOAD, RESTART_KUBELET, SYSTEMCTL
from criproxy.install.planning.removal import STOP, left
from criproxy.install.planning.steps import Remove, Run, Write
from criproxy.install.runner import content_after


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
