"""What the daemon left on disk, in the same words as its own answers: for when it does not answer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.control.journal import REFUSAL_S
from criproxy.control.notices import Notice, Refusal, timestamp
from criproxy.control.report import Filter, Situation, problems, rows, summary
from criproxy.control.story import choose, lives, tell
from criproxy.discovery.machine import discover
from criproxy.errors import CriproxyError
from criproxy.store.reader import Reader, open_reader
from criproxy.store.store import LOCK_NAME

Values = dict[str, Any]


class Stored:
    """The state in *state_dir* of a daemon that cannot be asked because of *reason*."""

    def __init__(self, state_dir: Path, host_root: Path, reason: Exception) -> None:
        self._state_dir = state_dir
        self._host_root = host_root
        self._reason = reason

    def status(self, wanted: Filter, *, check: bool = False) -> Values:
        """As the daemon's answer to `status`.

        Raises:
            CriproxyError: the state cannot be read, either.
        """
        with self._reader() as reader:
            situation, head = self._situation(reader), self._head(reader)
        values = {**head, **summary(situation)}
        if check:
            values |= problems(situation)
        return {**values, "omitted": 0, "containers": list(rows(situation, wanted))}

    def explain(self, text: str) -> Values:
        """As the daemon's answer to `explain`.

        Raises:
            CriproxyError: nobody is meant by *text*, or more than one; or the state cannot be read, either.
        """
        with self._reader() as reader:
            situation, head = self._situation(reader), self._head(reader)
            found = lives(situation.node, reader.find(text), text)
            life = choose(situation.node, found, text, reader.titles())
            namesakes = lives(situation.node, reader.find(life.title), life.title)
        told = tell(situation, life, [other for other in namesakes if other.name != life.name])
        return {**head, "notices": [notice.to_json() for notice in situation.notices], **told}

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        try:
            with open_reader(self._state_dir) as reader:
                yield reader
        except CriproxyError as error:
            raise CriproxyError(f"{self._reason}; {error}") from error

    def _situation(self, reader: Reader) -> Situation:
        holder = holding(self._state_dir)
        stuck = f" (its process {holder} runs, but does not answer)" if holder else ""
        text = f"{self._reason}{stuck}. What follows was stored in {reader.path} at {timestamp(reader.changed_s)}"
        return Situation(
            node=reader.node(discover(self._host_root)),
            notices=[Notice("daemon-down", text)],
            refusals=[Refusal(*row) for row in reader.refusals(reader.changed_s - REFUSAL_S)],
        )

    def _head(self, reader: Reader) -> Values:
        return {
            "source": "store",
            "time": timestamp(reader.changed_s),
            "version": __version__,
            "pid": None,
            "started": None,
        }


def holding(state_dir: Path) -> int | None:
    """The process that has the state directory. To try the lock instead could keep a daemon from starting."""
    path = state_dir / LOCK_NAME
    try:
        inode = os.stat(path).st_ino  # noqa: PTH116
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None
